"""In any order of changes, sessions, kills and reliefs, no line is lost that nobody removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import not_on_citus
import psycopg
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hermes_memory_pgvector.mirror.entries import DELIMITER
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.mirror.memory_file import MemoryFile
from hermes_memory_pgvector.mirror.reconcile import Reconciler
from hermes_memory_pgvector.mirror.relief import Relief
from hermes_memory_pgvector.model import Add, Remove
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.write.batches import BatchProcessor

HOME_THEME, OTHER_THEME = "ops", "billing"
CAP = 40

themes = st.sampled_from([HOME_THEME, OTHER_THEME])
numbers = st.integers(0, 20)


class Killed(BaseException):
    """The process dies here."""


class Process:
    """What a process does with the files of a home, step by step, on a real spool and a real Postgres."""

    def __init__(self, path: Path, database: Database, settings: Settings) -> None:
        self.home = Home(path)
        spool = Spool(self.home.spool, bytes_max=1 << 20, window_max=2)
        letters = DeadLetters(self.home.state)
        self._batches = BatchProcessor(spool, letters, database, settings, lambda event: event)
        self.files = Reconciler(self.home, spool.append)
        self.relief = Relief(self.home, database, settings, self.files, lambda _: True, theme=HOME_THEME)

    def drain(self) -> None:
        while self._batches.step(None, lambda: False):
            pass

    def die(self) -> None:
        self._batches.sources.abandon()


class Sequences(RuleBasedStateMachine):
    """One home with two processes. Every line is a new one, so that it is known who wrote and who removed it."""

    ever_relieved = 0

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__()
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.dsn = folder, dsn
        (folder / "memories").mkdir(parents=True)
        (folder / "config.yaml").write_text(f"memory: {{memory_char_limit: {CAP}}}\n")
        self.settings = Settings(dsn=dsn, adopt_interval_s=1)  # type: ignore[arg-type]
        self.database = Database(self.settings, folder)
        self.rows("truncate memory_entries, memory_events, memory_tombstones, memory_history cascade returning 1")
        self.processes = [Process(folder, self.database, self.settings) for _ in range(2)]
        self.written, self.removed = 0, set[str]()
        self.relieved: set[str] = set()
        self.file.write_text("")

    @property
    def file(self) -> Path:
        return self.folder / "memories" / "MEMORY.md"

    def teardown(self) -> None:
        Sequences.ever_relieved += len(self.relieved)
        self.nothing_is_lost()
        for process in self.processes:
            process.die()
        self.database.close()

    def rows(self, statement: str) -> list[str]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.replace(" returning 1", "").encode())
            return [row[0] for row in cursor.fetchall()] if cursor.description else []

    def lines(self) -> list[str]:
        return list(filter(None, self.file.read_text().split(DELIMITER)))

    def new_line(self) -> str:
        self.written += 1
        line = f"line {self.written} {'x' * (self.written % 7)}".strip()
        self.file.write_text(DELIMITER.join([*self.lines(), line]))
        return line

    def without_a_line(self, which: int) -> str:
        lines = self.lines()
        if not lines:
            return ""
        line = lines.pop(which % len(lines))
        self.file.write_text(DELIMITER.join(lines))
        self.removed.add(line)
        return line

    @initialize()
    def the_file_is_full(self) -> None:
        self.hands_add_lines(5)
        self.the_file_is_relieved(False)

    @rule(which=st.booleans(), theme=themes, count=st.integers(1, 4))
    def an_agent_adds_lines(self, which: bool, theme: str, count: int) -> None:
        process = self.processes[which]
        for _ in range(count):
            process.files.change(Add(theme=theme, home=process.home.id, target="memory", content=self.new_line()))

    @rule(which=st.booleans(), theme=themes, number=numbers)
    def an_agent_removes_a_line(self, which: bool, theme: str, number: int) -> None:
        process, line = self.processes[which], self.without_a_line(number)
        if line:
            process.files.change(Remove(theme=theme, home=process.home.id, target="memory", old_text=line))

    @rule(count=st.integers(1, 4))
    def hands_add_lines(self, count: int) -> None:
        for _ in range(count):
            self.new_line()

    @rule(number=numbers)
    def hands_remove_a_line(self, number: int) -> None:
        self.without_a_line(number)

    @rule(which=st.booleans())
    def events_are_stored(self, which: bool) -> None:
        self.processes[which].drain()

    @rule(which=st.booleans())
    def a_session_begins(self, which: bool) -> None:
        self.processes[which].files.reconcile(HOME_THEME, "s")

    @rule(which=st.booleans())
    def a_process_is_killed(self, which: bool) -> None:
        self.processes[which].die()
        self.processes[which] = Process(self.folder, self.database, self.settings)

    @rule(which=st.booleans())
    def the_file_is_relieved(self, which: bool) -> None:
        before = self.lines()
        (done,) = self.processes[which].relief.carry_out()
        assert [*done.plan.after] == self.lines()
        self.relieved |= set(before) - set(self.lines())

    @rule(
        which=st.booleans(),
        step=st.sampled_from([(Relief, "_verify"), (Relief, "_replace"), (MemoryFile, "replace")]),
        after=st.booleans(),
    )
    def a_relief_is_killed(self, which: bool, step: tuple[Any, str], after: bool) -> None:
        owner, name = step
        call: Callable[..., Any] = getattr(owner, name)

        def die(*args: Any) -> None:
            if after:
                call(*args)
            raise Killed

        before = self.lines()
        with patch.object(owner, name, die), suppress(Killed):
            self.processes[which].relief.carry_out()
        self.relieved |= set(before) - set(self.lines())
        self.a_process_is_killed(which)

    @rule()
    def nothing_is_lost(self) -> None:
        for process in self.processes:
            process.files.reconcile(HOME_THEME, "s")
            process.drain()
        stored = set(self.rows("select content from memory_entries"))
        assert {*self.lines(), *self.relieved} <= stored
        assert stored <= {*self.lines(), *self.relieved, *self.removed}


def play(dsn: str, folder: Path, *, sequences: int, steps: int) -> None:
    Sequences.ever_relieved = 0
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Sequences(dsn, folder),
        settings=profile(
            max_examples=sequences, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck),
            phases=[Phase.generate], database=None, print_blob=False,
        ),
    )  # fmt: skip
    assert Sequences.ever_relieved > sequences


def test_no_line_is_lost_in_any_sequence(database: str, tmp_path: Path) -> None:
    play(database, tmp_path / "home", sequences=12, steps=25)


@not_on_citus.long
@pytest.mark.slow
def test_no_line_is_lost_in_long_sequences(database: str, tmp_path: Path) -> None:
    play(database, tmp_path / "home", sequences=150, steps=50)
