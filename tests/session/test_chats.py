"""Whose theme a session has: of a chat without a session key, and of a key that looks like a person."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import past_sessions
import psycopg
import pytest
from commandline import hermes_pgvector
from host_record import Record
from hypothesis import assume, given
from hypothesis import strategies as st
from logins import with_and_without_row_security
from spools import die

from hermes_memory_pgvector.errors import SettingsError, Unavailable
from hermes_memory_pgvector.hosts import state_db
from hermes_memory_pgvector.hosts.tool_calls import read_turn
from hermes_memory_pgvector.model import Caller, Event, SessionEnded, TurnTaken
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session import themes
from hermes_memory_pgvector.session.chats import PERSONAL
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.home_context import HomeContext
from hermes_memory_pgvector.session.identity import WITHOUT_CHATS, Identity
from hermes_memory_pgvector.session.outages import REFUSED
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text import theme_names
from hermes_memory_pgvector.tools import toolset

KEY = b"a key of the operator"
IDS = st.from_regex(r"[A-Za-z0-9+@!.$_-]{1,20}", fullmatch=True)
MAIL, PHONE = "alice@example.com", "+49 170 5551234"


def theme_of(session_key: str | None = None, /, *, key: bytes = KEY, hashes: bool = False, **told: str) -> str:
    return themes.theme_of(Identity(**told), session_key, aliases={}, person_key=key, hashes_personal=hashes)


def header(key: str, person_key: bytes = KEY) -> str:
    return theme_of(key=person_key, hashes=True, gateway_session_key=key, platform="api_server")


@given(st.sampled_from(["", "telegram", "sms", "odd:one"]), IDS, IDS, st.booleans(), st.booleans())
def test_two_chats_or_users_without_a_session_key_never_share_a_theme(
    platform: str, one: str, other: str, with_user: bool, with_chat: bool
) -> None:
    assume(one != other and (with_user or with_chat))
    found = {
        theme_of(platform=platform, user_id=name * with_user, chat_id=name * with_chat, agent_identity="default")
        for name in (one, other)
    }
    assert len(found) == 2
    assert all(map(theme_names.reserved, found))


@pytest.mark.parametrize(("kind", "chat"), [("dm", "4917055512"), ("group", "-100777"), ("private", "42"), ("", "7")])
def test_a_task_in_the_background_has_the_theme_of_its_chat(kind: str, chat: str) -> None:
    told = {"platform": "telegram", "chat_type": kind, "chat_id": chat, "user_id": "4917055512"}
    key = f"agent:main:telegram:{kind or 'dm'}:{chat}"
    assert theme_of(**told) == theme_of(**told, gateway_session_key=key)


@pytest.mark.parametrize(
    ("platform", "kind", "chat"),
    [("yuanbao", "dm", "direct:alice"), ("yuanbao", "group", "group:77"), ("webhook", "webhook", "webhook:ci:42"),
     ("msgraph_webhook", "webhook", "msgraph:sub-1")],
)  # fmt: skip
def test_a_key_alone_names_the_same_chat_as_with_its_id(platform: str, kind: str, chat: str) -> None:
    key = f"agent:main:{platform}:{kind}:{chat}"
    named = theme_of(platform=platform, gateway_session_key=key, chat_id=chat)
    assert theme_of(platform=platform, gateway_session_key=key) == named
    assert theme_of(key, platform=platform, gateway_session_key=f"{key}0", chat_id=f"{chat}0") == named


@pytest.mark.parametrize("platform", sorted(WITHOUT_CHATS))
def test_a_terminal_and_a_client_of_the_api_have_the_theme_of_the_home(platform: str) -> None:
    assert theme_of(platform=platform, user_id="alice", chat_id="1") == "default"


def context(home: Path, **changed: Any) -> HomeContext:
    return HomeContext(
        Settings(**changed), home, home / "pgvector",
        home_id=lambda: "h", accept=lambda _: True, change_entry=lambda *_, **__: True,
    )  # fmt: skip


def test_the_key_of_the_running_request_is_taken_for_its_own_chat_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = context(tmp_path)
    told = Identity(platform="slack", chat_type="dm", chat_id="D0456EFGH", user_id="U1")
    with_team = "agent:main:slack:dm:T0123ABCD:D0456EFGH"

    def found(running: str) -> str:
        monkeypatch.setattr("hermes_memory_pgvector.session.home_context.running", lambda _: running)
        return at.located(told).gateway_session_key

    assert found(with_team) == with_team
    own = "agent:main:slack:dm:D0456EFGH"
    for other in ("", "garden", "agent:main:slack:dm:T0123ABCD:D9999", "agent:main:slack:group:C1:D0456EFGH",
                  "agent:main:telegram:dm:D0456EFGH"):  # fmt: skip
        assert found(other) == own


@pytest.mark.parametrize("branched", [True, False])
def test_a_session_that_goes_on_from_one_off_the_record_is_so_when_only_the_record_of_the_host_tells_it(
    branched: bool, tmp_path: Path
) -> None:
    """No hook tells the agents of a messenger of `/branch`."""
    record, at = Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack", chat_id="D1", user_id="U1")
    off, on, said = ("off the record", "Understood."), ("on the record", "Good."), ("Which tap?", "The red one.")

    def talk(session: str) -> Conversation:
        return Conversation(at, chat, session, "primary")

    def is_off(session: str) -> bool:
        return talk(session).caller("garden").off_record

    def go_on(session: str, *copied: tuple[str, str]) -> None:
        ends = {"model_config": '{"_branched_from": "s"}'} if branched else {"end_reason": "compression"}
        record.begin(session, "s", **ends)
        for turn in copied:
            record.say(session, turn)

    record.begin("s", "")
    go_on("before", said)
    talk("s").open_turn(off[0])
    go_on("copied", said, off, said)
    go_on("summarised", said)
    assert [is_off(session) for session in ("before", "copied", "summarised")] == [False, True, True]
    # Nobody speaks in the session before it.
    go_on("silent", said)
    record.begin("next", "silent", model_config='{"_branched_from": "silent"}')
    record.say("next", said)
    assert is_off("next")
    talk("summarised").open_turn(on[0])
    record.say("summarised", on)
    assert not is_off("summarised")
    # It is compressed, and the message that put it on the record is in a summary.
    record.begin("later", "summarised", end_reason="compression")
    record.say("later", said)
    assert not is_off("later")
    talk("s").open_turn(on[0])
    go_on("after", said, off, said, on)
    assert [is_off(session) for session in ("after", "copied", "before")] == [False, True, False]


@pytest.mark.parametrize(("reason", "off"), [("cli_close", True), ("session_reset", False)])
def test_a_chat_stays_off_the_record_when_a_terminal_that_went_on_with_its_session_is_left(
    reason: str, off: bool, tmp_path: Path
) -> None:
    """Hosts then end the session, and begin another one with the next message."""
    key, record, at = "agent:main:slack:dm:D1", Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key=key, platform="slack", chat_id="D1", user_id="U1")
    record.begin("s1", "", key=key)
    Conversation(at, chat, "s1", "primary").open_turn("off the record")
    record.begin("s2", "s1", end_reason=reason, key=key)
    record.forget_parent("s2")
    assert Conversation(at, chat, "s2", "primary").caller("garden").off_record == off
    Conversation(at, chat, "s2", "primary").open_turn("on the record")
    record.begin("s3", "s2", end_reason="cli_close", key=key)
    record.forget_parent("s3")
    assert not Conversation(at, chat, "s3", "primary").caller("garden").off_record


@pytest.mark.parametrize("off", [True, False])
def test_what_is_delivered_into_a_session_switches_none_that_goes_on_from_it(off: bool, tmp_path: Path) -> None:
    """Hosts merge it with what a person says after it, when they copy it into a branch."""
    record, at = Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack", chat_id="D1", user_id="U1")
    job, words = "[Cron delivery: rain]\n", ("off the record", "on the record")
    record.begin("s", "")
    for said in words if not off else words[:1]:
        Conversation(at, chat, "s", "primary").open_turn(said)
        record.say("s", (f"{job}It rains.", ""))
        record.say("s", (said, "Good."))
    record.say("s", (f"{job}{words[off]}", ""))
    for session, last in (("branch", f"{job}{words[off]}"), ("merged", f"{job}{words[off]}\n\nWhich tap?")):
        record.begin(session, "s", model_config='{"_branched_from": "s"}')
        for said in words if not off else words[:1]:
            record.say(session, (f"{job}It rains.\n\n{said}", "Good."))
        record.say(session, (last, ""))
        assert Conversation(at, chat, session, "primary").caller("garden").off_record == off


@pytest.mark.parametrize("off", [True, False])
def test_a_branch_of_a_session_that_a_correction_took_off_the_record_is_so(off: bool, tmp_path: Path) -> None:
    """One host appends it to the result of a tool, where anybody may have written it: the mark counts."""
    record, at = Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack", chat_id="D1", user_id="U1")
    record.begin("s", "")
    before = Conversation(at, chat, "s", "primary")
    before.open_turn("on the record")
    if off:
        at.off_record.switch_late("s", before.session.marks(before.session.theme()), "off the record")
    record.begin("branch", "s", model_config='{"_branched_from": "s"}')
    record.say("branch", ("off the record", "Understood."))
    record.say("branch", ("on the record", "Good."))
    steer = "[OUT-OF-BAND USER MESSAGE from the user]\n{}\n[/OUT-OF-BAND USER MESSAGE]"
    record.result("branch", f"a page\n\n{steer.format('off the record')}")
    record.result("branch", f"a page\n\n{steer.format('in feet, please')}")

    def is_off() -> bool:
        return Conversation(at, chat, "branch", "primary").caller("garden").off_record

    assert is_off() == off
    Conversation(at, chat, "branch", "primary").open_turn("on the record")
    record.say("branch", ("on the record", "Good."))
    assert not is_off()


@pytest.mark.parametrize("until", ["the turn begins", "it ends"])
def test_a_session_goes_on_off_the_record_when_the_host_locks_its_record(tmp_path: Path, until: str) -> None:
    record, at, turn = (
        Record(tmp_path),
        context(tmp_path),
        ("What is my word at the bank?", "It is swordfish, you said."),
    )
    chat, taken = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack"), list[Any]()
    at.accept = lambda event: taken.append(event) or True
    record.begin("s", "")
    Conversation(at, chat, "s", "primary").open_turn("off the record")
    record.begin("compressed", "s", end_reason="compression")
    with record.locked():
        one = Conversation(at, chat, "compressed", "primary")
        if until == "it ends":
            one.open_turn(turn[0])
    if until == "the turn begins":
        one.open_turn(turn[0])
    one.take_turn(*turn)
    assert one.session.is_off(one.session.theme())
    assert taken == []


def test_a_session_that_is_put_on_the_record_while_the_host_locks_its_record_stays_on_it(tmp_path: Path) -> None:
    record, at = Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack")
    record.begin("s", "")
    Conversation(at, chat, "s", "primary").open_turn("off the record")
    record.begin("compressed", "s", end_reason="compression")
    with record.locked():
        one = Conversation(at, chat, "compressed", "primary")
        one.open_turn("on the record")
    one.take_turn("on the record", "Good.")
    assert not one.session.is_off(one.session.theme())


def test_the_turns_of_a_session_off_the_record_make_no_marks_where_a_message_tells_of_it(tmp_path: Path) -> None:
    record, at = Record(tmp_path), context(tmp_path)
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack")
    record.begin("s", "")
    record.say("s", ("off the record", "Good."))
    Conversation(at, chat, "s", "primary").open_turn("off the record")
    record.begin("compressed", "s", end_reason="compression")
    one = Conversation(at, chat, "compressed", "primary")
    known = at.off_record.names()
    for number in range(3):
        one.open_turn(f"What is the word {number}?")
        one.take_turn(f"What is the word {number}?", f"It is number {number}, you said.")
    assert one.session.is_off(one.session.theme())
    assert at.off_record.names() == known


def test_a_replay_lists_the_marks_once_however_many_turns_and_sessions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, at = Record(tmp_path), context(tmp_path)
    record.begin("s0", "")
    for number in range(5):
        record.begin(f"s{number + 1}", f"s{number}", end_reason="compression")
    one, looked_up = Conversation(at, Identity(), "s5", "primary"), list[str]()
    is_marked = type(at.off_record).__contains__
    monkeypatch.setattr(
        type(at.off_record), "__contains__", lambda marks, name: looked_up.append(name) or is_marked(marks, name)
    )
    said = [(role, f"{role} number {number} of a long talk") for number in range(50) for role in ("user", "assistant")]
    one.replay.end([{"role": role, "content": text} for role, text in said])
    assert len(looked_up) < 10


def test_a_turn_whose_process_was_killed_stays_off_the_record_by_a_correction_that_the_host_has_not_recorded(
    tmp_path: Path,
) -> None:
    record, taken = Record(tmp_path), list[Any]()
    on, corrected, cut, again, then = (
        (question, f"{answer} as you have asked me to.")
        for question, answer in [
            ("on the record", "I keep it"), ("Which tap drips?", "I found the tap"),
            ("What is my word?", "It is swordfish"), ("on the record", "I keep it again"),
            ("Which key is new?", "It is the blue key"),
        ]
    )  # fmt: skip

    def process() -> Conversation:
        at = context(tmp_path)
        at.accept = lambda event: taken.append(event) or True
        return Conversation(at, Identity(), "s", "primary")

    one, steered = process(), "[OUT-OF-BAND USER MESSAGE]\noff the record please\n[/OUT-OF-BAND USER MESSAGE]"
    record.begin("s", "")
    for question, answer in (on, corrected):
        one.open_turn(question)
        live = [{"role": "user", "content": question}, {"role": "assistant", "tool_calls": [{"id": "1"}]}]
        live += [{"role": "tool", "tool_call_id": "1", "content": f"a page\n\n{steered if question != on[0] else ''}"}]
        one.take_turn(question, answer, record=read_turn([*live, {"role": "assistant", "content": answer}], question))
        record.say("s", (question, answer))
    one.open_turn(cut[0])
    record.say("s", cut)
    other = process()
    assert other.session.is_off(other.session.theme())
    other.open_turn(again[0])
    taken.clear()
    pairs = (on, corrected, cut, again, then)
    sides = [(role, text) for pair in pairs for role, text in zip(("user", "assistant"), pair, strict=True)]
    other.replay.end([{"role": role, "content": text} for role, text in sides])
    assert cut[1] not in str(taken)
    assert then[1] in str(taken)


def test_a_branch_is_off_the_record_by_a_correction_that_the_host_has_not_recorded(tmp_path: Path) -> None:
    record, at, on = Record(tmp_path), context(tmp_path), ("on the record", "Good.")
    chat = Identity(gateway_session_key="agent:main:slack:dm:D1", platform="slack", chat_id="D1", user_id="U1")

    def is_off() -> bool:
        return Conversation(at, chat, "branch", "primary").caller("garden").off_record

    record.begin("s", "")
    before = Conversation(at, chat, "s", "primary")
    before.open_turn(on[0])
    record.say("s", on)
    at.off_record.switch_late("s", before.session.marks(before.session.theme()), "off the record")
    record.begin("branch", "s", model_config='{"_branched_from": "s"}')
    record.say("branch", on)
    assert is_off()
    Conversation(at, chat, "branch", "primary").open_turn(on[0])
    record.say("branch", on)
    assert not is_off()


def test_an_agent_of_a_gateway_that_only_compresses_a_session_has_its_theme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, key = context(tmp_path), "agent:main:slack:dm:T0123ABCD:D0456EFGH"
    columns = "session_key, chat_id, chat_type, thread_id, user_id"
    with closing(sqlite3.connect(tmp_path / "state.db")) as record:
        record.execute(f"create table sessions (id, source, {columns})")
        record.execute("insert into sessions values ('s1', 'slack', ?, 'D0456EFGH', 'dm', null, 'U1')", [key])
        record.execute("insert into sessions values ('s2', 'cli', null, null, null, null, null)")
        record.commit()
    chat = at.theme(Identity(gateway_session_key=key, platform="slack", chat_id="D0456EFGH", user_id="U1"), None)

    def theme(session: str) -> str | None:
        return Conversation(at, Identity(platform="cli"), session, "primary").session.allowed_theme()

    # A terminal that resumes the session is not the person.
    assert theme("s1") == "default"
    monkeypatch.setitem(sys.modules, "gateway.run", types.SimpleNamespace(_gateway_runner_ref=object))
    assert (theme("s1"), theme("s2"), theme("unknown")) == (chat, "default", "default")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as record:
        record.execute("begin exclusive")
        with pytest.raises(Unavailable, match="is locked"):
            theme("s1")
    assert theme("s1") == chat


def test_a_terminal_that_goes_on_with_a_session_of_a_chat_repeats_nothing_of_it_and_is_off_the_record_with_it(
    tmp_path: Path,
) -> None:
    """What is said in it belongs to the home, what was said in the chat to the person."""
    key, repeated = "agent:main:slack:dm:D0456EFGH", list[Event]()
    at = HomeContext(
        Settings(), tmp_path, tmp_path / "pgvector", home_id=lambda: "h", change_entry=lambda *_, **__: True,
        accept=lambda event: not repeated.append(event),
    )  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "state.db")) as record:
        of_chat = "session_key, chat_id, chat_type, thread_id, user_id"
        record.execute(f"create table sessions (id, source, parent_session_id, end_reason, model_config, {of_chat})")
        branched = '{"_branched_from": "s1"}'
        for row in (("s1", "slack", "", "", key), ("s2", "cli", "s1", branched, ""), ("s3", "cli", "", "", "")):
            record.execute("insert into sessions values (?, ?, ?, '', ?, ?, '', '', '', '')", row)
        record.commit()

    def terminal(session: str) -> Conversation:
        return Conversation(at, Identity(platform="cli"), session, "primary")

    said = ("Who keeps the key of the boathouse in winter?", "Ines keeps the key of the boathouse until the spring.")
    told = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
    for session in ("s1", "s2", "s3"):
        one = terminal(session)
        one.replay.end(told)
        one.open_turn(said[0])
        assert one.replay.checkpoint(told)
    assert [event.session_id for event in repeated if isinstance(event, SessionEnded)] == ["s3", "s3"]
    chat = Conversation(at, Identity(gateway_session_key=key, platform="slack"), "s1", "primary")
    for message, off in (("off the record", True), ("on the record", False)):
        chat.open_turn(message)
        assert [terminal(session).caller("default").off_record for session in ("s1", "s3")] == [off, False]
    terminal("s1").open_turn("off the record")
    assert chat.caller(chat.session.theme()).off_record


def test_whose_session_a_terminal_goes_on_with_is_not_known_when_one_query_has_met_a_lock(tmp_path: Path) -> None:
    record = past_sessions.Record(tmp_path)
    record.say("s1", 1, source="api_server", end_reason="compression")
    record.say("s2", 2, parent_session_id="s1")
    at = context(tmp_path)
    talk = Conversation(at, Identity(platform="cli"), "s2", "primary")
    with closing(sqlite3.connect(record.path, isolation_level=None, check_same_thread=False)) as host:
        host.execute("begin exclusive")
        ends = threading.Timer(1.4 * state_db.WAIT_S_MAX, host.execute, ["commit"])
        ends.start()
        with suppress(Unavailable):
            assert talk.session.is_of_chat()
        ends.join()
    assert talk.session.is_of_chat()


def test_a_terminal_reads_each_session_of_a_client_once_when_nobody_has_switched_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many long sessions would be read with all those before it."""
    record, read, select = past_sessions.Record(tmp_path), Counter[str](), sqlite3.connect
    for number in range(8):
        parent = f"s{number - 1}" if number else ""
        record.say(f"s{number}", number, parent_session_id=parent, source="api_server", end_reason="compression")

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened = select(*args, **kwargs)
        opened.set_trace_callback(
            lambda said: read.update(re.findall(r"from messages where session_id = '(s\d)'", said))
        )
        return opened

    monkeypatch.setattr(sqlite3, "connect", traced)
    assert not Conversation(context(tmp_path), Identity(platform="cli"), "s7", "primary").caller("default").off_record
    assert read == {f"s{number}": 1 for number in range(8)}


@pytest.mark.parametrize("key", ["garden", ""])
def test_a_terminal_goes_on_with_a_session_as_its_client_has_left_it(tmp_path: Path, key: str) -> None:
    """Clients have marks of their own, and one host does not record their session keys."""
    record = past_sessions.Record(tmp_path)
    record.say("s1", 1, source="api_server", session_key=key, end_reason="compression")
    record.say("s2", 2, source="api_server", session_key=key, parent_session_id="s1")
    record.say("s3", 3, source="api_server", session_key=key)

    def off() -> list[bool]:
        at, terminal = context(tmp_path), Identity(platform="cli")
        talks = (Conversation(at, terminal, session, "primary") for session in ("s1", "s2", "s3"))
        return [talk.caller("default").off_record for talk in talks]

    assert off() == [False, False, False]
    record.add("s1", ("user", "off the record"), ("assistant", "Noted."))
    assert off() == [True, True, False]
    record.add("s3", ("user", "off the record"), ("user", "on the record"))
    assert off() == [True, True, False]


def test_what_a_compression_keeps_of_a_terminal_that_handed_its_session_to_a_chat_is_not_of_the_chat(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    """It keeps the first messages, and puts the note of the handoff into its summary."""
    home, chat, later = (
        (f"Where is the key of the {place} kept?", f"It hangs behind the door of the {place}.")
        for place in ("boathouse", "library", "workshop")
    )
    note = '[Session was just handed off from CLI ("keys") to this channel.]'
    record.begin("s1", "")
    for turn in (home, home, (note, "I am here."), chat):
        record.say("s1", turn)
    record.begin("s2", "s1", end_reason="compression")
    summary = {"role": "user", "content": "[CONTEXT COMPACTION] There was talk of keys."}
    head, *_ = transcripts = [
        [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)]
        for said in (home, chat, later)
    ]  # fmt: skip
    runtime, key = start(), "agent:main:slack:group:C1"
    group = Identity(gateway_session_key=key, platform="slack", chat_type="group", chat_id="C1")
    Conversation(runtime.context, group, "s2", "primary").replay.end(
        [*head, head[0], summary, *transcripts[1], *transcripts[2], *head]
    )
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        rows = connection.execute("select content from conversations order by id").fetchall()
    assert [content for (content,) in rows] == [*chat, *later, *home]


@pytest.mark.parametrize("key", [MAIL, PHONE, "telegram:123456789", "@alice:matrix.org"])
def test_a_key_that_looks_like_a_person_becomes_a_hash_that_no_other_theme_reads(key: str) -> None:
    theme = header(key)
    assert theme.startswith(PERSONAL)
    assert theme_names.reserved(theme)
    assert theme == header(f" {key.upper()}\u200b") != header(key, b"another key")
    assert theme_of(gateway_session_key=key, platform="api_server") == theme_names.normalise(key)
    with pytest.raises(SettingsError, match="HERMES_PGVECTOR_PERSON_KEY"):
        header(key, b"")


def test_a_phone_number_is_one_person_and_an_alias_names_them(tmp_path: Path) -> None:
    assert header(PHONE) == header("0049-170-5551234") == header("tel:+491705551234")
    assert len({header(PHONE), header(MAIL), header("+49 170 5551235")}) == 3
    assert header("billing") == "billing"
    at = context(tmp_path, hash_personal_keys=True, theme_aliases={MAIL: "anna"})
    assert at.theme(Identity(gateway_session_key="Alice@Example.com", platform="api_server"), None) == "anna"


@pytest.mark.parametrize(("names", "may"), [([], True), (["ops"], False), (["ops", "dm-key-*"], True), ([MAIL], False)])
def test_a_hashed_key_may_be_used_only_where_a_pattern_lists_it(tmp_path: Path, names: list[str], may: bool) -> None:
    at = context(tmp_path, hash_personal_keys=True, allowed_themes=names)
    talk = Conversation(at, Identity(gateway_session_key=MAIL, platform="api_server"), "s", "primary")
    assert (talk.session.allowed_theme() is not None) == may
    chat = Identity(gateway_session_key="agent:main:telegram:dm:1", platform="telegram")
    assert Conversation(at, chat, "s", "primary").session.allowed_theme()


def test_homes_with_the_same_key_of_persons_name_a_person_alike_and_a_provisional_name_is_renamed(
    tmp_path: Path,
) -> None:
    identity, agreed = Identity(gateway_session_key=MAIL, platform="api_server"), "5e" * 32
    one, two = (context(tmp_path / name, hash_personal_keys=True) for name in ("one", "two"))
    provisional = one.theme(identity, None)
    event = TurnTaken(theme=provisional, session_id="s", user="u", assistant="a")
    for at in (one, two):
        at.person_key.settle(lambda offer: agreed)
    assert one.theme(identity, None) == two.theme(identity, None) == one.person_key.renamed(event).theme != provisional


def test_a_key_that_looks_like_a_person_is_warned_of_once_and_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for hashes, warnings in ((True, 0), (False, 1)):
        at = context(tmp_path / str(hashes), hash_personal_keys=hashes)
        for key in (MAIL, PHONE, MAIL, "billing"):
            at.theme(Identity(gateway_session_key=key, platform="api_server"), None)
        assert [record.getMessage().count("looks like a mail address") for record in caplog.records] == [1] * warnings
    assert "hash_personal_keys true" in caplog.text
    assert "alice" not in caplog.text.lower()


@pytest.fixture
def start(tmp_path: Path, agents_database: str) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {
            "dsn": agents_database,
            "embed_on_write": False,
            "batch_linger_s": 0,
            "recall_budget_s": 20,
            **changed,
        }
        running.append(acquire(Settings(**values), tmp_path))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def read(runtime: Runtime, theme: str, scope: str) -> set[str]:
    caller = Caller(theme=theme, session_id="s")
    answer = json.loads(toolset.call(runtime, "recall_conversation", {"query": "the pump", "scope": scope}, caller))
    return {hit["theme"] for hit in answer.get("hits", ())}


@with_and_without_row_security
def test_patterns_of_allowed_themes_decide_what_is_stored_and_read(start: Callable[..., Runtime]) -> None:
    person, names = "dm-telegram-0123456789abcdef", ("ops", "project/a", "project/b.c", "projects", "red", "o?s")
    everything = start()
    for theme in (*names, person):
        assert everything.accept(TurnTaken(theme=theme, session_id="s", user=f"the pump of {theme}", assistant=""))
    assert everything.writer.flush(20)
    runtime = start(allowed_themes=["ops", "Project/*"], cross_theme_recall="all")
    allowed = {"ops", "project/a", "project/b.c"}
    assert read(runtime, "ops", "all") == read(runtime, "project/a", "all") == allowed
    assert read(runtime, "ops", "project/a") == {"project/a"}
    assert read(runtime, person, "all") == allowed | {person}
    for other in ("projects", "red", "o?s", "project", person):
        assert read(runtime, "ops", other) == set()
        assert themes.allowed(other, runtime.settings.allowed_themes) == (other == person)


@with_and_without_row_security
def test_a_refused_theme_is_told_once_a_session_and_what_was_accepted_before_is_stored(
    start: Callable[..., Runtime], database: str, caplog: pytest.LogCaptureFixture, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    earlier = Spool(tmp_path / "pgvector" / "spool", bytes_max=1 << 20, window_max=10)
    assert earlier.append(TurnTaken(theme="garden", session_id="s", user="where is the rake?", assistant=""))
    die(earlier)
    runtime = start(allowed_themes=["ops*"])
    client = Identity(gateway_session_key=PHONE, platform="api_server")
    told = []
    for session in ("s1", "s2", "s1"):
        talk = Conversation(runtime.context, client, session, "primary")
        assert talk.session.allowed_theme() is None
        talk.take_turn("which pump is broken and why is that?", "the blue one, because of its valve", session)
        told.append([notice.text for notice in talk.notices("which pump is broken?")])
    assert told == [[REFUSED], [REFUSED], []]
    assert runtime.writer.flush(20, orphans=True)
    with psycopg.connect(database) as connection:
        assert connection.execute("select distinct agent_identity from conversations").fetchall() == [("garden",)]
    assert [letter.reason for letter in runtime.dead_letters] == [themes.NOT_ALLOWED] * 3
    assert sum("is not in allowed_themes" in record.getMessage() for record in caplog.records) == 1
    assert "5551234" not in caplog.text
    outcome = hermes_pgvector("--home", str(tmp_path), "status")
    assert "1 theme not in allowed_themes" in outcome.out
