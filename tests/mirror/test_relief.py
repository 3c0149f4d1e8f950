"""What leaves a full memory file is kept and recalled, whatever else happens to file, database and processes."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from loopback import Endpoint

from hermes_memory_pgvector.errors import Refused, Unavailable
from hermes_memory_pgvector.mirror import relief
from hermes_memory_pgvector.mirror.entries import DELIMITER
from hermes_memory_pgvector.model import Add, FactWritten, RecallRequest
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools.relief import relief_of

NAMES = ["Anna", "Bert", "Carla", "Dirk", "Emma", "Fritz", "Gerda", "Hans", "Ida", "Jan", "Karl", "Lena", "Max", "Nora"]
ENTRIES = [
    f"{name} keeps the keys of room {place} and is there from {place + 6} o'clock on every working day, {name} says."
    for place, name in enumerate(NAMES)
]
CAP = 2200


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(home: Path = tmp_path, **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "batch_linger_s": 0, **changed}
        running.append(acquire(Settings(**values), home))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def write(home: Path, entries: list[str], name: str = "MEMORY.md") -> Path:
    path = home / "memories" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(DELIMITER.join(entries))
    return path


def read(runtime: Runtime) -> list[str]:
    return list(runtime.home.entries("memory") or ())


def session(runtime: Runtime) -> None:
    """What the start of a session does with the files."""
    runtime.files.reconcile("default", "s1")
    assert runtime.writer.flush(20)


def sql(runtime: Runtime, statement: str) -> list[Any]:
    with psycopg.connect(runtime.database.dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def contents(runtime: Runtime) -> list[str]:
    return sorted(content for (content,) in sql(runtime, "select content from memory_entries"))


def recalled(runtime: Runtime, query: str, theme: str = "default") -> list[str]:
    request = RecallRequest(query=query, scope=runtime.scope(theme, "current", ""), limit=3, budget_s=20)
    return [hit.content for hit in runtime.recall("entries", request).hits]


def full(runtime: Runtime) -> list[str]:
    """A file above the threshold that a session has read, its first entries being the oldest."""
    write(runtime.home.path, ENTRIES)
    session(runtime)
    with psycopg.connect(runtime.database.dsn, autocommit=True) as connection:
        for days, entry in enumerate(reversed(ENTRIES)):
            connection.execute(
                "update memory_entries set updated_at = now() - make_interval(days => %s) where content = %s",
                [days, entry],
            )
    return list(ENTRIES)


def test_the_oldest_entries_leave_the_file_and_are_recalled(start: Callable[..., Runtime]) -> None:
    runtime = start()
    entries = full(runtime)
    (done,) = relief_of(runtime).carry_out()
    left = read(runtime)
    moved = [entry for entry in entries if entry not in left]
    assert moved == entries[: len(moved)]
    assert len(DELIMITER.join(left)) <= 0.45 * CAP < len(DELIMITER.join([moved[-1], *left]))
    assert contents(runtime) == sorted(entries)
    for entry in moved:
        assert entry in recalled(runtime, entry)
    assert done.backup is not None
    assert done.backup.read_text() == DELIMITER.join(entries)
    assert stat.S_IMODE(done.backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("count", [1, 2])
def test_no_reconciliation_takes_what_left_the_file_for_removed(start: Callable[..., Runtime], count: int) -> None:
    runtime = start()
    entries = full(runtime)
    relief_of(runtime).carry_out()
    kept = read(runtime)
    for _ in range(count):
        session(runtime)
    assert contents(runtime) == sorted(entries)
    # What the user removes afterwards is removed, and nothing else.
    write(runtime.home.path, kept[1:])
    session(runtime)
    assert contents(runtime) == sorted(set(entries) - {kept[0]})


STEPS = """
import os, signal, sys
from hermes_memory_pgvector.mirror import relief
from hermes_memory_pgvector.mirror.memory_file import MemoryFile
from hermes_memory_pgvector.mirror.snapshot import Snapshot
from hermes_memory_pgvector.runtime import acquire
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.tools.relief import relief_of

home, last = sys.argv[1], int(sys.argv[2])
done = 0

def step():
    global done
    done += 1
    if done == last:
        os.kill(os.getpid(), signal.SIGKILL)

def stepwise(owner, name):
    call = getattr(owner, name)
    def run(*args, **kwargs):
        step()
        answer = call(*args, **kwargs)
        step()
        return answer
    setattr(owner, name, run)

runtime = acquire(load(home), home)
assert runtime.wait_ready(30)
for owner, names in ((MemoryFile, ("back_up", "prepare", "replace")), (rows, ("apply",)),
                     (relief.Relief, ("_verify", "_replace")), (Snapshot, ("write",))):
    for name in names:
        stepwise(owner, name)
relief_of(runtime).carry_out()
print(done)
"""


@pytest.mark.parametrize("step", range(1, 16))
def test_a_killed_relief_loses_nothing_and_the_next_one_completes_it(
    start: Callable[..., Runtime], tmp_path: Path, endpoint: Endpoint, step: int
) -> None:
    runtime = start()
    entries = full(runtime)
    environment = {
        "HERMES_PGVECTOR_DSN": runtime.database.dsn, "HERMES_PGVECTOR_EMBED_URL": endpoint.url,
        "HERMES_PGVECTOR_EMBED_MODEL": "test", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", STEPS, str(tmp_path), str(step)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    if step == 15:
        # There are no more steps than these.
        assert done.stdout.strip() == "14", done.stderr
    else:
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert set(read(runtime)) | set(contents(runtime)) == set(entries)
    # A process that lives on, and one that starts.
    session(runtime)
    release(runtime)
    runtime.users = 1
    again = start()
    session(again)
    assert contents(again) == sorted(entries)
    relief_of(again).carry_out()
    session(again)
    assert contents(again) == sorted(entries)
    assert len(DELIMITER.join(read(again))) <= 0.45 * CAP
    assert [path.name for path in (tmp_path / "memories").iterdir() if path.suffix not in (".md", ".lock")] == []
    for entry in set(entries) - set(read(again)):
        assert entry in recalled(again, entry)


def test_entries_stay_in_the_themes_that_have_them(start: Callable[..., Runtime]) -> None:
    runtime = start()
    write(runtime.home.path, ENTRIES)
    for place, entry in enumerate(ENTRIES):
        theme = "billing" if place % 2 else "ops"
        runtime.files.change(Add(theme=theme, home=runtime.home.id, target="memory", content=entry))
    assert runtime.writer.flush(20)
    before = sql(runtime, "select agent_identity, id, content, updated_at from memory_entries order by id")
    relief_of(runtime).carry_out()
    session(runtime)
    assert sql(runtime, "select agent_identity, id, content, updated_at from memory_entries order by id") == before
    gone = next(entry for entry in ENTRIES if entry not in read(runtime) and ENTRIES.index(entry) % 2)
    assert gone in recalled(runtime, gone, "billing")
    assert gone not in recalled(runtime, gone, "ops")


def test_an_event_that_is_stored_late_takes_nothing_away(start: Callable[..., Runtime]) -> None:
    """The add of an entry waits in the outbox of a process while another one relieves the file."""
    runtime = start()
    entries = full(runtime)
    late = Add(theme="ops", home=runtime.home.id, target="memory", content=entries[0], at=runtime.files._last)
    relief_of(runtime).carry_out()
    assert entries[0] not in read(runtime)
    assert runtime.accept(late)
    session(runtime)
    assert entries[0] in recalled(runtime, entries[0])
    assert entries[0] in recalled(runtime, entries[0], "ops")


def test_another_host_of_the_theme_keeps_its_own_line(start: Callable[..., Runtime], tmp_path: Path) -> None:
    here, there = start(tmp_path / "here"), start(tmp_path / "there")
    shared = ENTRIES[0]
    write(there.home.path, [shared, "Only there."])
    session(there)
    entries = full(here)
    relief_of(here).carry_out()
    assert shared not in read(here)
    for runtime in (here, there, here):
        session(runtime)
    assert read(there) == [shared, "Only there."]
    assert contents(here) == sorted([*entries, "Only there."])


def test_what_may_not_leave_stays(start: Callable[..., Runtime]) -> None:
    runtime = start()
    entries = full(runtime)
    secret, new = "What is said here is off the record. " * 3, "This line was written a moment ago. " * 3
    secret, new = secret.strip(), new.strip()
    write(runtime.home.path, [secret, *entries])
    runtime.files.change(Add(theme="ops", home=runtime.home.id, target="memory", content=secret), stored=False)
    write(runtime.home.path, [new, secret, *entries])
    (plan,) = relief_of(runtime, above_pct=1).plans()
    assert plan.staying == {new: relief.UNREAD, secret: relief.OFF_RECORD}
    relief_of(runtime, above_pct=1).carry_out()
    assert read(runtime)[:2] == [new, secret]
    session(runtime)
    assert secret not in contents(runtime)
    assert new in contents(runtime)


def test_before_the_first_session_entries_are_stored_in_the_theme_of_the_home(start: Callable[..., Runtime]) -> None:
    runtime = start()
    write(runtime.home.path, ENTRIES)
    relief_of(runtime).carry_out()
    moved = sorted(set(ENTRIES) - set(read(runtime)))
    assert moved
    assert sql(runtime, "select distinct agent_identity from memory_entries") == [("default",)]
    assert contents(runtime) == moved
    session(runtime)
    assert contents(runtime) == sorted(ENTRIES)


def test_what_the_settings_leave_out_stays(start: Callable[..., Runtime]) -> None:
    runtime = start(keep="asked")
    write(runtime.home.path, ENTRIES)
    (plan,) = relief_of(runtime).plans()
    assert not plan.moves or all(runtime.context.capture.keeps_of_file(move.entry) for move in plan.moves)


def test_the_cap_is_that_of_the_host(start: Callable[..., Runtime], tmp_path: Path) -> None:
    runtime = start()
    full(runtime)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"memory": {"memory_char_limit": 9000}}))
    (plan,) = relief_of(runtime).plans()
    assert (plan.chars_max, plan.is_full, plan.changes) == (9000, False, False)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"memory": {"memory_enabled": False}}))
    assert relief_of(runtime).plans() == []


def test_without_a_database_the_plan_is_shown_and_nothing_is_done(start: Callable[..., Runtime]) -> None:
    runtime = start(dsn="host=127.0.0.1 port=1 user=u dbname=d", connect_timeout_s=0.5, recall_budget_s=1)
    path = write(runtime.home.path, ENTRIES)
    found = relief_of(runtime)
    (plan,) = found.plans()
    assert plan.moves
    assert found.problem
    with pytest.raises(Unavailable):
        relief_of(runtime).carry_out()
    assert path.read_text() == DELIMITER.join(ENTRIES)


def test_the_lock_of_the_host_is_waited_for(start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = start()
    entries = full(runtime)
    monkeypatch.setattr(relief, "LOCK_WAIT_S", 0.1)
    with open(runtime.home.file("memory").with_name("MEMORY.md.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"MEMORY\.md\.lock"):
            relief_of(runtime).carry_out()
    assert read(runtime) == entries


def test_a_damaged_file_is_left_alone(start: Callable[..., Runtime]) -> None:
    runtime = start()
    path = write(runtime.home.path, [])
    path.write_bytes(b"caf\xe9" * 500)
    with pytest.raises(Refused, match="UTF-8"):
        relief_of(runtime).carry_out()
    assert path.read_bytes() == b"caf\xe9" * 500


def test_link_and_mode_of_the_file_stay(start: Callable[..., Runtime], tmp_path: Path) -> None:
    runtime = start()
    full(runtime)
    path = runtime.home.file("memory")
    real = path.rename(tmp_path / "notes.md")
    real.chmod(0o640)
    path.symlink_to(real)
    relief_of(runtime).carry_out()
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert len(real.read_text()) <= 0.45 * CAP


def test_backups_are_bounded_and_the_newest_stay(start: Callable[..., Runtime]) -> None:
    runtime = start(relief_backups_max=2)
    made = []
    for count in range(4):
        write(runtime.home.path, [*ENTRIES[count : count + 2], ENTRIES[count]])
        (done,) = relief_of(runtime).carry_out()
        made.append(done.backup)
    assert sorted((runtime.home.state / "relief").iterdir()) == made[-2:]


def test_a_repeated_entry_stays_once_also_in_a_file_with_room(start: Callable[..., Runtime]) -> None:
    runtime = start()
    path = write(runtime.home.path, ["a", "b", "a"])
    (done,) = relief_of(runtime).carry_out()
    assert (path.read_text(), done.plan.repeated, done.plan.moves) == ("a\n§\nb", ("a",), ())
    (again,) = relief_of(runtime).carry_out()
    assert again.backup is None


def test_nothing_is_done_where_the_memory_is_only_read(start: Callable[..., Runtime]) -> None:
    runtime = start(off_record=True)
    path = write(runtime.home.path, ENTRIES)
    with pytest.raises(Refused, match="off_record"):
        relief_of(runtime).carry_out()
    assert path.read_text() == DELIMITER.join(ENTRIES)


FACTS = ["C[db.id]: UUID, never autoincrement", "D[auth]: sessions in Redis", "V[srv.prod]: api.example.com:3005"]
CURRENT = "select kind, target, scope, content from facts where status = 'active' order by target"


def with_facts(runtime: Runtime) -> list[str]:
    """A file with facts in notation: one as an entry, two in an entry with other lines."""
    entries = [*ENTRIES[:12], f"Notes on the service\n- {FACTS[0]}\n- {FACTS[1]}\nand more of it", FACTS[2]]
    write(runtime.home.path, entries)
    session(runtime)
    return entries


def test_lines_in_fact_notation_become_facts_and_the_rest_stays(start: Callable[..., Runtime]) -> None:
    runtime = start(tools="facts")
    entries = with_facts(runtime)
    relief_of(runtime).carry_out()
    session(runtime)
    assert sql(runtime, CURRENT) == [
        ("D", "auth", "", "sessions in Redis"),
        ("C", "db.id", "", "UUID, never autoincrement"),
        ("V", "srv.prod", "", "api.example.com:3005"),
    ]
    rest = "Notes on the service\nand more of it"
    assert rest in read(runtime)
    assert contents(runtime) == sorted([*entries[:12], rest])
    assert not any("[" in entry for entry in read(runtime))


def test_facts_stay_entries_where_agents_have_no_tools_for_facts(start: Callable[..., Runtime]) -> None:
    runtime = start(tools="all")
    entries = with_facts(runtime)
    relief_of(runtime).carry_out()
    session(runtime)
    assert sql(runtime, CURRENT) == []
    assert contents(runtime) == sorted(entries)


def test_a_line_never_displaces_a_fact_that_was_written_after_it(start: Callable[..., Runtime]) -> None:
    runtime = start(tools="facts")
    with_facts(runtime)
    runtime.accept(FactWritten(theme="default", kind="V", target="srv.prod", content="api.example.com:3006"))
    assert runtime.writer.flush(20)
    (plan,) = relief_of(runtime).plans()
    assert plan.staying == {FACTS[2]: relief.OUTDATED}
    relief_of(runtime).carry_out()
    assert FACTS[2] in read(runtime)
    assert ("V", "srv.prod", "", "api.example.com:3006") in sql(runtime, CURRENT)
