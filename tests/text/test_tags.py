from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.text.tags import TAG_CHARS_MAX, TAGS_MAX, normalised

TAGS = st.lists(st.text(st.characters(exclude_categories=()), max_size=20), max_size=6)


@pytest.mark.parametrize(
    ("tag", "normal"),
    [
        ("Deploy", "deploy"),
        ("  #On Call\n", "on-call"),
        ("ＳＱＬ", "sql"),
        ("Straße", "strasse"),
        ("@ops", "ops"),
        ("zero\u200bwidth", "zerowidth"),
        ("काम", "काम"),
        ("c++", "c++"),
    ],
)
def test_case_width_spaces_and_hidden_characters_make_no_difference(tag: str, normal: str) -> None:
    assert normalised([tag]) == (normal,)


@given(TAGS)
def test_tags_are_refused_or_have_one_form_that_stays(tags: list[str]) -> None:
    try:
        found = normalised(tags)
    except BadArgument as error:
        assert str(error).startswith("tags has ")  # noqa: PT017
        return
    assert normalised(found) == found == tuple(sorted(set(found)))
    assert all(0 < len(tag) <= TAG_CHARS_MAX and tag[0] not in "@#" and not tag.isspace() for tag in found)
    "".join(found).encode()


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ([""], "nothing to see"),
        (["ok", "\0\u200b#"], "nothing to see"),
        (["x" * (TAG_CHARS_MAX + 1)], f"a tag of {TAG_CHARS_MAX + 1} characters"),
        (["x" * 1_000_000], "a tag of 1000000 characters"),
        ([f"tag {n}" for n in range(TAGS_MAX + 1)], f"has {TAGS_MAX + 1} tags; there may be {TAGS_MAX}"),
        (["x"] * 1_000_000, f"has 1000000 tags; there may be {TAGS_MAX}"),
    ],
)
def test_what_is_no_tag_is_refused_with_a_short_reason(tags: list[str], reason: str) -> None:
    with pytest.raises(BadArgument, match=reason) as refused:
        normalised(tags)
    assert len(str(refused.value)) < 200
