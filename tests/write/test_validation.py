from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import (
    FACT_KINDS,
    Add,
    Delegated,
    Event,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
)
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text.cleaning import clean
from hermes_memory_pgvector.write.validation import validate

SETTINGS = Settings()
SHORT = Settings(content_chars_max=1000)
awkward = st.text(st.sampled_from("ab \n\r\0\ud800\udfff\U0001f600"), max_size=8)
texts = awkward | st.text(st.characters(exclude_categories=()), max_size=12)
ids: dict[str, Any] = {"theme": texts, "home": texts, "session_id": texts, "metadata": st.dictionaries(texts, texts)}
old: dict[str, Any] = {"previous": texts, "old_text": texts, "surviving": st.lists(texts, max_size=3).map(tuple)}
events = st.one_of(
    st.builds(Add, target=st.just("memory"), content=texts, **ids),
    st.builds(Replace, target=st.just("user"), content=texts, **old, **ids),
    st.builds(Remove, target=st.just("user"), **old, **ids),
    st.builds(TurnTaken, user=texts, assistant=texts, parent_session_id=texts, **ids),
    st.builds(SessionEnded, turns=st.lists(st.tuples(texts, texts)).map(tuple), parent_session_id=texts, **ids),
    st.builds(Delegated, task=texts, result=texts, child_session_id=texts, **ids),
)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return strings(json.dumps(value, ensure_ascii=False))
    return [text for item in value for text in strings(item)] if isinstance(value, tuple) else []


@given(events)
def test_every_text_of_a_validated_event_is_one_that_postgres_takes(event: Event) -> None:
    try:
        ready = validate(event, SETTINGS)
    except BadEvent:
        assert not getattr(event, "content", "x").strip("\0 \r\n\t") or isinstance(event, Add | Replace)
        return
    assert type(ready) is type(event)
    assert (ready.id, ready.at) == (event.id, event.at)
    for field in fields(ready):
        for text in strings(getattr(ready, field.name)):
            assert "\0" not in text, field.name
            text.encode()


@given(events)
def test_validating_twice_changes_nothing_more(event: Event) -> None:
    try:
        once = validate(event, SHORT)
    except BadEvent:
        return
    assert validate(once, SHORT) == once


@given(texts.map(lambda text: text * 300))
def test_a_removed_entry_is_named_by_the_text_under_which_it_was_stored(text: str) -> None:
    try:
        stored = validate(Add(theme="t", target="memory", content=text), SHORT)
    except BadEvent:
        return
    removed = validate(Remove(theme="t", target="memory", previous=text, surviving=(text,)), SHORT)
    replaced = validate(Replace(theme="t", target="memory", content="new", previous=text, surviving=(text,)), SHORT)
    assert isinstance(stored, Add)
    assert isinstance(removed, Remove)
    assert isinstance(replaced, Replace)
    assert removed.previous == replaced.previous == stored.content
    assert removed.surviving == replaced.surviving == (stored.content,)


def test_long_texts_are_cut_and_marked() -> None:
    long = "word " * 1000
    for event in (
        Add(theme="t", target="memory", content=long),
        TurnTaken(theme="t", user=long, assistant=long),
        Delegated(theme="t", task=long, result=long),
        SessionEnded(theme="t", turns=((long, long),)),
    ):
        found = [text for field in fields(event) for text in strings(getattr(validate(event, SHORT), field.name))]
        cut = [text for text in found if len(text) > 100]
        assert cut
        assert all(len(text) <= 1000 and "more]" in text for text in cut)


@pytest.mark.parametrize("content", ["", " \n\t", "\0\0"])
def test_an_empty_entry_is_a_bad_event(content: str) -> None:
    for event in (
        Add(theme="t", target="memory", content=content),
        Replace(theme="t", target="memory", content=content, previous="old"),
    ):
        with pytest.raises(BadEvent, match="empty"):
            validate(event, SETTINGS)


def test_an_unknown_target_is_a_bad_event_that_names_it() -> None:
    event = replace(Remove(theme="t", target="memory"), target="x" * 1000)  # type: ignore[arg-type]
    with pytest.raises(BadEvent, match=r"target is 'xxx.*memory, user") as caught:
        validate(event, SETTINGS)
    assert len(str(caught.value)) < 200


def test_an_unreadable_expiry_is_a_bad_event_that_quotes_it() -> None:
    with pytest.raises(BadEvent, match="expires is 'soon'; it must be a time in ISO 8601, or never"):
        validate(Add(theme="ops", target="memory", content="text", expires="soon"), Settings())


def test_an_empty_side_of_a_turn_stays_empty() -> None:
    ready = validate(TurnTaken(theme="t", user="asked", assistant="\0"), SETTINGS)
    assert isinstance(ready, TurnTaken)
    assert (ready.user, ready.assistant) == ("asked", "")


def test_metadata_that_is_not_json_is_made_so() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    ready = validate(
        TurnTaken(theme="t", user="u", assistant="a", metadata={"nan": float("nan"), "loop": loop}), SETTINGS
    )
    assert "NaN" not in json.dumps(ready.metadata)


@given(st.builds(FactWritten, kind=st.sampled_from(FACT_KINDS), target=texts, content=texts, scope=texts, **ids))
def test_a_fact_is_on_one_line_that_postgres_takes_or_has_an_empty_part(fact: FactWritten) -> None:
    try:
        ready = validate(fact, SETTINGS)
    except BadEvent:
        assert not all(clean(text).strip() for text in (fact.target, fact.content))
        return
    assert isinstance(ready, FactWritten)
    for text in (ready.target, ready.content, ready.scope):
        assert "\0" not in text
        assert len(text.splitlines()) <= 1
        assert text == text.strip()
        text.encode()
    assert validate(ready, SETTINGS) == ready


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"kind": "X" * 99}, f"kind is '{'X' * 40}'; it must be one of C, D, V, ?, done, obs"),
        ({"target": " \n\0"}, "the target of the fact is empty"),
        ({"content": "\0"}, "the content of the fact is empty"),
        ({"target": "t" * 201}, "the target of the fact has 201 characters; at most 200 are stored"),
        ({"content": "c" * 401}, "the content of the fact has 401 characters; at most 400 are stored"),
        ({"scope": "s" * 101}, "the scope of the fact has 101 characters; at most 100 are stored"),
    ],
)
def test_a_fact_beyond_a_bound_is_refused_with_the_bound(changed: dict[str, Any], reason: str) -> None:
    fact = FactWritten(theme="t", kind="C", target="x", content="y")
    with pytest.raises(BadEvent) as refused:
        validate(replace(fact, **changed), SETTINGS)
    assert str(refused.value) == reason


def test_a_fact_at_its_bounds_is_kept_whole_with_its_lines_joined() -> None:
    fact = FactWritten(theme="t", kind="?", target="t" * 200, content=f" a \r\n\n b{'c' * 396}\n", scope="s" * 100)
    ready = validate(fact, SETTINGS)
    assert isinstance(ready, FactWritten)
    assert (ready.target, ready.content, ready.scope) == (fact.target, f"a b{'c' * 396}", fact.scope)
    assert validate(replace(fact, content="c" * 1000), Settings(facts_text_chars_max=1000))


@pytest.mark.parametrize("turn", [-1, 1 << 31, 1 << 80])
def test_a_turn_that_is_no_number_of_one_is_refused(turn: int) -> None:
    assert validate(FactsTicked(theme="t", turn=7), SETTINGS)
    with pytest.raises(BadEvent, match="turn is"):
        validate(FactsTicked(theme="t", turn=turn), SETTINGS)


@pytest.mark.parametrize("days", [-1, 36_501])
def test_a_purge_of_an_impossible_age_is_refused(days: int) -> None:
    for possible in (None, 0, 36_500):
        assert validate(FactsPurged(theme="t", older_than_days=possible), SETTINGS)
    with pytest.raises(BadEvent, match="older_than_days is"):
        validate(FactsPurged(theme="t", older_than_days=days), SETTINGS)
