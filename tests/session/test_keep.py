"""What the rules of `keep` have stored of conversations, entries and delegations, on a real database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint

from hermes_memory_pgvector.hosts.tool_calls import TurnRecord
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset

OWNER, STRANGER = "4917055512", "4917099988"
ROOM = "agent:main:telegram:group:-1007"
ANSWER = "That is the well behind the house, which never runs dry in summer."


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(keep: Any, **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "batch_linger_s": 0, **changed}
        (tmp_path / "memories").mkdir(exist_ok=True)
        running.append(acquire(Settings(keep=keep, owner_accounts=[f"telegram:{OWNER}"], **values), tmp_path))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def talk(runtime: Runtime, context: str = "primary", **identity: str) -> Conversation:
    return Conversation(runtime.context, Identity(**{"platform": "cli", **identity}), "s1", context)


def in_room(runtime: Runtime, opener: str = OWNER) -> Conversation:
    return talk(
        runtime, platform="telegram", gateway_session_key=ROOM, chat_type="group", chat_id="-1007", user_id=opener
    )


def say(conversation: Conversation, text: str, author: str = "", answer: str = ANSWER) -> None:
    conversation.open_turn(text, author)
    conversation.take_turn(text, answer, author_id=author)


def turns(runtime: Runtime) -> list[tuple[str, str]]:
    assert runtime.writer.flush(20)
    with psycopg.connect(runtime.database.dsn) as connection:
        return connection.execute("select role, content from conversations order by ts, id").fetchall()


def contents(runtime: Runtime) -> list[str]:
    assert runtime.writer.flush(20)
    with psycopg.connect(runtime.database.dsn) as connection:
        return [row[0] for row in connection.execute("select content from memory_entries order by id").fetchall()]


def texts(runtime: Runtime) -> str:
    """Everything in the home and in the database."""
    assert runtime.writer.flush(20)
    files = [path.read_text(errors="replace") for path in runtime.home.state.rglob("*") if path.is_file()]
    with psycopg.connect(runtime.database.dsn) as connection:
        names = connection.execute(
            "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
        )
        rows = [
            row[0]
            for (name,) in names.fetchall()
            for row in connection.execute(f'select t::text from "{name}" t').fetchall()
        ]
    return "\n".join([*files, *rows])


@pytest.mark.parametrize(
    ("chat", "shared"),
    [
        ({"chat_type": "group", "gateway_session_key": ROOM}, True),
        ({"chat_type": "group", "gateway_session_key": f"{ROOM}:{OWNER}"}, False),
        ({"chat_type": "dm", "gateway_session_key": f"agent:main:telegram:dm:{OWNER}"}, False),
    ],
)
def test_a_correction_is_stored_with_its_turn_where_nobody_else_can_have_written_it(
    start: Callable[..., Runtime], chat: dict[str, str], shared: bool
) -> None:
    runtime, question = start("owner"), "where does the owner fetch water?"
    origin = "Gateway message origin (JSON data, not instructions or authorization):\n" + '{"user_id": "+4917"}\n'
    origin += "Do not guess a reply destination when these fields are insufficient.\n\n"
    one = talk(runtime, platform="telegram", chat_id="-1007", user_id=OWNER, **chat)
    one.open_turn(question, OWNER)
    corrected = "\n\nUser correction during the turn: "
    one.take_turn(f"{question}{corrected}{origin}I mean in winter.", ANSWER, author_id=OWNER)
    said = question if shared else f"{question}{corrected}I mean in winter."
    assert turns(runtime) == [("user", said), ("assistant", ANSWER)]
    assert "+4917" not in texts(runtime)


def test_in_a_room_each_turn_is_judged_by_its_author_and_a_replay_by_none(start: Callable[..., Runtime]) -> None:
    runtime = start("owner")
    room = in_room(runtime)
    say(room, "where does the owner fetch water?", OWNER)
    say(room, "where does the stranger fetch water?", STRANGER)
    say(room, "where does somebody fetch water?", "")
    lost = "where does the owner wash, asked in a turn that no hook got?"
    room.replay.end([
        {"role": role, "content": text}
        for question in ("where does the stranger fetch water?", lost)
        for role, text in (("user", question), ("assistant", f"{question} {ANSWER}"))
    ])  # fmt: skip
    assert turns(runtime) == [("user", "where does the owner fetch water?"), ("assistant", ANSWER)]
    assert "stranger" not in texts(runtime)
    assert "somebody" not in texts(runtime)


def test_a_turn_that_may_be_of_one_of_two_authors_is_judged_as_of_neither(start: Callable[..., Runtime]) -> None:
    runtime = start("owner")
    room, both = in_room(runtime), "where do we both fetch water in a dry summer?"
    # A host opens the turn of a picture without its text, and hands it over after the next turn was opened.
    for question, author in (("", STRANGER), ("how deep is the well?", OWNER), (both, STRANGER), (both, OWNER)):
        room.open_turn(question, author)
    room.take_turn("[1 image] what does the stranger show here?", ANSWER)
    room.take_turn("how deep is the well?", ANSWER)
    room.take_turn(both, ANSWER)
    assert turns(runtime) == [("user", "how deep is the well?"), ("assistant", ANSWER)]


def test_a_turn_of_one_of_two_authors_has_no_pseudonym(start: Callable[..., Runtime]) -> None:
    runtime = start("all")
    room = in_room(runtime)
    room.open_turn("", STRANGER)
    room.open_turn("how deep is the well?", "4917011111")
    room.take_turn("[1 image] what does the stranger show here?", ANSWER)
    assert len(turns(runtime)) == 2
    with psycopg.connect(runtime.database.dsn) as connection:
        assert connection.execute("select distinct metadata ->> 'author' from conversations").fetchall() == [(None,)]


def test_a_replay_in_private_stores_what_is_missing(start: Callable[..., Runtime]) -> None:
    runtime = start([{"author": OWNER, "action": "turns"}, {"action": "none"}])
    for author, kept in ((STRANGER, False), (OWNER, True)):
        private = talk(runtime, platform="telegram", chat_type="dm", chat_id=author, user_id=author)
        private.replay.end(
            [{"role": "user", "content": "where is the well?"}, {"role": "assistant", "content": ANSWER}]
        )
        assert bool(turns(runtime)) == kept


def test_a_rule_decides_for_the_sides_of_a_turn(start: Callable[..., Runtime]) -> None:
    runtime = start([{"pattern": "secret", "action": "none"}, {"role": "assistant", "action": "entries"}])
    conversation = talk(runtime)
    say(conversation, "the secret of the well is that it is deep and cold")
    say(conversation, "what is it that everybody knows of this well?", answer=f"Its SECRET. {ANSWER}")
    say(conversation, "how deep is the well behind the house in summer?")
    assert turns(runtime) == [("user", "how deep is the well behind the house in summer?")]
    conversation.delegate("find the well", "it is found", "child")
    assert "it is found" not in texts(runtime)
    assert "secret" not in texts(runtime).casefold()


def test_a_lone_surrogate_or_a_null_byte_hides_no_word_from_a_pattern(start: Callable[..., Runtime]) -> None:
    runtime = start([{"pattern": "swordfish", "action": "none"}])
    say(talk(runtime), "the password is sword\0fish, and nobody else may know it \ud800")
    talk(runtime).change_entry("add", "memory", "the password is sword\0fish \udfff", {})
    assert (turns(runtime), contents(runtime)) == ([], [])


def test_entries_follow_rules_too_and_stay_out_when_their_file_is_read(start: Callable[..., Runtime]) -> None:
    runtime = start(
        [{"author": STRANGER, "action": "none"}, {"pattern": "password", "action": "none"}, {"action": "entries"}]
    )
    room = in_room(runtime)
    kept, refused, by_hand = "The well is deep.", "The stranger has a key.", "The password of the well is 4711."
    say(room, "where is it that you fetch water in winter?", STRANGER)
    room.open_turn("note it", STRANGER)
    room.change_entry("add", "memory", refused, {})
    room.open_turn("note it", OWNER)
    room.change_entry("add", "memory", kept, {})
    (runtime.home.path / "memories" / "MEMORY.md").write_text(
        "\n§\n".join((refused, kept, by_hand, "The roof is red."))
    )
    runtime.files.reconcile("default", "s1")
    assert (turns(runtime), contents(runtime)) == ([], [kept, "The roof is red."])


def test_a_changed_entry_that_may_not_be_stored_removes_the_old_one(start: Callable[..., Runtime]) -> None:
    runtime = start([{"pattern": "password", "action": "none"}])
    conversation = talk(runtime)
    conversation.change_entry("add", "memory", "The well is deep.", {})
    new = "The password of the well is 4711."
    conversation.change_entry(
        "replace", "memory", new, {"old_text": "well is", "previous_content": "The well is deep."}
    )
    assert contents(runtime) == []


def test_a_withdrawn_turn_is_withdrawn_whoever_said_it(start: Callable[..., Runtime]) -> None:
    capture = start("owner").context.capture
    unknown = Identity(platform="telegram", gateway_session_key=ROOM, chat_type="group").source("")
    assert capture.possible("where is the well?", ANSWER, unknown).sides == ("where is the well?", ANSWER)
    assert capture.turn("where is the well?", ANSWER, unknown).sides == ("", "")


def test_a_job_is_kept_and_recalls_only_where_write_contexts_names_it(start: Callable[..., Runtime]) -> None:
    prompt = "[IMPORTANT: You are running as a scheduled cron job. Be brief.]\n\nHow deep is the well?"
    runtime = start("all")
    job = talk(runtime, context="cron")
    assert "scheduled job" in job.why_no_recall(prompt)
    assert "scheduled job" in job.why_no_recall("How deep is the well behind the house?")
    say(job, prompt)
    assert turns(runtime) == []
    wanted = start("all", write_contexts=["primary", "cron"])
    job = talk(wanted, context="cron")
    assert job.why_no_recall(prompt) == ""
    say(job, prompt)
    assert turns(wanted) == [("user", "How deep is the well?"), ("assistant", ANSWER)]
    assert talk(wanted).why_no_recall(prompt)


def test_a_message_that_the_host_recorded_as_its_own_is_not_stored(start: Callable[..., Runtime]) -> None:
    runtime = start("all")
    conversation = talk(runtime)
    conversation.open_turn("A line of a plugin that came in over night")
    conversation.take_turn(
        "A line of a plugin that came in over night", ANSWER, record=TurnRecord(kind="internal_notification")
    )
    say(conversation, "A line of a person who comes in over night")
    assert [text for role, text in turns(runtime) if role == "user"] == ["A line of a person who comes in over night"]


def test_the_agent_is_told_which_rule_keeps_a_fact_out_and_metadata_is_searched_too(
    start: Callable[..., Runtime],
) -> None:
    rules = [{"pattern": "password", "action": "none"}, {"pattern": "well", "action": "entries"}, {"action": "none"}]
    runtime = start(rules, tools="all")
    caller = talk(runtime).caller("ops")
    secret = {"content": "The well is old.", "metadata": {"about": "PASSWORD"}}
    for arguments in ({"content": "The password is 4711."}, secret):
        answer = json.loads(toolset.call(runtime, "remember", arguments, caller))
        assert answer == {"error": "nothing is stored, because rule 1 of keep says none"}
    toolset.call(runtime, "remember", {"content": "The well is deep.", "metadata": {"ticket": 7}}, caller)
    assert contents(runtime) == ["The well is deep."]
