"""Events of every kind with awkward texts, for hypothesis."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from hermes_memory_pgvector.model import (
    FACT_KINDS,
    Add,
    Attributed,
    Delegated,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
    Withdrawn,
)


def paired(text: str) -> str:
    """The text with the two halves of a character put together; that is all JSON changes, and what `clean` does."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


# Anything that Python calls a text: NUL, lone surrogates and the bytes of our own magic, too.
awkward = st.text(st.sampled_from("a\n\0\ud800\udfff\xf5hm1\U0001f600"), max_size=8)
any_text = awkward | st.text(st.characters(exclude_categories=()))
texts = any_text.map(paired)
texts_also_huge = texts | st.builds(
    lambda text, times: paired(text * times), any_text, st.sampled_from([1_000, 20_000])
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3),
    max_leaves=8,
)
times = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]))
accepted: dict[str, Any] = {
    "theme": texts, "home": texts, "session_id": texts, "at": times, "id": texts,
    "metadata": st.dictionaries(texts, json_values, max_size=3),
}  # fmt: skip
targets = st.sampled_from(["memory", "user"])
old: dict[str, Any] = {"previous": texts, "old_text": texts, "surviving": st.lists(texts, max_size=3).map(tuple)}
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
labels: dict[str, Any] = {
    "expires": st.sampled_from(["", "never"]) | times.map(lambda at: at.isoformat()) | texts,
    "tags": st.none() | st.lists(texts, max_size=3).map(tuple),
}
events = st.one_of(
    st.builds(Add, target=targets, content=texts_also_huge, from_file=st.booleans(), **accepted),
    st.builds(Add, target=targets, content=texts, supersedes=st.integers(0, 9), **labels, **accepted),
    st.builds(Update, entry_id=st.integers(1, 9), content=texts_also_huge, **labels, **accepted),
    st.builds(Replace, target=targets, content=texts, **old, **accepted),
    st.builds(Remove, target=targets, **old, **accepted),
    st.builds(Attributed, saves=st.lists(texts, max_size=3).map(tuple), **accepted),
    st.builds(TurnTaken, user=texts_also_huge, assistant=texts, parent_session_id=texts, **accepted),
    st.builds(SessionEnded, turns=pairs, parent_session_id=texts, **accepted),
    st.builds(
        Withdrawn, turns=pairs, standing=st.lists(st.integers(0, 9)).map(tuple), continued=st.tuples(texts), **accepted
    ),
    st.builds(Delegated, task=texts, result=texts_also_huge, child_session_id=texts, **accepted),
    st.builds(
        FactWritten, kind=st.sampled_from(FACT_KINDS), target=texts, content=texts_also_huge, scope=texts, **accepted
    ),
    st.builds(FactsTicked, turn=st.integers(), closing=st.booleans(), **accepted),
    st.builds(FactsPurged, scope=texts, older_than_days=st.none() | st.integers(), **accepted),
)
