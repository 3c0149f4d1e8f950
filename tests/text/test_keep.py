"""Rules: the first that applies decides, patterns need linear time, and what is not known is not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.text.keep import LEVELS, Decider, Ruling, Source
from hermes_memory_pgvector.text.keep_rules import Rule

NAMES = st.sampled_from(["", "a", "b"])
RULES = st.lists(
    st.builds(
        Rule, platform=NAMES, room=NAMES, author=NAMES, role=st.sampled_from([None, "user", "assistant"]),
        pattern=st.sampled_from(["", "secret", "^x"]), action=st.sampled_from(["turns", "entries", "none"]),
    ),
    max_size=5,
)  # fmt: skip
TEXTS = st.sampled_from(["", "a secret", "x", "plain"])


def decided(rules: list[Rule], platform: str, room: str, author: str, side: str, texts: dict[str, str]) -> Ruling:
    """The ruling, in other words than those of the package."""
    for number, rule in enumerate(rules, 1):
        here = rule.platform in ("", platform) and rule.room in ("", room) and rule.author in ("", author)
        searched = texts.values() if rule.role is None else [texts[rule.role]]
        word = rule.pattern.lstrip("^")
        found = any(text.startswith(word) if rule.pattern.startswith("^") else word in text for text in searched)
        if here and rule.role in (None, side) and found:
            return Ruling(rule.action, number)
    return Ruling("turns")


@given(RULES, NAMES, NAMES, st.sampled_from(["a", "b", "c"]), TEXTS, TEXTS)
def test_the_first_rule_that_applies_decides(
    rules: list[Rule], platform: str, room: str, author: str, user: str, answer: str
) -> None:
    decider = Decider(rules, ())
    texts: dict[Any, str] = {"user": user, "assistant": answer}
    source = Source(platform=platform, rooms=(room,) if room else (), authors=(author,))
    for side in texts:
        assert decider.turn(source, side, texts) == decided(rules, platform, room, author, side, texts)


@given(RULES, NAMES, TEXTS, TEXTS)
def test_of_an_unknown_author_the_least_is_kept_that_is_kept_of_anybody(
    rules: list[Rule], platform: str, user: str, answer: str
) -> None:
    decider = Decider(rules, ())
    texts: dict[Any, str] = {"user": user, "assistant": answer}
    unknown = Source(platform=platform, authors=None)
    anybody = [
        decider.turn(Source(platform=platform, authors=(author,)), "user", texts) for author in ("a", "b", "someone")
    ]
    levels = {LEVELS[ruling.action] for ruling in anybody}
    assert LEVELS[decider.turn(unknown, "user", texts).action] <= min(levels)
    assert LEVELS[decider.turn(unknown, "user", texts, most=True).action] >= max(levels)


@pytest.mark.parametrize(
    ("accounts", "source", "is_owner"),
    [
        ([], Source(platform="cli"), True),
        ([], Source(is_file=True), True),
        ([], Source(platform="api_server"), False),
        (["api_server"], Source(platform="api_server"), True),
        (["telegram:7"], Source(platform="telegram", authors=("7",)), True),
        (["telegram:7"], Source(platform="signal", authors=("7",)), False),
        (["telegram:7"], Source(platform="telegram", authors=("77",)), False),
        (["telegram:7"], Source(platform="telegram", authors=()), False),
        (["telegram:7"], Source(platform="telegram", authors=None), False),
        (["Telegram: 7 "], Source(platform="telegram", authors=("7",)), False),
        (["Signal:+49"], Source(platform="signal", authors=("uuid", "+49")), True),
    ],
)
def test_only_the_owner_is_kept_by_the_preset(
    accounts: list[str], source: Source, is_owner: bool, tmp_path: Path
) -> None:
    settings = load(tmp_path, {"HERMES_PGVECTOR_KEEP": "owner"})
    decider = Decider(settings.keep, accounts)
    assert (decider.entry(source, "text").action == "turns") == is_owner


@pytest.mark.parametrize(
    ("wanted", "actual", "holds"),
    [
        ("dm", "private", True), ("dm", "group", False), ("group", "channel", True), ("group", "dm", False),
        ("channel", "channel", True), ("channel", "group", False), ("group", "", False), ("dm", "", False),
    ],
)  # fmt: skip
def test_dm_means_all_private_chats_and_group_all_others(wanted: str, actual: str, holds: bool) -> None:
    decider = Decider([Rule(chat_type=wanted, action="none")], ())
    assert (decider.entry(Source(chat_type=actual), "text").action == "none") == holds


def test_a_rule_with_a_role_is_about_one_side_and_one_without_about_the_whole_turn() -> None:
    texts: dict[Any, str] = {"user": "The code is 4711.", "assistant": "I keep it."}
    source = Source()
    whole = Decider([Rule(pattern=r"\d{4}", action="none")], ())
    assert [whole.turn(source, side, texts).action for side in texts] == ["none", "none"]
    side = Decider([Rule(role="user", pattern=r"\d{4}", action="none")], ())
    assert [side.turn(source, name, texts).action for name in texts] == ["none", "turns"]
    assert side.entry(source, "The code is 4711.").action == "turns"


def test_a_hostile_pattern_on_a_hostile_text_ends() -> None:
    decider = Decider([Rule(pattern=r"(a+)+$|(a|aa)+x|(.*)*y", action="none")], ())
    assert decider.entry(Source(), "a" * 1_000_000 + "b").action == "turns"
    assert decider.entry(Source(), "A" * 1_000_000).action == "none"


@pytest.mark.parametrize(
    ("keep", "named"),
    [
        ([{"action": "turns"}, {"action": "never"}], ["rule 2", "action", "'never'", "turns"]),
        ([{"action": "none", "pattern": "(?=a)b"}], ["rule 1", "look-around"]),
        ([{"action": "none", "pattern": "a("}], ["rule 1", "unclosed group"]),
        ([{"action": "none", "pattern": "a{1000}{1000}{1000}"}], ["rule 1", "size limit"]),
        ([{"platfrom": "telegram", "action": "none"}], ["rule 1", "platfrom"]),
        ([{"author": "", "action": "turns"}], ["rule 1", "author", "at least 1 character"]),
        ([{"author": None, "action": "turns"}], ["rule 1", "author", "valid string"]),
        ([{"platform": "telegram"}], ["rule 1", "action", "required"]),
        ([{"role": "system", "action": "none"}], ["rule 1", "role", "'user'"]),
        (["none"], ["rule 1"]),
        ([{"action": "none"}] * 101, ["at most 100"]),
        ("mine", ["all, owner, asked"]),
        ({"action": "none"}, ["valid list"]),
    ],
)
def test_a_rule_that_cannot_be_read_stops_the_provider_and_is_named(
    keep: Any, named: list[str], tmp_path: Path
) -> None:
    (tmp_path / "pgvector").mkdir()
    (tmp_path / "pgvector" / "config.json").write_text(json.dumps({"keep": keep}))
    with pytest.raises(SettingsError) as raised:
        load(tmp_path, {})
    assert [word for word in ["keep", *named] if word not in str(raised.value)] == []


def test_numbers_are_ids_and_presets_are_rules(tmp_path: Path) -> None:
    rules = '[{"platform": "telegram", "room": -100123, "author": 7, "action": "none"}]'
    (rule,) = load(tmp_path, {"HERMES_PGVECTOR_KEEP": rules}).keep
    assert (rule.room, rule.author) == ("-100123", "7")
    assert load(tmp_path, {"HERMES_PGVECTOR_KEEP": "all"}).keep == load(tmp_path, {}).keep == []
    assert [rule.action for rule in load(tmp_path, {"HERMES_PGVECTOR_KEEP": "asked"}).keep] == ["entries"]
