from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.embedding.bundled.wordpiece import WordPiece

DATA = Path(__file__).parents[2] / "data"
TOKENIZER = WordPiece()
START, END = 101, 102

# Texts with the ids that the tokenizers package gives.
IDS = (
    (
        "The importer's memory leak: OPS-4471, see https://example.org/a_b?c=1!",
        [
            101,
            1996,
            12324,
            2121,
            1005,
            1055,
            3638,
            17271,
            1024,
            23092,
            1011,
            4008,
            2581,
            2487,
            1010,
            2156,
            16770,
            1024,
            1013,
            1013,
            2742,
            1012,
            8917,
            1013,
            1037,
            1035,
            1038,
            1029,
            1039,
            1027,
            1015,
            999,
            102,
        ],
    ),
    ("Züge nach Köln fähren CAFÉ naïve", [101, 16950, 3351, 6583, 2818, 28306, 6904, 28362, 2078, 7668, 15743, 102]),
    ("東京の会議は9時から。", [101, 1879, 1755, 1671, 1763, 100, 1672, 2683, 100, 1651, 30211, 1636, 102]),
    ("a\u200db�c\td", [101, 5925, 1040, 102]),
    ("€50 → 😀 ½ x²", [101, 1574, 12376, 1585, 100, 1092, 1060, 10701, 102]),
    (
        f"antidisestablishmentarianism {'z' * 101}",
        [101, 3424, 10521, 4355, 7875, 13602, 3672, 12199, 2964, 100, 102],
    ),
    ("ǅ İstanbul ß ﬁ", [101, 100, 9960, 1096, 1984, 102]),
)


@pytest.mark.parametrize(("text", "ids"), IDS)
def test_the_ids_are_those_of_the_reference(text: str, ids: list[int]) -> None:
    assert TOKENIZER.tokens(text, 512).ids == ids


@given(st.text(max_size=300), st.integers(3, 40))
def test_any_text_has_a_start_an_end_and_at_most_the_wanted_number_of_ids(text: str, tokens_max: int) -> None:
    ids = TOKENIZER.tokens(text, tokens_max).ids
    assert (ids[0], ids[-1]) == (START, END)
    assert len(ids) <= tokens_max
    assert ids[:-1] == TOKENIZER.tokens(text, 2000).ids[: len(ids) - 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OPS-4471",
        "parse_iban()",
        "What is wrong?",
        "Prefers answers as short lists and dislikes long introductions.",
        "Traceback (most recent call last): File \"/srv/app/main.py\", line 12, in run: KeyError: 'user_id'",
        "We met José and Zoë in the café near the station, and they said that they would call.",
    ],
)
def test_english_and_identifiers_count_as_english(text: str) -> None:
    assert TOKENIZER.tokens(text, 256).english


@pytest.mark.parametrize(
    "text",
    [
        "Mietvertrag",
        "Warum stimmt die Rechnung nicht?",
        "Il treno per Bologna parte dal terzo binario.",
        "El equipo de Madrid prefiere las reuniones por la tarde.",
        "De winkel verkoopt brood, kaas en verse soep.",
        "Combien de temps faut-il attendre ?",
        "Kto podlewa kwiaty?",
        "Когда закрыта дорога?",
        "图书馆几点关门?",
        "기차역 앞에 새 빵집이 문을 열었다.",
    ],
)
def test_other_languages_do_not(text: str) -> None:
    assert not TOKENIZER.tokens(text, 256).english


def test_no_text_in_chinese_japanese_or_korean_counts_as_english() -> None:
    data = json.loads((DATA / "cjk.json").read_text(encoding="utf-8"))
    texts = [item["text"] for item in (*data["documents"], *data["questions"])]
    assert not [text for text in texts if TOKENIZER.tokens(text, 256).english]
