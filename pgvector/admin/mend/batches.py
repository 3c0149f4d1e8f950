"""Work in batches beside running agents: each in a transaction of its own, with rests, a progress bar and Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...settings import Settings, load
from ...store import pruning
from ...store.connection.database import Connection, Database
from ...text.theme_names import covers
from ..console import Console
from ..database import start_server, theme_named
from ..limits import limited

T = TypeVar("T")
# A batch that takes longer than this is halved the next time; a faster one is doubled.
BATCH_S = 0.2
ROWS_MIN, ROWS_MAX = 16, 512
# The rest after a batch, as a part of the time that it took: agents have the server for themselves then.
REST_SHARE, REST_S_MAX = 1.0, 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work: `batch` does up to so many rows, `total` in all, and returns how many; 0 ends it."""

    name: str
    total: int
    batch: Callable[[Connection, int], int]


@dataclass
class Done:
    """How many rows were done, and whether Ctrl-C came before the end."""

    rows: int = 0
    interrupted: bool = False


class Memory:
    """The database of a home with its settings, for a command that changes it."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings, self._database = settings, database

    def change(self, change: Callable[[Connection], T], statement_s: float | None = None) -> T:
        """The result of a change in a transaction of its own, with `statement_s` as in `limits.limited`."""
        limit = self._database.transaction() if statement_s is None else limited(self._database, statement_s)
        with limit as connection:
            return change(connection)

    def run(self, tasks: Iterable[Task], total: int, console: Console) -> Done:
        """Do the tasks, of `total` rows, one after the other. What a batch has changed is stored, also after Ctrl-C."""
        done, rows, ended = Done(), ROWS_MIN, 0
        try:
            with console.progress() as progress:
                bar = progress.add_task("", total=total)
                for task in tasks:
                    progress.update(bar, description=task.name)
                    changed = -1
                    while changed:
                        began = time.monotonic()
                        changed = self._batch(task, rows)
                        took_s = time.monotonic() - began
                        done.rows += changed
                        progress.update(bar, advance=changed)
                        rows = max(ROWS_MIN, rows // 2) if took_s > BATCH_S else min(ROWS_MAX, rows * 2)
                        time.sleep(min(REST_S_MAX, REST_SHARE * took_s))
                    ended += task.total
                    progress.update(bar, completed=ended)
        except KeyboardInterrupt:
            done.interrupted = True
        return done

    def _batch(self, task: Task, rows: int) -> int:
        return self.change(lambda connection: task.batch(connection, rows))


def themes_named(connection: Connection, names: Sequence[str], settings: Settings) -> list[str]:
    """The themes with rows that are named, also by patterns; all without a name."""
    every = pruning.themes(connection)
    if not names:
        return every
    patterns = [name if "*" in name or "?" in name else theme_named(connection, name, settings) for name in names]
    return [theme for theme in every if any(theme == name or covers(name, theme) for name in patterns)]


@contextmanager
def opened(home: Path) -> Iterator[Memory]:
    """The memory of a home with a verified schema; starts an embedded server that is stopped."""
    settings = load(home)
    with closing(Database(settings, home)) as database:
        start_server(database)
        with database.connection() as connection:
            database.verify(connection)
        yield Memory(settings, database)
