"""The pages: each reads what it shows and fills its template."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ...errors import BadArgument, PgvectorError, explained
from ...hosts.environment import typed
from ...settings import Settings
from ...store import statistics
from ...store.listing import Filter
from ...store.queries import Kind
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from .. import panel, processes, status
from ..check import Check
from ..doctor import report
from ..look import listing, row, stats, themes
from ..overview import Observation, observed
from . import metrics, views
from .reading import Reader, Recent

SEEN_AGE_S_MAX = 5.0
CHECKED_AGE_S_MAX = 30.0
THEMES_READ = 1000
THEMES_MAX = 200
LARGEST_MAX = 8
ROWS_MAX = 50
DAYS = 30
CONTEXT_TURNS = 3
QUERY_CHARS_MAX = 1000
KINDS: dict[str, tuple[Kind, ...]] = {"": ("entries", "turns"), "memory": ("entries",), "turns": ("turns",)}


class Pages:
    """The answers to requests. Safe for any thread."""

    def __init__(self, settings: Settings, home: Path, reader: Reader) -> None:
        self._home, self._reader = home, reader
        self._seen: Recent[Observation] = Recent(lambda: observed(settings, home, themes_max=0), SEEN_AGE_S_MAX)
        self._checked: Recent[list[Check]] = Recent(lambda: report.checks(home, with_canary=False), CHECKED_AGE_S_MAX)

    def overview(self, _: Request) -> Response:
        """What is stored, what waits, what runs, and how the memory grows."""
        seen = self._seen.value()
        growth, largest = None, []
        if not seen.database.problem:
            with self._reader.transaction() as reading:
                growth = stats.growth(reading, stats.last_days(DAYS), "", 1)
                largest = [one for one in statistics.themes(reading, THEMES_READ) if self._reader.shows(one.theme)]
        troubles = processes.troubled(seen.processes, seen.stuck_after_s)
        running = [processes.row(one, seen.stuck_after_s) for one in seen.processes if one.alive]
        facts = [*status.facts(seen), ("Embedder", panel.status(self._home).get("embedder", "unknown"))]
        return self._html(
            "overview", title="Overview", seen=seen, totals=seen.database.totals, facts=facts, growth=growth,
            bars=views.bars(growth["days"]) if growth else [], largest=largest[:LARGEST_MAX], running=running,
            troubles=troubles, embedder=processes.embedder_problem(seen.processes),
        )  # fmt: skip

    def themes(self, _: Request) -> Response:
        """The largest themes."""
        with self._reader.transaction() as reading:
            found = statistics.themes(reading, THEMES_READ)
            mine = [one for one in found if self._reader.shows(one.theme)]
            shown = themes.described(reading, mine[:THEMES_MAX])
        hidden, more = len(found) - len(mine), len(mine) > len(shown) or len(found) == THEMES_READ
        return self._html("themes", title="Themes", themes=shown, hidden=hidden, more=more)

    def theme(self, request: Request) -> Response:
        """The rows of a theme, the newest first."""
        given = request.query_params
        kind, text = given.get("kind", ""), clean(given.get("text", ""))[:QUERY_CHARS_MAX]
        if kind not in KINDS:
            raise BadArgument(f"kind is {kind[:60]!r}; give memory, turns or nothing")
        session = clean(given.get("session", ""))
        with self._reader.transaction() as reading:
            theme = self._reader.theme(reading, given.get("name", ""))
            wanted = Filter(theme=theme, session=session, text=text)
            rows, after = listing.page(reading, KINDS[kind], wanted, ROWS_MAX, given.get("after", ""))
        return self._html(
            "theme", title=views.name_of(theme), theme=theme, rows=rows, after=after, kind=kind, text=text,
            session=session, later=bool(given.get("after")),
        )  # fmt: skip

    def search(self, request: Request) -> Response:
        """What a recall finds, with the reasons."""
        given = request.query_params
        query, name = clean(given.get("q", ""))[:QUERY_CHARS_MAX], clean(given.get("theme", ""))
        scope = "all" if given.get("scope") == "all" else "current"
        found = None
        if query.strip():
            name, answers = self._reader.search(query, name, scope)
            found = [("Entries", "entries", answers["entries"]), ("Turns", "turns", answers["turns"])]
        return self._html("search", title="Search", query=query, theme=name, scope=scope, found=found)

    def row(self, request: Request) -> Response:
        """An entry or a turn with its history, its neighbours and the commands that change it."""
        given = request.query_params
        kind: Kind = "turns" if given.get("kind") == "turns" else "entries"
        number = _number(given.get("id", ""))
        with self._reader.transaction() as reading:
            theme = self._reader.theme(reading, given.get("theme", ""))
            found = row.look_up(reading, self._home, kind, theme, number, CONTEXT_TURNS)
        title = f"{'Turn' if kind == 'turns' else 'Entry'} {found.row.id if found.row else number}"
        return self._html(
            "row", title=title, theme=theme, kind=kind, found=found, number=number,
            facts=row.facts(found) if found.row else [],
            commands=views.commands(self._home, kind, found.row.id, theme) if found.row else [],
        )  # fmt: skip

    def doctor(self, _: Request) -> Response:
        """What `doctor` finds."""
        return self._html("doctor", title="Doctor", checks=self._checked.value())

    def metrics(self, _: Request) -> Response:
        """The metrics in the text format of Prometheus."""
        return PlainTextResponse(metrics.text_of(self._seen.value()), headers={"content-type": metrics.CONTENT_TYPE})

    def ready(self, _: Request) -> Response:
        """Whether the database answers and its schema fits."""
        problem = self._seen.value().database.problem
        return PlainTextResponse("the database cannot be used\n" if problem else "ready\n", 503 if problem else 200)

    def _html(self, name: str, /, **values: Any) -> Response:
        return HTMLResponse(views.page(name, typed=partial(typed, home=self._home), **values))


def failed(_: Request, error: Exception) -> Response:
    """The page of an error."""
    misuse = isinstance(error, BadArgument)
    reason = explained(error) if isinstance(error, PgvectorError) else "there is no such page"
    code = 400 if misuse else 503 if isinstance(error, PgvectorError) else 404
    heading = {400: "This cannot be shown", 503: "The memory cannot be read now", 404: "Not found"}[code]
    return HTMLResponse(views.page("error", title=heading, code=code, reason=safe_line(reason, 600)), code)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 19):
        raise BadArgument(f"the id is {text[:60]!r}; give a whole number")
    return int(text)
