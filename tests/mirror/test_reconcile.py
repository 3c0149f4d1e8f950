"""The rows of a home are the lines of its files, whatever happens to files, processes and Postgres in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from hermes_memory_pgvector.mirror import reconcile
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.mirror.reconcile import Reconciler
from hermes_memory_pgvector.model import TARGETS, Add, Event, Remove, Replace, Target, now
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.outbox.orphans import OrphanSpool
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.erasure import marks
from hermes_memory_pgvector.write.batches import BatchProcessor

FILES = {"memory": "MEMORY.md", "user": "USER.md"}
HOME_THEME, OTHER_THEME, UNKNOWN = "ops", "billing", ""
# Texts that are parts of each other, so that an `old_text` is easily misunderstood; each home has its own.
TEXTS = {"A": ["a", "ab", "b", "b a", "a\nb", "% a", "ab §"], "B": ["x", "xy", "y", "_y x", "x\ny", "y's"]}

homes = st.sampled_from(sorted(TEXTS))
targets = st.sampled_from(TARGETS)
themes = st.sampled_from([HOME_THEME, OTHER_THEME])
numbers = st.integers(0, 20)
operations = st.tuples(st.sampled_from(["add", "add", "replace", "remove"]), numbers, numbers)


class Killed(BaseException):
    """The process dies here."""


class Process:
    """The write path of one process, step by step and without its threads, on a real spool and a real Postgres."""

    def __init__(self, path: Path, database: Database, settings: Settings) -> None:
        self.home = Home(path)
        self.dies = ""
        self._spool = Spool(self.home.spool, bytes_max=1 << 20, window_max=2)
        letters = DeadLetters(self.home.state)
        self._batches = BatchProcessor(self._spool, letters, database, settings, lambda event: event)
        self.files = Reconciler(self.home, self._accept)

    def _accept(self, event: Event) -> bool:
        if self.dies == "before accepting":
            raise Killed
        accepted = self._spool.append(event)
        if self.dies:
            raise Killed
        return accepted

    def drain(self, steps: int = 1000) -> None:
        for _ in range(steps):
            if not self._batches.step(None, lambda: False):
                return

    def die(self) -> None:
        """Let go of all files as the kernel does for a killed process."""
        self._batches.sources.abandon()


class Mirror(RuleBasedStateMachine):
    """Two homes on two themes. The host changes its file first, then tells; hands change the file alone."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__()
        shutil.rmtree(folder, ignore_errors=True)
        self.dsn, self.folder = dsn, folder
        self.settings = Settings(dsn=dsn, adopt_interval_s=1)  # type: ignore[arg-type]
        self.database = Database(self.settings, folder)
        self.sql("truncate memory_entries, memory_events, memory_tombstones, memory_history cascade")
        keys = [(home, target) for home in TEXTS for target in TARGETS]
        self.lines: dict[tuple[str, Target], list[str]] = {key: [] for key in keys}
        # Since the last reconciliation: what stood in the file at some time, and whether hands have edited it.
        self.recent: dict[tuple[str, Target], set[str]] = {key: set() for key in keys}
        self.edited: set[tuple[str, Target]] = set()
        # The theme that each line belongs to as far as it can be told, and lines whose row somebody else deleted.
        self.owner: dict[tuple[str, Target, str], str] = {}
        self.gone_elsewhere: set[tuple[str, Target, str]] = set()
        self.processes: dict[str, Process] = {}
        for home in TEXTS:
            (folder / home / "memories").mkdir(parents=True)
            self.processes[home] = Process(folder / home, self.database, self.settings)

    def teardown(self) -> None:
        self.everything_is_as_in_the_files()
        for process in self.processes.values():
            process.die()
        self.database.close()

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    # What the host does

    def write(self, home: str, target: Target, lines: list[str]) -> None:
        self.lines[home, target] = lines
        self.recent[home, target].update(lines)
        (self.folder / home / "memories" / FILES[target]).write_text("\n§\n".join(lines), encoding="utf-8")

    def change(self, home: str, theme: str, target: Target, operation: tuple[str, int, int]) -> Event | None:
        """What one call of the host's tool does to the file, and the event that the hook makes of it."""
        action, which, number = operation
        key, lines = (home, target), self.lines[home, target]
        content = TEXTS[home][number % len(TEXTS[home])]
        common: dict[str, Any] = {"theme": theme, "home": self.processes[home].home.id, "target": target}
        if action != "remove":
            mine = self.owner.get((*key, content)) == theme
            if content in self.recent[key] and not (mine and action == "add"):
                return None  # two themes that save the same line have a row each
            self.gone_elsewhere.discard((*key, content))
        if action == "add":
            if content not in lines:
                self.write(home, target, [*lines, content])
            self.owner[*key, content] = theme
            return Add(content=content, **common)
        if not lines:
            return None
        old = lines[which % len(lines)]
        parts = [old[start:end] for start in range(len(old)) for end in range(start + 1, len(old) + 1)]
        # The hosts strip it, and refuse what several entries hold.
        told = [part for part in parts if part.strip() and sum(part.strip() in line for line in lines) == 1]
        if not told:
            return None
        # One host tells the whole old entry, the other only the part of it that the model has given.
        hint = {"previous": old} if home == "B" else {"old_text": told[number % len(told)]}
        theme_of_old = self.owner.pop((*key, old), None)
        told_for_sure = key not in self.edited and (*key, old) not in self.gone_elsewhere
        # When hands write it again, it is a new line.
        self.gone_elsewhere.discard((*key, old))
        if action == "remove":
            self.write(home, target, [line for line in lines if line != old])
            return Remove(**hint, **common)
        self.write(home, target, [content if line == old else line for line in lines])
        self.owner[*key, content] = theme_of_old if told_for_sure and theme_of_old else UNKNOWN
        return Replace(content=content, **hint, **common)

    def tell(self, home: str, event: Event | None) -> None:
        if not isinstance(event, Add | Replace | Remove):
            return
        process = self.processes[home]
        # The event learns what the file holds when the hook runs: after the whole batch.
        assert process.files.change(event)

    @rule(home=homes, theme=themes, file=targets, operation=operations)
    def the_agent_changes_an_entry(self, home: str, theme: str, file: Target, operation: tuple[str, int, int]) -> None:
        self.tell(home, self.change(home, theme, file, operation))

    @rule(home=homes, theme=themes, file=targets, batch=st.lists(operations, min_size=2, max_size=4))
    def the_agent_changes_several_at_once(
        self, home: str, theme: str, file: Target, batch: list[tuple[str, int, int]]
    ) -> None:
        for event in [self.change(home, theme, file, operation) for operation in batch]:
            self.tell(home, event)

    @rule(home=homes, file=targets, chosen=st.lists(numbers, max_size=4))
    def hands_edit_the_file(self, home: str, file: Target, chosen: list[int]) -> None:
        texts = TEXTS[home]
        lines = list(dict.fromkeys(texts[number % len(texts)] for number in chosen))
        for line in lines:
            self.owner.setdefault((home, file, line), UNKNOWN if line in self.recent[home, file] else HOME_THEME)
        self.edited.add((home, file))
        self.write(home, file, lines)

    # What happens to processes

    @rule(home=homes)
    def events_are_stored(self, home: str) -> None:
        self.processes[home].drain()

    @rule(home=homes)
    def a_session_begins(self, home: str) -> None:
        self.processes[home].files.reconcile(HOME_THEME, "s")
        self.noted_as_reconciled(home)

    @rule(home=homes)
    def the_process_is_killed_and_another_begins(self, home: str) -> None:
        self.processes[home].die()
        self.processes[home] = Process(self.folder / home, self.database, self.settings)
        self.a_session_begins(home)

    @rule(home=homes)
    def it_is_killed_between_storing_and_noting_that(self, home: str) -> None:
        with (
            patch.object(Spool, "acknowledge", lambda *_: None),
            patch.object(OrphanSpool, "acknowledge", lambda *_: None),
        ):
            self.processes[home].drain(steps=1)
        self.the_process_is_killed_and_another_begins(home)

    @rule(
        home=homes, theme=themes, file=targets, operation=operations, reconciled=st.booleans(),
        dies=st.sampled_from(["", "before accepting", "after accepting"]),
    )  # fmt: skip
    def it_is_killed_in_the_middle_of_a_change(
        self, home: str, theme: str, file: Target, operation: tuple[str, int, int], reconciled: bool, dies: str
    ) -> None:
        """The file is written; the hook has run up to the spool, or not at all. What comes next may be a session that
        begins, or another change.
        """
        gone_elsewhere = set(self.gone_elsewhere)
        event = self.change(home, theme, file, operation)
        self.edited.add((home, file))
        if dies and isinstance(event, Add | Replace | Remove):
            self.processes[home].dies = dies
            with pytest.raises(Killed):
                self.processes[home].files.change(event)
        else:
            self.gone_elsewhere = gone_elsewhere
            if isinstance(event, Add | Replace):
                self.owner[home, file, event.content] = UNKNOWN
        if reconciled:
            self.the_process_is_killed_and_another_begins(home)
        else:
            self.processes[home].die()
            self.processes[home] = Process(self.folder / home, self.database, self.settings)

    @rule(home=homes, dies=st.sampled_from(["before accepting", "after accepting"]))
    def it_is_killed_when_a_session_begins(self, home: str, dies: str) -> None:
        self.processes[home].dies = dies
        with suppress(Killed):
            self.processes[home].files.reconcile(HOME_THEME, "s")
        self.the_process_is_killed_and_another_begins(home)

    @precondition(lambda self: any(self.lines.values()))
    @rule(home=homes, file=targets, which=numbers)
    def somebody_deletes_a_row(self, home: str, file: Target, which: int) -> None:
        self.everything_is_as_in_the_files()
        lines = self.lines[home, file]
        if lines:
            content = lines[which % len(lines)]
            self.sql("delete from memory_entries where target = %s and content = %s", file, content)
            self.gone_elsewhere.add((home, file, content))

    # What must be

    def noted_as_reconciled(self, home: str) -> None:
        for target in TARGETS:
            key, lines = (home, target), self.lines[home, target]
            self.recent[key] = set(lines)
            self.edited.discard(key)
        self.gone_elsewhere = {(h, t, c) for h, t, c in self.gone_elsewhere if c in self.lines[h, t]}
        self.owner = {(h, t, c): theme for (h, t, c), theme in self.owner.items() if c in self.lines[h, t]}

    @rule()
    def everything_is_as_in_the_files(self) -> None:
        for home, process in self.processes.items():
            self.a_session_begins(home)
            process.drain()
        names = {process.home.id: home for home, process in self.processes.items()}
        found = self.sql("select home, target, content, agent_identity from memory_entries")
        rows = sorted((names[home], target, content) for home, target, content, _ in found)
        lines = sorted((home, target, content) for (home, target), lines in self.lines.items() for content in lines)
        assert rows == [line for line in lines if line not in self.gone_elsewhere]
        for home, target, content, theme in found:
            owner = self.owner[names[home], target, content]
            assert owner in (UNKNOWN, theme), f"{content!r} is in theme {theme}, it belongs to {owner}"


def play(dsn: str, folder: Path, *, sequences: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Mirror(dsn, folder),
        settings=profile(
            max_examples=sequences, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck),
            phases=[Phase.generate], database=None, print_blob=False,
        ),
    )  # fmt: skip


def test_rows_equal_the_lines_of_the_files_after_any_sequence_of_changes(database: str, tmp_path: Path) -> None:
    play(database, tmp_path / "homes", sequences=12, steps=20)


@pytest.mark.slow
def test_rows_equal_the_lines_of_the_files_after_long_sequences_of_changes(database: str, tmp_path: Path) -> None:
    play(database, tmp_path / "homes", sequences=150, steps=40)


# --- the whole runtime


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(home: str = "A", **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_on_write": False, "embed_url": "http://127.0.0.1:9", "batch_linger_s": 0}
        (tmp_path / home / "memories").mkdir(parents=True, exist_ok=True)
        running.append(acquire(Settings(**{**values, **changed}), tmp_path / home))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def put(runtime: Runtime, *lines: str, file: str = "MEMORY.md") -> None:
    (runtime.home.path / "memories" / file).write_text("\n§\n".join(lines), encoding="utf-8")


def settled(runtime: Runtime) -> list[tuple[str, str]]:
    """(target, content) of all rows, when a session has begun and all is stored."""
    runtime.reconcile(Identity(), "s")
    runtime._background.submit(lambda: None).result(timeout=20)
    assert runtime.writer.flush(20)
    with psycopg.connect(runtime.database.dsn) as connection:
        return connection.execute("select target, content from memory_entries order by 1, 2").fetchall()


def test_ten_restarts_of_two_homes_lose_nothing_and_double_nothing(start: Callable[..., Runtime]) -> None:
    mine, theirs = [f"mine {number}" for number in range(20)], [f"theirs {number}" for number in range(20)]
    for _ in range(10):
        for home, lines in (("A", mine), ("B", theirs)):
            runtime = start(home)
            put(runtime, *lines)
            settled(runtime)
            release(runtime)
    assert settled(start("A")) == sorted(("memory", line) for line in mine + theirs)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("memory: {memory_enabled: false}", [("user", "tea")]),
        ("memory: {user_profile_enabled: 'off'}", [("memory", "kelp")]),
        ("memory: {memory_enabled: no, user_profile_enabled: 0}", []),
        ("memory: {memory_enabled: 'true', user_profile_enabled: }", [("memory", "kelp"), ("user", "tea")]),
        ("{}", [("memory", "kelp"), ("user", "tea")]),
    ],
)
def test_a_file_that_the_host_does_not_use_is_not_imported(
    start: Callable[..., Runtime], config: str, expected: list[tuple[str, str]]
) -> None:
    runtime = start()
    put(runtime, "kelp")
    put(runtime, "tea", file="USER.md")
    (runtime.home.path / "config.yaml").write_text(config, encoding="utf-8")
    assert settled(runtime) == expected


def test_entries_of_a_file_that_is_turned_off_stay_until_it_is_on_again(start: Callable[..., Runtime]) -> None:
    runtime = start()
    put(runtime, "tea", file="USER.md")
    assert settled(runtime) == [("user", "tea")]
    config = runtime.home.path / "config.yaml"
    config.write_text("memory: {user_profile_enabled: false}", encoding="utf-8")
    put(runtime, "coffee", file="USER.md")
    assert settled(runtime) == [("user", "tea")]
    config.write_text("memory: [broken", encoding="utf-8")
    assert settled(runtime) == [("user", "tea")]
    config.unlink()
    assert settled(runtime) == [("user", "coffee")]


def test_a_file_that_did_not_change_costs_no_event_and_no_snapshot(start: Callable[..., Runtime]) -> None:
    runtime = start()
    put(runtime, *(f"line {number}" for number in range(50)))
    settled(runtime)
    snapshot = runtime.home.state / "snapshot.jsonl"
    before = runtime.writer.counters.offered, snapshot.stat().st_size
    assert before[0] == 50
    for _ in range(5):
        settled(runtime)
    assert (runtime.writer.counters.offered, snapshot.stat().st_size) == before


def test_a_session_that_begins_does_not_wait_for_the_files(start: Callable[..., Runtime]) -> None:
    runtime = start()
    pipe = runtime.home.path / "memories" / "MEMORY.md"
    os.mkfifo(pipe)
    runtime.reconcile(Identity(), "s")  # would hang here: a pipe that nobody writes to cannot be read
    pipe.write_text("kelp", encoding="utf-8")
    runtime._background.submit(lambda: None).result(timeout=20)
    assert runtime.writer.flush(20)
    with psycopg.connect(runtime.database.dsn) as connection:
        assert connection.execute("select content from memory_entries").fetchall() == [("kelp",)]


def test_a_line_deleted_by_hand_goes_from_all_themes_of_its_home(start: Callable[..., Runtime]) -> None:
    runtime = start()
    put(runtime, "tea", "kelp")
    for theme in ("billing", "ops"):
        common: dict[str, Any] = {"theme": theme, "home": runtime.home.id, "target": "memory"}
        assert runtime.files.change(Add(content="tea", **common))
        assert runtime.files.change(Add(content="kelp", **common))
    assert settled(runtime) == [("memory", "kelp"), ("memory", "kelp"), ("memory", "tea"), ("memory", "tea")]
    put(runtime, "kelp")
    assert settled(runtime) == [("memory", "kelp"), ("memory", "kelp")]
    put(runtime)
    assert runtime.files.change(Remove(theme="ops", home=runtime.home.id, target="memory", old_text="kelp"))
    assert settled(runtime) == [("memory", "kelp")], "what billing has saved itself is no agent of ops to remove"


def test_lines_that_the_database_has_lost_come_back_when_the_snapshot_is_deleted(start: Callable[..., Runtime]) -> None:
    runtime = start()
    common: dict[str, Any] = {"theme": "ops", "home": runtime.home.id, "target": "memory"}
    put(runtime, "tea", "kelp", "secret", "beside", "ours")
    for content in ("beside", "ours"):
        assert runtime.files.change(Add(content=content, **common))
    settled(runtime)
    with runtime.database.transaction() as connection:
        marks.add(connection, [("ops", "entries", "secret")])
        # An old backup has neither the rows nor the notes of their removal.
        connection.execute("set session_replication_role = replica")
        connection.execute("delete from memory_entries where content in ('tea', 'secret', 'ours')")
    assert settled(runtime) == [("memory", "beside"), ("memory", "kelp")], "lines that the snapshot has are not new"
    (runtime.home.state / "snapshot.jsonl").unlink()
    assert settled(runtime) == [("memory", content) for content in ("beside", "kelp", "ours", "tea")]
    themes = {content: theme for theme, _, content, *_ in rows(runtime)}
    assert themes == {"beside": "ops", "kelp": "default", "ours": "default", "tea": "default"}


def dies_unstored(runtime: Runtime, event: Add | Replace) -> None:
    """Another process of the home takes a change while Postgres is away, and ends: only its spool has it."""
    process = Process(runtime.home.path, runtime.database, Settings(dsn=runtime.database.dsn))
    assert process.files.change(event)
    process.die()


@pytest.mark.parametrize("late", ["add", "replace"])
@pytest.mark.parametrize(
    ("saved_by", "taken_by", "how"),
    [
        ("garden", "default", "remove"),
        ("default", "garden", "remove"),
        ("garden", "default", "replace"),
        ("default", "garden", "replace"),
        ("garden", "default", "hand"),
    ],
)
def test_a_removed_entry_does_not_come_back_by_a_late_event_of_another_theme(
    start: Callable[..., Runtime], late: str, saved_by: str, taken_by: str, how: str
) -> None:
    red, code, bell = "the door is red", "the door code is 1234", "the door has a bell"
    mine, theirs = start("A", adopt_interval_s=600), start("B", adopt_interval_s=600)
    for runtime in (mine, theirs):
        put(runtime, *[red] * (late == "replace"))
        settled(runtime)
        put(runtime, code)
        saved: dict[str, Any] = {"theme": saved_by, "home": runtime.home.id, "target": "memory", "content": code}
        dies_unstored(runtime, Replace(previous=red, **saved) if late == "replace" else Add(**saved))
    left = [bell] * (how == "replace")
    put(mine, *left)
    taken: dict[str, Any] = {"theme": taken_by, "home": mine.home.id, "target": "memory", "old_text": "code"}
    if how != "hand":
        assert mine.files.change(Replace(content=bell, **taken) if left else Remove(**taken))
    settled(mine)
    for name, runtime in (("A", mine), ("B", theirs)):
        release(runtime)
        assert start(name).writer.flush(20, orphans=True)
        settled(start(name))
    with psycopg.connect(mine.database.dsn) as connection:
        rows = connection.execute("select home, content from memory_entries").fetchall()
    assert sorted(rows) == sorted([(theirs.home.id, code), *((mine.home.id, line) for line in left)])


def test_an_entry_that_is_added_again_once_the_clock_is_right_is_stored(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    common: dict[str, Any] = {"theme": "default", "home": runtime.home.id, "target": "memory"}
    with monkeypatch.context() as clock:
        clock.setattr(reconcile, "now", lambda: now() + timedelta(hours=1))
        put(runtime, "kelp")
        assert runtime.files.change(Add(content="kelp", **common))
        put(runtime)
        assert runtime.files.change(Remove(previous="kelp", **common))
        assert settled(runtime) == []
    release(runtime)
    runtime = start()
    put(runtime, "kelp")
    assert runtime.files.change(Add(content="kelp", **common))
    assert settled(runtime) == [("memory", "kelp")]


@pytest.mark.parametrize("saved", ["kelp\n", " kelp", "red\r\nkelp", "red\rkelp \r\n"])
def test_an_entry_stays_however_its_spaces_and_line_ends_were_written(
    start: Callable[..., Runtime], saved: str
) -> None:
    runtime = start()
    in_file = "\n".join(saved.strip().splitlines())
    common: dict[str, Any] = {"theme": "default", "home": runtime.home.id, "target": "memory"}
    put(runtime, in_file)
    assert runtime.files.change(Add(content=saved, **common))
    assert [settled(runtime) for _ in range(2)] == [[("memory", in_file)]] * 2
    put(runtime, in_file, "nori")
    assert runtime.files.change(Add(content="nori ", **common))
    put(runtime, in_file)
    assert runtime.files.change(Replace(old_text="nori", content=saved, **common))
    assert settled(runtime) == [("memory", in_file)]
    put(runtime)
    assert runtime.files.change(Remove(old_text=in_file, **common))
    assert settled(runtime) == []


KILLED_IN_A_CHANGE = """
import os, signal, sys
from hermes_memory_pgvector.mirror.reconcile import Reconciler
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import Add, Replace
from hermes_memory_pgvector.outbox.spool import Spool

home = Home(sys.argv[1])
spool = Spool(home.spool, bytes_max=1 << 20, window_max=9)

def accept(event):
    assert sys.argv[2] == "noted" or spool.append(event)
    os.kill(os.getpid(), signal.SIGKILL)

common = {"theme": "default", "home": home.id, "target": "memory"}
event = Replace(content="green kelp", old_text="red", **common) if sys.argv[3:] else Add(content="green kelp", **common)
Reconciler(home, accept).change(event)
"""


@pytest.mark.parametrize("killed", ["noted", "spooled"])
@pytest.mark.parametrize("replaced", [["red kelp"], []])
@pytest.mark.parametrize("told", ["kelp", "green"])
@pytest.mark.parametrize("changed", ["", "blue kelp"])
def test_a_change_of_a_killed_process_is_known_to_the_next_change(
    start: Callable[..., Runtime], killed: str, replaced: list[str], told: str, changed: str
) -> None:
    """A host that tells a part of the old entry alone leaves it to us to know what that part was of."""
    runtime = start(adopt_interval_s=600)
    put(runtime, *replaced)
    settled(runtime)
    put(runtime, "green kelp")
    command = [sys.executable, "-P", "-c", KILLED_IN_A_CHANGE, str(runtime.home.path), killed, *replaced]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    put(runtime, *filter(None, [changed]))
    common: dict[str, Any] = {"theme": "default", "home": runtime.home.id, "target": "memory", "old_text": told}
    assert runtime.files.change(Replace(content=changed, **common) if changed else Remove(**common))
    assert runtime.writer.flush(20)
    release(runtime)
    assert start().writer.flush(20, orphans=True)
    assert settled(start()) == [("memory", "blue kelp")] * bool(changed)


SECRET = "the mail server has password=hunter2-and-more"
MASKED = "the mail server has password=[masked: password]"


def rows(runtime: Runtime) -> list[Any]:
    with psycopg.connect(runtime.database.dsn) as connection:
        columns = "agent_identity, target, content, created_at, tags, metadata"
        return connection.execute(f"select {columns} from memory_entries order by content, 1").fetchall()


def test_masking_entries_replaces_texts_and_adds_and_removes_no_row(start: Callable[..., Runtime]) -> None:
    runtime = start()
    put(runtime, "tea", SECRET, "kelp")
    put(runtime, f"{SECRET} too", file="USER.md")
    for theme in ("billing", "ops"):
        assert runtime.files.change(Add(theme=theme, home=runtime.home.id, target="memory", content=SECRET))
    settled(runtime)
    with psycopg.connect(runtime.database.dsn, autocommit=True) as connection:
        connection.execute("delete from memory_entries where content = 'kelp' or target = 'user'")
    before = rows(runtime)
    assert len(before) == 3
    for masks, secret in ((True, MASKED), (False, SECRET), (True, MASKED)):
        release(runtime)
        runtime = start(mask_secrets_in_entries=masks)
        settled(runtime)
        assert rows(runtime) == [(*row[:2], row[2].replace(SECRET, secret), *row[3:]) for row in before]
        offered = runtime.writer.counters.offered
        settled(runtime)
        assert runtime.writer.counters.offered == offered


@pytest.mark.parametrize("told", [{"old_text": SECRET}, {"old_text": "mail"}, {"old_text": "mail", "previous": SECRET}])
@pytest.mark.parametrize("turned_on", ["before", "after"])
def test_a_masked_entry_follows_the_tool_of_the_host(
    start: Callable[..., Runtime], tmp_path: Path, turned_on: str, told: dict[str, str]
) -> None:
    runtime = start(mask_secrets_in_entries=turned_on == "before")
    common: dict[str, Any] = {"theme": "default", "home": runtime.home.id, "target": "memory"}
    put(runtime, SECRET)
    assert runtime.files.change(Add(content=SECRET, **common))
    assert runtime.writer.flush(20)
    release(runtime)
    runtime = start(mask_secrets_in_entries=True)
    other = SECRET.replace("mail", "web")
    put(runtime, other)
    assert runtime.files.change(Replace(content=other, **told, **common))
    assert settled(runtime) == [("memory", MASKED.replace("mail", "web"))]
    told = {name: text.replace("mail", "web") for name, text in told.items()}
    put(runtime)
    assert runtime.files.change(Remove(**told, **common))
    assert settled(runtime) == []
    if turned_on == "before":
        files = (path for path in (tmp_path / "A" / "pgvector").rglob("*") if path.is_file())
        assert not any(b"hunter2" in path.read_bytes() for path in files)


def test_an_entry_off_the_record_stays_so_when_masks_are_turned_on_and_off(start: Callable[..., Runtime]) -> None:
    runtime = start()
    put(runtime, SECRET)
    event = Add(theme="default", home=runtime.home.id, target="memory", content=SECRET)
    assert runtime.files.change(event, stored=False)
    for masks in (False, True, False):
        release(runtime)
        runtime = start(mask_secrets_in_entries=masks)
        assert settled(runtime) == []
        assert runtime.writer.counters.offered == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The port is 5433", "The port\0 is 5433"),
        ("The port\0 is 5433", "The port is 5433"),
        ("x" * 1500 + " first end", "x" * 1500 + " other end"),
    ],
    ids=["NUL", "no NUL", "cut off"],
)
@pytest.mark.parametrize("known_whole", [True, False])
def test_an_entry_of_which_the_same_is_stored_after_an_edit_stays(
    start: Callable[..., Runtime], before: str, after: str, known_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start("A", content_chars_max=1000)
    put(runtime, before, "beside")
    with monkeypatch.context() as earlier:
        if known_whole:
            # The snapshot of an earlier release.
            earlier.setattr(runtime.home, "stored_form", lambda: str)
        stored = settled(runtime)
    assert len(stored) == 2
    put(runtime, after, "beside")
    assert settled(runtime) == stored


def test_of_two_entries_of_which_the_same_is_stored_one_stays(start: Callable[..., Runtime]) -> None:
    runtime = start("A", content_chars_max=1000)
    put(runtime, "x" * 1500 + " one", "x" * 1500 + " two")
    stored = settled(runtime)
    put(runtime, "x" * 1500 + " two")
    assert settled(runtime) == stored
    put(runtime)
    assert settled(runtime) == []


def test_a_file_on_a_disk_that_is_not_there_loses_no_entry(start: Callable[..., Runtime], tmp_path: Path) -> None:
    runtime = start("A")
    file, disk = runtime.home.file("memory"), tmp_path / "disk.md"
    disk.write_text("tea\n§\nsoap")
    file.symlink_to(disk)
    stored = settled(runtime)
    assert len(stored) == 2
    disk.rename(tmp_path / "away.md")
    assert settled(runtime) == stored
    file.unlink()
    assert settled(runtime) == []


@pytest.mark.parametrize("saved_by", ["default", "ops"])
def test_a_line_that_is_replaced_while_a_session_begins_is_stored_once(
    start: Callable[..., Runtime], saved_by: str
) -> None:
    runtime = start()
    common: dict[str, Any] = {"home": runtime.home.id, "target": "memory"}
    put(runtime, "tea")
    assert runtime.files.change(Add(theme=saved_by, content="tea", **common))
    assert settled(runtime) == [("memory", "tea")]
    put(runtime, "coffee")
    assert settled(runtime) == [("memory", "coffee")], "the session finds the line before the hook tells of it"
    assert runtime.files.change(Replace(theme="ops", previous="tea", content="coffee", **common))
    assert settled(runtime) == [("memory", "coffee")]
    assert [theme for theme, *_ in rows(runtime)] == ["ops"]
