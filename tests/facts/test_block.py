from __future__ import annotations

import json
from pathlib import Path

from hostile import NASTY, assert_harmless
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.facts.block import CHARS_MIN, NONE, Hot, block
from hermes_memory_pgvector.facts.notation import Notation
from hermes_memory_pgvector.facts.tokens import tokens_of
from hermes_memory_pgvector.model import FACT_KINDS

COUNTS = json.loads((Path(__file__).parent.parent / "data" / "token_counts.json").read_text(encoding="utf-8"))
WORDS = st.sampled_from(
    ["UUID", "never", "数据库", "デプロイ", "서버", "größe", "🙂", "3f2a91c8", "\u0e01\u0e34", "\n", "xkcd" * 20]
)
TEXTS = st.lists(WORDS, min_size=1, max_size=60).map(" ".join) | NASTY
FACTS = st.lists(st.builds(Notation, st.sampled_from(FACT_KINDS), TEXTS, TEXTS), max_size=30)


@settings(max_examples=300)
@given(
    FACTS,
    st.lists(TEXTS, max_size=20),
    st.integers(100, 400),
    st.integers(CHARS_MIN, 3000),
    st.integers(0, 10**9),
)
def test_a_block_keeps_to_its_budget_and_says_what_it_leaves_out(
    facts: list[Notation], scopes: list[str], tokens_max: int, chars_max: int, count: int
) -> None:
    text = block(Hot(facts=facts, count=count, scopes=scopes, percent=count), tokens_max, chars_max)
    assert tokens_of(text) <= tokens_max
    assert len(text) <= chars_max
    assert_harmless(text)
    _, *lines = text.split("\n")
    left_out = [int(line.split()[1]) for line in lines[-1:] if line.endswith(" more: memory_search")]
    shown = [line for line in lines if not line.startswith(("… ", "("))]
    if facts or count:
        assert len(shown) + sum(left_out) >= max(count, len(facts))
    else:
        assert lines[-1] == NONE


def test_a_block_shows_whole_facts_in_their_order() -> None:
    facts = [Notation("C", "db.id", "UUID"), Notation("V", "essay", "word " * 79), Notation("done", "auth", "deployed")]
    text = block(Hot(facts=facts, count=8, scopes=["auth", "phase b"], percent=12), 180)
    assert text.split("\n")[1:] == [
        "(12 % full; open scopes: auth, phase b)",
        "C[db.id]: UUID",
        "✓[auth]: deployed",
        "… 6 more: memory_search",
    ]


def test_many_scopes_leave_room_for_facts() -> None:
    facts = [Notation("V", f"srv{n}", f"10.0.3.{n}") for n in range(40)]
    text = block(Hot(facts=facts, scopes=[f"scope number {n} of many" for n in range(40)]), 180)
    assert " more)" in text
    assert text.count("\nV[") >= 4
    assert text.endswith(f"… {40 - text.count(chr(10) + 'V[')} more: memory_search")


def test_no_tokenizer_counts_more_than_the_estimate() -> None:
    assert len(COUNTS) > 30
    for text, counts in COUNTS.items():
        assert tokens_of(text) >= max(counts.values()), text


@given(TEXTS, TEXTS)
def test_joined_texts_have_no_more_tokens_than_their_parts(one: str, other: str) -> None:
    assert 0 <= tokens_of(f"{one}\n{other}") <= tokens_of(one) + 1 + tokens_of(other)
