"""Input and output of a command: data on stdout, messages on stderr, colours in a terminal only."""

from __future__ import annotations

import argparse
import getpass
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..errors import BadArgument, PgvectorError, SettingsError
from ..hosts.environment import typed
from ..text.sanitize import safe_line
from ..version import __version__

# The exit code of a command that has done its work and found something to attend to.
ATTENTION = 3
PIPED_COLUMNS = 160
# For terminals without these characters.
_MARKS = str.maketrans({"✓": "+", "✗": "x", "→": "->", "…": "..."})
ANSWERS_MAX = 100
TAGS_CHARS_MAX = 200
LAST_COLUMN_MIN = 16

Cell: TypeAlias = str | int | Text | None


class _Rate(ProgressColumn):
    """Rows a second of a task."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


class _Bars(Progress):
    """Progress bars; one without anything to do is not shown."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        return super().make_tasks_table([task for task in tasks if task.total != 0])


class Console:
    """Output and questions of one command on a home. With `as_json` stdout gets one JSON document and nothing else.

    Enter takes the default answer of a question. The end of the input raises KeyboardInterrupt, as Ctrl-C does, and
    more than `ANSWERS_MAX` answers SettingsError.
    """

    def __init__(self, as_json: bool, home: Path | None = None) -> None:
        self.as_json, self._home = as_json, home
        self._answers = 0
        # Without a terminal there is no edge to wrap at, but a table needs some width.
        width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_COLUMNS
        # It only renders: rich would write an empty text to stdout, which a full disk refuses.
        terminal = sys.stdout.isatty() or None
        self._out = RichConsole(
            file=io.StringIO(), force_terminal=terminal, highlight=False, markup=False, emoji=False, width=width
        )
        self._err = RichConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def width(self) -> int:
        """The columns of stdout."""
        return self._out.width

    def data(self, value: Any) -> None:
        """Print the document of `--json`, in ASCII; nothing without `--json`."""
        if self.as_json:
            _write(f"{json.dumps(value, indent=2, default=json_default)}\n")

    def show(self, *lines: Text | Table | str) -> None:
        """Print a result for people; nothing with `--json`."""
        if self.as_json:
            return
        _write(self.rendered(*lines))

    def rendered(self, *lines: Text | Table | str, wrap: bool = False) -> str:
        """What `show` prints; with `wrap`, no line is wider than stdout."""
        with self._out.capture() as printed:
            for line in lines:
                fits = wrap or not isinstance(line, Table) or (line.min_width or 0) <= self.width
                if isinstance(line, Table) and not fits:
                    line.width = line.min_width  # the terminal wraps it, which is better than columns that are cut
                self._out.print(line, soft_wrap=isinstance(line, str) and not wrap, crop=fits)
        text = printed.get()
        if self._out.is_terminal:
            return text
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())  # rich pads cells with spaces

    def say(self, text: str, quoted: str = "") -> None:
        """Print a message or a next step on stderr, and below it a text of somebody else as it is.

        The commands of the message name the home where they have to.
        """
        self._err.print(_with_marks_for(sys.stderr, typed(text, self._home) if self._home else text))
        if quoted:
            self._err.print(quoted)

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """A spinner for the duration of a block; silent when stderr is not a terminal."""
        return self._err.status(text, spinner="line")

    def progress(self) -> Progress:
        """A progress bar with rate and time left, used as a context manager; silent when stderr is not a terminal."""
        return _Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=self._err,
            disable=not self._err.is_terminal,
        )

    # Questions: plain lines, which work in every terminal and in a pipe

    def choose(self, question: str, options: Sequence[tuple[str, str]], default: int) -> int:
        """The index of the chosen option; each option is a name and a remark."""
        self.say(question)
        for number, (name, remark) in enumerate(options, 1):
            self.say(f"  {number}  {name}{f': {remark}' if remark else ''}")
        while True:
            given = self._line(f"Number [{default + 1}]: ")
            if not given:
                return default
            if given.isascii() and given.isdecimal() and 1 <= int(given) <= len(options):
                return int(given) - 1
            self.say(f"type a number from 1 to {len(options)}")

    def ask(self, question: str, default: str = "", *, shown: str = "") -> str:
        """A line of text; `shown` is printed in place of a secret default."""
        self.say(question)
        return self._line(f"[{shown or default}]: " if default else ": ") or default

    def lines(self, question: str, lines_max: int) -> list[str]:
        """The lines up to an empty one or the end of the input. Raises SettingsError for more than `lines_max`."""
        self.say(question)
        found: list[str] = []
        # Lines of a pipe need no prompt, which would stand before the document of `--json`.
        prompt = ": " if sys.stdin.isatty() and not self.as_json else ""
        with suppress(EOFError):
            while line := _answer(prompt).strip():
                if len(found) == lines_max:
                    raise SettingsError(f"there are more than {lines_max} lines; nothing is changed")
                found.append(line)
        return found

    def hidden(self, question: str) -> str:
        """A line that is not echoed."""
        self.say(f"{question} (input is hidden)")
        return self._line(": ", getpass.getpass if sys.stdin.isatty() else input)

    def confirm(self, question: str, *, default: bool = True) -> bool:
        """Yes or no. Raises BadArgument with `as_json`."""
        if self.as_json:
            raise BadArgument("--json excludes questions; add --yes")
        while True:
            given = self._line(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
            if given in ("", "y", "yes", "n", "no"):
                return given in ("y", "yes") if given else default

    def check_consent(self, args: argparse.Namespace, remedy: str = "") -> None:
        """Raise BadArgument, with what to do instead, when `--json` would have to ask a question."""
        if self.as_json and not (args.yes or getattr(args, "dry_run", False)):
            plan = "--dry-run to see the plan, or " if "dry_run" in args else ""
            raise BadArgument(f"--json excludes questions; {remedy or f'add {plan}--yes'}")

    def agreed(self, args: argparse.Namespace, question: str) -> bool:
        """Whether `--yes` or the answer agrees to a change. Says that nothing is changed when it does not."""
        self.check_consent(args)
        if args.yes or self.confirm(question, default=False):
            return True
        self.say("nothing is changed")
        return False

    def _line(self, prompt: str, read: Callable[[str], str] = input) -> str:
        self._answers += 1
        if self._answers > ANSWERS_MAX:
            raise SettingsError(f"gave up after {ANSWERS_MAX} answers; nothing is changed")
        try:
            return _answer(prompt, read).strip()
        except EOFError:
            self.say("no answer: the input has ended; with --yes nothing is asked")
            raise KeyboardInterrupt from None


def _answer(prompt: str, read: Callable[[str], str] = input) -> str:
    """A line of the input. The prompt is on stderr, unless stdout is a terminal: `input` edits the line there."""
    shown = prompt.encode("ascii", "replace").decode()
    if read is input and not sys.stdout.isatty():
        sys.stderr.write(shown)
        sys.stderr.flush()
        shown = ""
    return read(shown)


def version(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """The `version` command."""
    console.data({"version": __version__})
    console.show(f"hermes-pgvector {__version__}")
    return 0


def facts_table(rows: Iterable[tuple[str, str]]) -> Table:
    """A table of names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def rows_table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    """A table of one or more rows, each with its cells by column. Numbers are right-aligned; the last column wraps.

    Its `min_width` has room for the other columns and LAST_COLUMN_MIN characters of the last one.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    *others, last = rows[0]
    for name in others:
        right = any(isinstance(row[name], int) for row in rows)
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column(last, overflow="fold")
    table.min_width = -2
    for name in rows[0]:
        width = max(cell_len(name), *(_cell(row[name]).cell_len for row in rows))
        table.min_width += 2 + (min(width, LAST_COLUMN_MIN) if name == last else width)
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def _cell(value: Cell) -> Text:
    if isinstance(value, Text):
        return value
    return Text(f"{value:,}" if isinstance(value, int) else value or "")


def counted(number: int, one: str, many: str = "") -> str:
    """`1 row`, `2 rows`, `3 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def local_time(at: datetime | None) -> str:
    """A time in the time zone of this machine; empty for None."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if at else ""


def labels(tags: Sequence[str], expires_at: datetime | None) -> str:
    """The tags and the expiry of an entry, to be added to a line about it; empty when it has none."""
    shown = f", tags {safe_line(' '.join(tags), TAGS_CHARS_MAX)}" if tags else ""
    return shown + (f", expires {local_time(expires_at)}" if expires_at else "")


def age(at: datetime | None) -> str:
    """The time since `at`, such as `3 hours ago`; empty for None."""
    if at is None:
        return ""
    return f"{duration((datetime.now(UTC) - at).total_seconds())} ago"


def duration(seconds: float) -> str:
    """A time span in its largest unit, such as `3 hours`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return "less than a minute"


def json_default(value: Any) -> str:
    """The text of a value that JSON has no type for; a time in ISO 8601."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _with_marks_for(stream: TextIO, text: str) -> str:
    """The text with marks that the stream's terminal has; those of ASCII differ, too."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text if "✓".encode(encoding, "ignore") else text.translate(_MARKS)


def _write(text: str) -> None:
    """Write to stdout and flush. Raises BrokenPipeError, and PgvectorError for every other failure."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        shown = _with_marks_for(sys.stdout, text)
        sys.stdout.write(shown.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the interpreter fails again when it flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise PgvectorError(f"stdout cannot be written: {error.strerror}") from None
