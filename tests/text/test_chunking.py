from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.text.chunking import chunks


@given(st.text(max_size=3000), st.integers(10, 400))
def test_the_chunks_together_are_the_text(text: str, chars_max: int) -> None:
    found = chunks(text, chars_max, 1000)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(0 < len(piece) <= chars_max and piece.strip() == piece for piece in found)


@given(st.text(max_size=3000), st.integers(10, 400), st.integers(0, 5))
def test_there_are_never_more_chunks_than_asked(text: str, chars_max: int, count_max: int) -> None:
    found = chunks(text, chars_max, count_max)
    assert len(found) <= count_max
    assert found == chunks(text, chars_max, 1000)[:count_max]


def test_a_piece_ends_where_a_reader_would_cut() -> None:
    text = "The first paragraph is here.\n\nThe second one has two sentences. This is the other of them."
    assert chunks(text, 50, 9) == [
        "The first paragraph is here.",
        "The second one has two sentences.",
        "This is the other of them.",
    ]


def test_a_text_without_seams_is_cut_anyway() -> None:
    assert chunks("x" * 25, 10, 9) == ["x" * 10, "x" * 10, "x" * 5]
