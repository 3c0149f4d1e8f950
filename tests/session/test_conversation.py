"""What a host tells of a session ends up once, under its session and its theme."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint

from hermes_memory_pgvector.errors import BadArgument, Condition
from hermes_memory_pgvector.hosts.tool_calls import Saving, TurnRecord, read_turn, savings
from hermes_memory_pgvector.model import Add, Remove, now
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.attribution import events
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.session.state import Save
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database


@pytest.fixture
def runtime(tmp_path: Path, database: str) -> Iterator[Runtime]:
    endpoint = Endpoint()
    (tmp_path / "memories").mkdir()
    running = acquire(Settings(dsn=database, embed_url=endpoint.url, embed_model="test", batch_linger_s=0), tmp_path)  # type: ignore[arg-type]
    assert running.wait_ready(10)
    yield running
    release(running)
    endpoint.close()


@pytest.fixture
def talk(runtime: Runtime) -> Callable[..., Conversation]:
    def make(session: str = "s1", context: str = "primary", **identity: str) -> Conversation:
        return Conversation(runtime.context, Identity(**identity), session, context)

    return make


def said(number: int) -> tuple[str, str]:
    return f"question {number}: why is host-{number} slow today?", f"answer {number}: its disk is full"


def transcript(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"role": role, "content": content}
        for number in numbers
        for role, content in zip(("user", "assistant"), said(number), strict=True)
    ]


def answers(runtime: Runtime, database: str) -> list[tuple[str, str]]:
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        return connection.execute(
            "select session_id, content from conversations where role = 'assistant' order by id"
        ).fetchall()


def test_a_replayed_transcript_adds_only_what_is_missing(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one = talk()
    one.take_turn(*said(1))
    one.replay.end(transcript(1, 2))
    one.replay.end(transcript(1, 2))
    assert answers(runtime, database) == [("s1", said(1)[1]), ("s1", said(2)[1])]


def test_answers_that_were_made_with_tools_from_outside_are_marked_also_in_a_replay(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, call = talk(), {"role": "assistant", "tool_calls": [{"function": {"name": "web_extract"}}]}
    one.take_turn(*said(1), record=TurnRecord(tools=["web_extract"]))
    one.take_turn(*said(2))
    [question, answer] = transcript(3)
    one.replay.end([*transcript(1, 2), question, call, answer, *transcript(4)])
    assert len(answers(runtime, database)) == 4
    with psycopg.connect(database) as connection:
        found = connection.execute("select content, metadata -> 'tools' from conversations where role = 'assistant'")
        assert dict(found.fetchall()) == {
            said(1)[1]: ["web_extract"], said(2)[1]: None, said(3)[1]: ["web_extract"], said(4)[1]: None,
        }  # fmt: skip


def test_one_message_off_the_record_leaves_no_row_and_the_next_one_does(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, secret = talk(), "off the record: the PIN of the vault is 1234, remember it"
    theme = one.open_turn(secret)
    assert one.caller(theme).off_record
    one.change_entry("add", "memory", "The PIN of the vault is 1234.", {})
    one.take_turn(secret, "I shall keep it to myself, and the PIN is 1234.")
    one.open_turn(said(1)[0])
    assert not one.caller(theme).off_record
    one.take_turn(*said(1))
    one.replay.end([{"role": "user", "content": secret}, {"role": "assistant", "content": "1234"}, *transcript(1, 2)])
    # Where a host does not say that a turn begins, its question tells.
    talk("s2").take_turn(secret, "The PIN is 1234.")
    assert answers(runtime, database) == [("s1", said(1)[1]), ("s1", said(2)[1])]
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from memory_entries").fetchone() == (0,)
        assert connection.execute("select content from conversations where content like '%1234%'").fetchall() == []


def test_off_the_record_beside_a_picture_holds_from_then_on(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one = talk()
    # One host begins such a turn without its text.
    theme = one.open_turn("")
    one.take_turn("off the record", "As you like.")
    # It makes an agent for each request.
    two = talk()
    assert two.caller(theme).off_record
    assert (two.late_switch(), two.late_switch()) == ("off the record", "")
    one.open_turn(said(1)[0])
    one.take_turn(*said(1))
    one.open_turn("on the record")
    one.take_turn("on the record", "Good.")
    one.open_turn(said(2)[0])
    one.take_turn(*said(2))
    assert answers(runtime, database) == [("s1", said(2)[1])]


def test_of_two_turns_with_the_same_answer_a_replay_brings_the_one_that_was_missed(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, first, second = talk(), said(1)[0], said(2)[0]
    one.take_turn(second, "Done.")
    texts = (first, "Done.", second, "Done.")
    one.replay.end(
        [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, texts, strict=True)]
    )
    assert len(answers(runtime, database)) == 2
    with psycopg.connect(database) as connection:
        asked = connection.execute("select content from conversations where role = 'user' order by content").fetchall()
    assert asked == [(first,), (second,)]


def test_a_replay_brings_the_words_of_a_turn_with_an_image_and_knows_one_that_was_handed_over(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, image = talk(), {"type": "image_url", "image_url": {"url": "data:,"}}
    replayed = transcript(1, 2)
    for message in replayed[::2]:
        message["content"] = [{"type": "text", "text": message["content"]}, image]
    # Hosts put the parts together before they hand a turn over.
    one.take_turn(f"[1 image] {said(1)[0]}", said(1)[1])
    one.replay.end(replayed)
    assert len(answers(runtime, database)) == 2
    with psycopg.connect(database) as connection:
        asked = connection.execute("select content from conversations where role = 'user' order by content").fetchall()
    assert asked == [(f"[1 image] {said(number)[0]}",) for number in (1, 2)]


_TALKER = """
    import json, sys
    from hermes_memory_pgvector.session.conversation import Conversation
    from hermes_memory_pgvector.runtime import acquire, release
    from hermes_memory_pgvector.settings import Settings
    from hermes_memory_pgvector.session.identity import Identity
    runtime = acquire(Settings(dsn=sys.argv[2], embed_on_write=False), sys.argv[1])
    one = Conversation(runtime.context, Identity(), "s1", "primary")
    for line in sys.stdin:
        hook, arguments = json.loads(line)
        getattr(one.replay if hook == "end" else one, hook)(*arguments)
        print(runtime.writer.flush(20), flush=True)
    release(runtime)
"""


def test_two_processes_that_talk_in_one_session_store_each_turn_once(tmp_path: Path, database: str) -> None:
    arguments = [sys.executable, "-P", "-c", textwrap.dedent(_TALKER), str(tmp_path), database]
    talkers = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") for _ in range(2)
    ]

    def tell(*told: tuple[subprocess.Popen[str], str, list[Any]]) -> None:
        for talker, hook, given in told:
            assert talker.stdin is not None
            talker.stdin.write(json.dumps([hook, given]) + "\n")
            talker.stdin.flush()
        for talker, _, _ in told:
            assert talker.stdout is not None
            assert talker.stdout.readline() == "True\n"

    one, other = talkers
    tell((one, "take_turn", [*said(1)]), (other, "take_turn", [*said(2)]))
    tell((one, "take_turn", [*said(3)]))
    # Neither has handed over the fourth turn, and both replay all of them at the same time, twice.
    for _ in range(2):
        tell(*((talker, "end", [transcript(1, 2, 3, 4)]) for talker in talkers))
    for talker in talkers:
        talker.communicate(timeout=30)
        assert talker.returncode == 0
    with psycopg.connect(database) as connection:
        found = connection.execute("select session_id, content from conversations").fetchall()
    assert sorted(found) == sorted(("s1", text) for number in (1, 2, 3, 4) for text in said(number))


def test_the_transcript_of_a_branch_does_not_repeat_its_parent(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one = talk()
    for number in (1, 2):
        one.take_turn(*said(number))
    one.go_on("s2", "s1", anew=False)
    one.take_turn(*said(3))
    one.replay.end(transcript(1, 2, 3))
    one.go_on("s3", "s2", anew=False)
    one.replay.end(transcript(1, 2, 3, 4))
    assert answers(runtime, database) == [(s, said(n)[1]) for s, n in (("s1", 1), ("s1", 2), ("s2", 3), ("s3", 4))]
    with psycopg.connect(database) as connection:
        parents = connection.execute("select distinct session_id, parent_session_id from conversations").fetchall()
    assert sorted(parents) == [("s1", ""), ("s2", "s1"), ("s3", "s2")]


def test_a_new_conversation_says_again_what_was_said_before(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one = talk()
    one.take_turn(*said(1))
    one.go_on("s2", "s1", anew=True)
    one.open_turn(said(1)[0])
    one.replay.end(transcript(1))
    assert answers(runtime, database) == [("s1", said(1)[1]), ("s2", said(1)[1])]


def test_a_replay_that_overtakes_its_last_turn_does_not_double_it(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one = talk()
    one.open_turn()
    one.replay.end(transcript(1))
    one.take_turn(*said(1))
    assert answers(runtime, database) == [("s1", said(1)[1])]


def test_a_turn_is_stored_when_the_replay_that_overtakes_it_is_refused(
    runtime: Runtime, talk: Callable[..., Conversation], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime._spool, "_bytes_max", 2_000)
    one = talk()
    one.open_turn(said(50)[0])
    one.replay.end(transcript(*range(1, 51)))
    one.take_turn(*said(50))
    assert answers(runtime, database) == [("s1", said(50)[1])]


def test_a_job_keeps_no_turns_but_its_memory_writes(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    job = talk(context="cron")
    job.take_turn(*said(1))
    job.replay.end(transcript(1))
    job.change_entry("add", "memory", "the nightly run takes 40 minutes", {})
    assert answers(runtime, database) == []
    with psycopg.connect(database) as connection:
        assert connection.execute("select content, metadata ->> 'context' from memory_entries").fetchall() == [
            ("the nightly run takes 40 minutes", "cron")
        ]


def test_an_unknown_action_or_target_is_reported_and_stores_nothing(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    with pytest.raises(BadArgument, match="'shred'"):
        talk().change_entry("shred", "memory", "x", {})
    talk().change_entry("add", "nowhere", "x", {})
    assert runtime.writer.flush(10)
    assert runtime.writer.counters.set_aside == 1


def test_entries_written_while_the_files_are_reconciled_stay_in_their_theme(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    """The host writes the file and calls the hook a moment later; others of the home reconcile all the while."""
    file = runtime.home.path / "memories" / "MEMORY.md"
    done = threading.Event()

    def reconcile() -> None:
        while not done.is_set():
            runtime.files.reconcile("default", "s")

    others = [threading.Thread(target=reconcile) for _ in range(2)]
    for other in others:
        other.start()
    billing = talk(gateway_session_key="billing", platform="api_server")
    entries: list[str] = []
    try:
        for number in range(60):
            entries.append(f"billing fact {number}")
            part = file.with_suffix(".part")
            part.write_text("\n§\n".join(entries))
            part.replace(file)
            billing.change_entry("add", "memory", entries[-1], {})
    finally:
        done.set()
        for other in others:
            other.join()
    runtime.files.reconcile("default", "s")
    assert runtime.writer.flush(20)
    with psycopg.connect(database) as connection:
        stored = connection.execute("select agent_identity, content from memory_entries").fetchall()
    assert sorted(stored) == sorted(("billing", entry) for entry in entries)


@contextmanager
def locked_snapshot(runtime: Runtime) -> Iterator[None]:
    inside, release_it = threading.Event(), threading.Event()

    def hold() -> None:
        with runtime.home.snapshot(1):
            inside.set()
            release_it.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(5)
    try:
        yield
    finally:
        release_it.set()
        holder.join()


def test_hooks_work_while_the_snapshot_stays_locked(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    with locked_snapshot(runtime):
        talk().change_entry("add", "memory", "written all the same", {})
        assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        assert connection.execute("select content from memory_entries").fetchall() == [("written all the same",)]


def test_an_entry_that_another_finds_while_its_hook_waits_for_the_snapshot_is_in_the_theme_of_the_hook(
    runtime: Runtime, database: str
) -> None:
    hooks = Add(theme="billing", home=runtime.home.id, target="memory", content="the invoices are in ledger-3")
    (runtime.home.path / "memories" / "MEMORY.md").write_text(hooks.content)
    runtime.files.reconcile("default", "s")
    with locked_snapshot(runtime):
        assert runtime.files.change(hooks)
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        stored = connection.execute("select agent_identity, content from memory_entries").fetchall()
    assert stored == [("billing", hooks.content)]


def test_an_entry_that_is_removed_while_its_hook_waits_for_the_snapshot_stays_removed(
    runtime: Runtime, database: str
) -> None:
    added = Add(theme="billing", home=runtime.home.id, target="memory", content="the invoices are in ledger-3")
    assert runtime.files.change(Remove(theme="billing", home=runtime.home.id, target="memory", previous=added.content))
    with locked_snapshot(runtime):
        assert runtime.files.change(added)
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        assert connection.execute("select content from memory_entries").fetchall() == []


def test_no_event_is_lost_while_the_database_is_read_only(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    def read_only(switch: str) -> None:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("set default_transaction_read_only = off")
            admin.execute(f"alter database {admin.info.dbname} set default_transaction_read_only = {switch}")
            others = "datname = current_database() and pid <> pg_backend_pid()"
            admin.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {others}")

    read_only("on")
    for number in range(6):
        talk().take_turn(*said(number))
    assert not runtime.writer.flush(1.5)
    assert "ReadOnly" in runtime.writer.health.problem
    read_only("off")
    assert runtime.writer.flush(20)
    counts = runtime.writer.counters
    assert (counts.applied, counts.set_aside, counts.pending) == (6, 0, 0)


def test_two_processes_that_name_the_model_at_once_agree(database: str, tmp_path: Path) -> None:
    other = Database(Settings(dsn=database), tmp_path)
    answers_got: list[str] = []
    with psycopg.connect(database) as first:
        first.execute("insert into hermes_pgvector_settings (name, value) values ('embedding_model', 'first')")
        second = threading.Thread(target=lambda: answers_got.append(other.claim_model("second")))
        second.start()
        second.join(0.3)
    second.join(10)
    other.close()
    assert answers_got == ["first"]


@pytest.mark.parametrize(
    "by_host",
    [
        "[Heartbeat — recurring instruction, fires every 10m]\nLook at the mail",
        "[Ann] [Background process p1 finished with exit code 0~",
        "[System note: your last turn was interrupted.]",
    ],
)
def test_a_turn_that_the_host_begins_leaves_a_notice_to_the_person(
    runtime: Runtime, talk: Callable[..., Conversation], by_host: str
) -> None:
    runtime.context.outages.parts = {
        "database": lambda: Condition("Postgres does not answer", now() - timedelta(hours=1))
    }
    session = talk()
    assert session.notices(by_host) == []
    assert len(session.notices("thanks!")) == 1
    assert session.notices("And the harbour?") == []


def reading_turn(question: str, number: str, *, answer: str = "") -> list[dict[str, Any]]:
    """A turn that reads a page and then saves an entry by the host's tool; without an answer it was interrupted."""

    def call(name: str, number: str) -> dict[str, Any]:
        return {"role": "assistant", "content": "", "tool_calls": [{"id": number, "function": {"name": name}}]}

    said = [
        {"role": "user", "content": question},
        call("web_extract", "page"),
        {"role": "tool", "tool_call_id": "page"},
    ]
    return [*said, call("memory", number), *([{"role": "assistant", "content": answer}] if answer else [])]


def made(runtime: Runtime, database: str) -> dict[str, list[str] | None]:
    """The tools of each entry."""
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        return dict(connection.execute("select content, metadata -> 'tools' from memory_entries").fetchall())


def test_entries_that_were_saved_after_third_parties_were_read_say_so(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, transcript = talk(), list[dict[str, Any]]()

    def begin(number: int, *saved: str, reads: bool = True, ends: bool = True) -> Callable[[], None]:
        """Run a turn. Some servers give each call the same id, and one host's hook has it in another form."""
        question, answer = said(number)
        one.open_turn(question)
        for content in saved:
            one.change_entry("add", "memory", content, {"session_id": "s1", "tool_call_id": "call_0|fc_0"})
        asked = reading_turn(question, "call_0", answer=answer if ends else "")
        transcript.extend(asked if reads else [asked[0], *asked[3:]])
        told = read_turn(transcript, question)
        return lambda: one.take_turn(question, answer, "s1", record=told)

    begin(1, "own", reads=False)()
    late = begin(2, "read")
    following = begin(3, "own, too", reads=False)
    late()
    following()
    begin(4, "interrupted", ends=False)
    begin(5, "own, three", reads=False)()
    expected = dict.fromkeys(("own", "own, too", "own, three")) | {"read": ["web_extract"]}
    assert made(runtime, database) == {**expected, "interrupted": ["web_extract"]}
    begin(6, "at the end", ends=False)
    for _ in range(5):
        one.replay.end(transcript)
    expected |= {"interrupted": ["web_extract"], "at the end": ["web_extract"]}
    assert made(runtime, database) == expected


def test_an_entry_of_a_turn_that_was_taken_back_says_so_too(
    runtime: Runtime, talk: Callable[..., Conversation], database: str
) -> None:
    one, (question, answer) = talk(), said(1)
    one.open_turn(question)
    one.change_entry("add", "memory", "read", {"tool_call_id": "1"})
    one._turns.withdrawn_question = question
    one.take_turn(question, answer, "s1", record=read_turn(reading_turn(question, "1", answer=answer), question))
    assert made(runtime, database) == {"read": ["web_extract"]}
    assert answers(runtime, database) == []


@pytest.mark.parametrize("question", ["off the record: what does the page say?", "What does the page say?"])
def test_what_was_read_off_the_record_is_in_no_event(question: str) -> None:
    saved = savings([*reading_turn(question, "1"), *reading_turn("And now?", "2")])
    found = events(saved, [Save(question, "1", "a"), Save("And now?", "2", "b")], theme="ops", home="h", session_id="s")
    assert [event.saves for event in found] == [("b",) if question.startswith("off") else ("a", "b")]


def test_entries_are_attributed_in_the_themes_in_which_they_are() -> None:
    saved = [
        Saving("1", ("web",), "q"), Saving("2", ("web",), "q", "ab12", "team"),
        Saving("3", ("mail",), "q", "cd34", "ops"), Saving("4", ("mail",), "q"),
    ]  # fmt: skip
    saves = [Save("q", "1", "ef56"), Save("q", "1", "ab78"), Save("r", "1", "other")]
    found = events(saved, saves, theme="ops", home="h", session_id="s")
    assert [(event.theme, event.saves, event.metadata["tools"]) for event in found] == [
        ("ops", ("ef56", "ab78"), ["web"]), ("team", ("ab12",), ["web"]), ("ops", ("cd34",), ["mail"]),
    ]  # fmt: skip


def test_a_turn_that_was_opened_with_another_text_is_known_by_its_calls() -> None:
    saved = [Saving("1", ("web",), "[1 image] What is it?")]
    [event] = events(saved, [Save("", "1", "ab12"), Save("", "2", "cd34")], theme="ops", home="h", session_id="s")
    assert event.saves == ("ab12",)
