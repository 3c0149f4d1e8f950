"""browse: search in the terminal as you type, open a row, forget an entry, or take a change back."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition, FilterOrBool
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    ScrollOffsets,
    VSplit,
    Window,
)
from prompt_toolkit.styles import Style

from ...errors import BadArgument, PgvectorError, explained
from ...model import Caller, Hit, RecallRequest
from ...runtime import Runtime
from ...settings import load
from ...store.history import take_back
from ...store.listing import Filter, listed
from ...store.queries import Kind
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ...tools.entries import forget
from ..console import Console, local_time
from ..database import permitted
from .listing import KINDS, described
from .preview import warm
from .row import Found, look_up, shown

T = TypeVar("T")

ROWS_MAX = 50
CONTEXT = 3
PAUSE_S = 0.15
ESCAPE_S = 0.05
PAGE = 10
LINES_OF_ITEM = 2
WIDTH_MIN = 20
STATUS_LINES_MAX = 4
TEXT_CHARS_MAX = 400
FORGET, UNDO = "forget entry", "take back the last change of entry"
LIST_KEYS = "↑ ↓ select   Enter open   Ctrl-C quit"
ROW_KEYS = "↑ ↓ scroll   Esc back   f forget   u undo   Ctrl-C quit"
STYLE = Style.from_dict({"head": "ansibrightblack", "chosen": "reverse", "keys": "reverse", "message": "bold"})


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the list."""

    kind: Kind
    theme: str
    id: int
    head: str
    text: str


class Memory:
    """What the browser reads and changes, of one theme. Each method may block, and raises PgvectorError."""

    def __init__(self, runtime: Runtime, home: Path, theme: str) -> None:
        self._runtime, self._home, self.theme = runtime, home, theme

    def find(self, query: str) -> tuple[list[Item], str]:
        """The rows that an agent would find, best first, and what to know; without a query the newest ones."""
        if not query.strip():
            rows = self._newest()
            return rows, "" if rows else f"theme {self.theme} has no rows; hermes-pgvector themes lists those that do"
        settings = self._runtime.settings
        request = RecallRequest(
            query=query, scope=self._runtime.scope(self.theme, "", ""), limit=min(ROWS_MAX, settings.recall_limit_max),
            budget_s=settings.recall_budget_s,
        )  # fmt: skip
        kinds: tuple[Kind, ...] = tuple(KINDS)
        answers = self._runtime.recall_each(kinds, request)
        found = [(hit, kind) for kind, recall in zip(kinds, answers, strict=True) for hit in recall.texts]
        rows = [_of_hit(hit, kind) for hit, kind in sorted(found, key=lambda each: -each[0].score)][:ROWS_MAX]
        degraded = dict.fromkeys(reason for recall in answers for reason in recall.degraded)
        if degraded:
            return rows, f"degraded: {safe_line('; '.join(degraded), TEXT_CHARS_MAX)}"
        return rows, "" if rows else "nothing found"

    def _newest(self) -> list[Item]:
        theme = self._runtime.own(self.theme)[0]
        with self._runtime.database.connection() as reading:
            rows = [row for kind in KINDS for row in listed(reading, kind, Filter(theme=theme), ROWS_MAX)]
        rows.sort(key=lambda row: row.at, reverse=True)
        return [
            Item(row.kind, row.theme, row.id, f"{local_time(row.at)}, {described(row)}", row.content)
            for row in rows[:ROWS_MAX]
        ]

    def open(self, item: Item) -> Found:
        """All that is known of a row."""
        with self._runtime.database.connection() as reading:
            return look_up(reading, self._home, item.kind, item.theme, item.id, CONTEXT)

    def forget(self, item: Item) -> str:
        """Remove an entry, as an agent does; returns what to know about it."""
        answer = forget(self._runtime, {"id": item.id}, Caller(theme=item.theme))
        return f"entry {item.id} is forgotten; {answer.get('note', 'u takes it back')}"

    def undo(self, found: Found) -> int:
        """Restore the newest version of the history; returns the id of its row. Raises BadArgument without one."""
        if not found.history:
            raise BadArgument("there is nothing to take back: no version of it is in the history")
        with self._runtime.database.transaction() as writing:
            number, _ = take_back(writing, found.history[0])
        if number is None:
            raise BadArgument("its theme has an entry with this text already")
        return number


class Browser:
    """The screen: a list of rows, or one of them. Use it on one thread; what may block runs on another."""

    def __init__(self, memory: Memory, render: Callable[[Found], str]) -> None:
        self._memory, self._render = memory, render
        self._items: list[Item] = []
        self._chosen, self._line = 0, 0
        self._opened: tuple[Item, Found] | None = None
        self._message, self._asked = "", ""
        self._searching: asyncio.Task[None] | None = None
        self._query = Buffer(multiline=False, on_text_changed=lambda _: self._search())
        self._body = FormattedTextControl(
            self._text, focusable=True, show_cursor=False, get_cursor_position=self._cursor
        )
        self._pane = Window(self._body, get_vertical_scroll=self._top, scroll_offsets=ScrollOffsets(top=1))
        label = Window(FormattedTextControl("Search: "), width=len("Search: "))
        height = Dimension(min=1, max=STATUS_LINES_MAX)
        status = FormattedTextControl(self._status)
        keys = Window(status, height=height, dont_extend_height=True, wrap_lines=True, style="class:keys")
        rows = [VSplit([label, Window(BufferControl(self._query))], height=1), self._pane, keys]
        self.application: Application[None] = Application(
            Layout(HSplit(rows)), style=STYLE, key_bindings=self._bindings(), full_screen=True
        )
        self.application.ttimeoutlen = ESCAPE_S

    def run(self) -> None:
        """Show the newest rows and wait until the user leaves."""
        self.application.run(pre_run=self._begin)

    def _begin(self) -> None:
        # By default the signal would leave the terminal as it is now.
        ended = SystemExit(128 + signal.SIGTERM)
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not on the main thread
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGTERM, lambda: self.application.exit(exception=ended)
            )
        self._search()

    # What is seen

    def _cursor(self) -> Point:
        """The second of two lines that have to be visible: the chosen row, or the first lines of an opened one."""
        if not (self._opened or self._items):
            return Point(0, 0)
        return Point(0, 1 + (self._line if self._opened else LINES_OF_ITEM * self._chosen))

    def _top(self, window: Window) -> int:
        return self._line if self._opened else window.vertical_scroll

    def _text(self) -> AnyFormattedText:
        if self._opened:
            text = self._render(self._opened[1])
            height = self._pane.render_info.window_height if self._pane.render_info else 1
            self._line = min(self._line, max(0, text.count("\n") - height))
            return ANSI(text)
        width = max(WIDTH_MIN, get_app().output.get_size().columns)
        lines: StyleAndTextTuples = []
        for place, item in enumerate(self._items):
            style = "class:chosen" if place == self._chosen else ""
            head = safe_line(f"{KINDS[item.kind]} {item.id}  {item.head}", width)
            lines += [(style or "class:head", f"{head}\n"), (style, f"  {safe_line(item.text, width - 3)}\n")]
        return lines

    def _status(self) -> AnyFormattedText:
        asked = f"{self._asked} {self._opened[0].id}? y or n" if self._asked and self._opened else ""
        return asked or self._message or (ROW_KEYS if self._opened else LIST_KEYS)

    # What is done

    def _search(self, *, back: bool = False) -> None:
        """Search for the text in the field, once it has not changed for a moment; `back` keeps the chosen row."""
        if self._searching is not None:
            self._searching.cancel()
        self._searching = self.application.create_background_task(self._find(clean(self._query.text), back=back))

    async def _find(self, text: str, *, back: bool) -> None:
        await asyncio.sleep(PAUSE_S)
        found = await self._away(lambda: self._memory.find(text))
        if found is not None:
            chosen = self._items[self._chosen] if back and self._items else None
            self._items, self._message = found
            keys = [(item.kind, item.id) for item in self._items]
            key = chosen and (chosen.kind, chosen.id)
            self._chosen = keys.index(key) if key in keys else 0
        self.application.invalidate()

    async def _away(self, job: Callable[[], T]) -> T | None:
        """The result of a job on another thread; None, and a message, when it fails."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, job)
        except PgvectorError as error:
            self._message = safe_line(explained(error), TEXT_CHARS_MAX)
            return None

    async def _open(self, item: Item, message: str = "") -> None:
        found = await self._away(lambda: self._memory.open(item))
        if found is not None:
            self._opened, self._line, self._message = (item, found), 0, message
            self.application.layout.focus(self._body)
        self.application.invalidate()

    async def _forget(self, item: Item) -> None:
        message = await self._away(lambda: self._memory.forget(item))
        if message is not None:
            await self._open(item, message)
        self.application.invalidate()

    async def _undo(self, item: Item, found: Found) -> None:
        number = await self._away(lambda: self._memory.undo(found))
        if number is not None:
            await self._open(replace(item, id=number), f"restored as entry {number}; memory files are unchanged")
        self.application.invalidate()

    def _enter(self) -> None:
        if self._chosen < len(self._items):
            self.application.create_background_task(self._open(self._items[self._chosen]))

    def _back(self) -> None:
        if self._opened and self._items:
            self._items[self._chosen] = self._opened[0]
        self._opened, self._message = None, ""
        self.application.layout.focus(self._query)
        self._search(back=True)

    def _move(self, steps: int) -> None:
        self._message = ""
        if self._opened:
            self._line = max(0, self._line + steps)
        else:
            self._chosen = max(0, min(len(self._items) - 1, self._chosen + steps))

    def _ask(self, what: str) -> None:
        self._asked, self._message = "", "that is for entries only"
        if self._opened and self._opened[0].kind == "entries":
            gone = what == FORGET and self._opened[1].row is None
            self._asked, self._message = ("", "this entry is gone already") if gone else (what, "")

    def _answer(self, *, yes: bool) -> None:
        asked, self._asked = self._asked, ""
        if yes and self._opened:
            item, found = self._opened
            doing = self._forget(item) if asked == FORGET else self._undo(item, found)
            self.application.create_background_task(doing)

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        asked, opened = Condition(lambda: bool(self._asked)), Condition(lambda: self._opened is not None)

        def bind(name: str, when: FilterOrBool, do: Callable[[], object]) -> None:
            @keys.add(name, filter=when)
            def _(event: KeyPressEvent) -> None:  # noqa: ARG001
                do()

        bind("c-c", True, lambda: self.application.exit())
        for name, steps in (("up", -1), ("down", 1), ("pageup", -PAGE), ("pagedown", PAGE)):
            bind(name, ~asked, partial(self._move, steps))
        bind("enter", ~opened, self._enter)
        bind("escape", opened & ~asked, self._back)
        bind("f", opened & ~asked, partial(self._ask, FORGET))
        bind("u", opened & ~asked, partial(self._ask, UNDO))
        for name in ("y", "n", "escape"):
            bind(name, asked, partial(self._answer, yes=name == "y"))
        return keys


def browse(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Run the browser until it is left. Returns 0. Raises BadArgument without a terminal."""
    if console.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadArgument("browse needs a terminal; in a pipe use: hermes-pgvector list, search or show")
    settings = load(home)
    theme = permitted(args.theme, home, settings)
    with warm(settings, home, console) as runtime:
        Browser(Memory(runtime, home, theme), lambda found: console.rendered(*shown(found), wrap=True)).run()
    return 0


def _of_hit(hit: Hit, kind: Kind) -> Item:
    what = hit.target or hit.role
    return Item(
        kind, hit.theme, hit.id, f"{local_time(hit.at)}, {hit.theme}, {what}, score {hit.score:.2f}", hit.content
    )
