"""`import` where rows are already: of an earlier import, of agents beside it, of accounts linked or parted since."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from commandline import Outcome, hermes_pgvector, started
from moving import LAPTOP, PERSON, PHONE, Memory, entry, fact, turn, withdrawn
from waiting import wait_for

from hermes_memory_pgvector.model import Add, Remove, Update, now
from hermes_memory_pgvector.store import facts, pruning, upkeep

PLAIN = {"kind": "entry", "content": "The office is in Bern.", "created_at": "2025-05-01T10:00:00Z"}
ASKED = {"kind": "turn", "session_id": "m", "role": "user", "content": "Where do we meet?", "at": 1_760_000_000}


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Any:
    with Memory(database, tmp_path) as opened:
        yield opened


@pytest.fixture
def other(make_database: Callable[..., str], tmp_path: Path) -> Any:
    with Memory(make_database(), tmp_path) as opened:
        yield opened


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command on a memory; the exit code must be 0."""

    def command(memory: Memory, *arguments: str) -> Outcome:
        monkeypatch.setenv("HERMES_PGVECTOR_DSN", memory.dsn)
        monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", "http://127.0.0.1:9/v1")
        done = hermes_pgvector("--home", str(tmp_path), *arguments)
        assert done.code == 0, done.shown
        return done

    return command


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return str(tmp_path / "memory.jsonl")


def written(path: str, *rows: dict[str, Any]) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_of_an_account_that_is_linked_here_go_back_to_it(
    memory: Memory, other: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.apply(turn("one"), entry("tea"), fact("loam"))
    at(memory, "export", archive)
    other.link(PHONE, LAPTOP)
    at(other, "import", archive)
    assert other.contents(PERSON) == ["tea", "one?", "one!"]
    other.unlink(PHONE)
    assert other.left(PERSON) == {}
    assert other.contents(PHONE) == ["tea", "one?", "one!"]


def test_an_account_that_was_separated_since_the_export_stays_separated(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.link(PHONE, LAPTOP)
    memory.apply(turn("one"), turn("two", LAPTOP), entry("tea"), fact("loam"))
    at(memory, "export", archive)
    memory.unlink(PHONE)
    memory.psql("delete from conversations where content like 'one%%'")
    assert f"themes of their own here, which they stay: {PHONE}" in at(memory, "import", archive).shown
    assert memory.contents(PHONE) == ["tea", "one?", "one!"]
    assert memory.contents(PERSON) == ["two?", "two!"]


def test_an_account_that_has_another_person_since_the_export_keeps_it(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    other = "dm-person-00000000000000bb"
    memory.link(PHONE, LAPTOP)
    memory.apply(turn("one"), turn("two", LAPTOP), entry("tea"), fact("loam"))
    at(memory, "export", archive)
    for account in (PHONE, LAPTOP):
        memory.unlink(account)
    memory.link(PHONE, LAPTOP, person=other)
    before = memory.contents(other)
    at(memory, "import", archive)
    assert (memory.contents(other), memory.left(PERSON)) == (before, {})


def test_an_account_that_was_separated_and_emptied_stays_separated(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.link(PHONE, LAPTOP)
    memory.apply(entry("tea"))
    at(memory, "export", archive)
    memory.unlink(PHONE)
    memory.apply(Remove(theme=PHONE, home="h", target="memory", previous="tea"))
    at(memory, "import", archive)
    assert memory.contents(PERSON) == memory.contents(PHONE) == []
    assert memory.psql("select agent_identity from memory_person_links") == [(LAPTOP,)]


def test_an_archive_of_one_person_has_the_links_of_its_accounts(
    memory: Memory, other: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.apply(turn("pruned", "ops"))
    memory.run(lambda connection: pruning.Pruning("turns", "ops", pruning.Prunable(chars=1)).batch(connection, 4))
    memory.link("ops")
    memory.apply(turn("one", "ops"))
    at(memory, "export", archive, "--theme", "ops")
    at(other, "import", archive)
    rows = at(other, "list", "--theme", "ops", "--json").document["rows"]
    assert sorted(row["content"] for row in rows) == ["one!", "one?"]
    assert other.psql("select times from memory_pruned_turns") == [(1,)]


@pytest.mark.parametrize("pruned", [True, False])
def test_a_text_whose_row_has_expired_is_imported(
    memory: Memory, at: Callable[..., Outcome], archive: str, pruned: bool
) -> None:
    memory.psql(
        "insert into memory_entries (agent_identity, home, target, content, expires_at) "
        "values ('default', '', 'memory', %s, now() - interval '1 minute')",
        PLAIN["content"],
    )
    if pruned:
        memory.run(upkeep.prune_expired)
    at(memory, "import", written(archive, {**PLAIN, "theme": "default"}))
    memory.run(upkeep.prune_expired)
    assert memory.psql("select content, expires_at from memory_entries") == [(PLAIN["content"], None)]


def test_an_entry_that_has_expired_since_the_export_stays_away(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.apply(entry("tea", "t"))
    memory.psql("update memory_entries set expires_at = now() + interval '1 hour'")
    at(memory, "export", archive)
    memory.psql("update memory_entries set expires_at = now() - interval '1 minute'")
    memory.run(upkeep.prune_expired)
    told = at(memory, "import", archive, "--json").document["rows"]["entry"]
    assert told == {"found": 1, "new": 0}


def test_an_entry_that_was_replaced_since_the_export_stays_replaced(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    memory.apply(entry("port 5433", "t"))
    at(memory, "export", archive)
    [(number,)] = memory.psql("select id from memory_entries")
    memory.apply(Update(theme="t", home="h", entry_id=number, content="port 6000"))
    at(memory, "import", archive)
    assert memory.contents("t") == ["port 6000"]


def test_rows_that_come_twice_in_a_file_are_stored_once_as_a_dry_run_says(
    memory: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    written(archive, PLAIN, PLAIN, ASKED, ASKED)
    tried = at(memory, "import", archive, "--dry-run", "--json").document["rows"]
    assert at(memory, "import", archive, "--json").document["rows"] == tried
    assert {kind: told["new"] for kind, told in tried.items()} == {"entry": 1, "turn": 1}
    stored = "select content from memory_entries union all select content from conversations"
    assert memory.psql(stored) == [(PLAIN["content"],), (ASKED["content"],)]


def test_two_imports_at_once_store_each_row_once(
    memory: Memory, other: Memory, at: Callable[..., Outcome], archive: str, tmp_path: Path
) -> None:
    memory.psql(
        "insert into memory_history (agent_identity, entry_id, target, content, created_at, updated_at, metadata, "
        "gone_at, how) select 't', n, 'memory', n::text, now(), now(), '{}', now(), 'removed' "
        "from generate_series(1, 1000) n"
    )
    memory.psql(
        "insert into memory_agent_edges (agent_identity, parent_session_id, child_session_id, task, result, at, "
        "metadata) select 't', 's', n::text, 't', 'r', now(), '{}' from generate_series(1, 1000) n"
    )
    memory.psql(
        "insert into conversations (agent_identity, session_id, role, content) "
        "select 't', 's', 'user', n::text from generate_series(1, 1000) n"
    )
    at(memory, "export", archive)
    both = [started(other.dsn, tmp_path / name, "import", archive) for name in ("one", "two")]
    for process in both:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    for table in ("memory_history", "memory_agent_edges", "conversations"):
        assert other.psql(f"select count(*) from {table}") == [(1000,)], table


def test_a_batch_that_the_server_ends_is_tried_again(memory: Memory, at: Callable[..., Outcome], archive: str) -> None:
    texts = [f"entry {number}" for number in range(100)]
    written(archive, *({**PLAIN, "theme": "t", "content": text} for text in texts))
    waiting = "from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with memory.database.transaction(10, 20) as connection, ThreadPoolExecutor(1) as beside:
        facts.lock(connection, ["t"])
        importing = beside.submit(at, memory, "import", archive, "--json")
        wait_for(lambda: bool(memory.psql(f"select 1 {waiting}")), 20)
        memory.psql(f"select pg_terminate_backend(pid) {waiting}")
        connection.execute("commit")
        assert importing.result(20).document["rows"]["entry"] == {"found": 100, "new": 100}
    assert memory.contents("t") == texts


def test_a_later_archive_brings_later_withdrawals(
    memory: Memory, other: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    for standing in (1, 0):
        memory.apply(withdrawn("t", standing))
        at(memory, "export", archive)
        at(other, "import", archive)
        Path(archive).unlink()
    other.apply(turn("taken back", "t", at=now() - timedelta(hours=1)))
    assert other.contents("t") == []


def test_a_later_archive_brings_later_removals(
    memory: Memory, other: Memory, at: Callable[..., Outcome], archive: str
) -> None:
    began, common = now() - timedelta(hours=5), {"theme": "t", "home": "a" * 32, "target": "memory"}
    times = [began + timedelta(hours=hours) for hours in range(4)]
    memory.apply(Add(content="tea", at=times[0], **common), Remove(previous="tea", at=times[1], **common))
    at(memory, "export", archive)
    at(other, "import", archive)
    memory.apply(Remove(previous="tea", at=times[3], **common))
    Path(archive).unlink()
    at(memory, "export", archive)
    at(other, "import", archive)
    for each in (memory, other):
        each.apply(Add(content="tea", at=times[2], **common))
        assert each.contents("t") == []
