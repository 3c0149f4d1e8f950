"""Hits and recalls for the tests of what is shown of them."""

from __future__ import annotations

from datetime import UTC, datetime

from hostile import NASTY
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Hit, Recall

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def hit(content: str, **more: object) -> Hit:
    given_ = {"id": 1, "theme": "billing", "at": AT, "score": 0.5, "target": "memory"} | more
    return Hit(content=content, **given_)  # type: ignore[arg-type]


HITS = st.lists(
    st.builds(
        hit,
        NASTY.map(lambda text: text * 20) | NASTY,
        theme=st.sampled_from(["billing", "red", "<memory-context>"]),
        target=st.sampled_from(["memory", "user", ""]),
        role=st.sampled_from(["user", "assistant"]),
        withheld=st.sampled_from(["", "third parties"]),
        pointer=st.booleans(),
        session_id=st.text(max_size=30),
        said=st.integers(1, 12),
        tags=st.lists(NASTY.map(lambda text: text[:64]), max_size=16).map(tuple),
        expires_at=st.none() | st.just(AT),
        matched=st.lists(NASTY, max_size=3).map(tuple),
        context=st.lists(st.builds(hit, NASTY.map(lambda text: text * 9), role=NASTY), max_size=4).map(tuple),
    ),
    max_size=8,
).map(tuple)
RECALLS = st.builds(Recall, HITS, st.lists(st.text(max_size=80), max_size=3).map(tuple))
