"""stats: rows and their growth by day, theme, home and source, and the tokens that a turn gets."""

from __future__ import annotations

import argparse
import statistics as mathematics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, time, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import BadArgument, SettingsError
from ...facts.tokens import tokens_of
from ...files import expanded, not_written
from ...hosts.installation import pip_install
from ...settings import Settings, load
from ...store import statistics
from ...store.connection.database import Connection
from ...store.listing import Filter, Listed, listed
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ..console import ATTENTION, Cell, Console, counted, facts_table, rows_table
from ..database import connection, theme_named
from ..limits import COUNT_S_MAX
from .plot import bars
from .preview import before_turn, warm, why_degraded

SOURCE_ROWS = 50_000
SOURCES_MAX = 20
NAME_CHARS_MAX = 128


def stats(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the figures and a plot of the rows by day, or the plot alone. With a file, the plot is a picture there.

    Returns 0, or 3 when recalls for the tokens were degraded.
    """
    settings, days = load(home), last_days(args.days)
    if args.plot is not None:
        return _plot(home, console, args, settings, days)
    with console.busy("counting"), connection(home, COUNT_S_MAX) as reading:
        theme = theme_named(reading, args.theme, settings) if args.theme else ""
        found = growth(reading, days, theme, args.themes)
        questions = listed(reading, "turns", Filter(theme=theme, role="user"), args.questions) if args.questions else []
    blocks, degraded = _blocks(settings, home, console, questions) if questions else ([], [])
    tokens = [tokens_of(block) for block in blocks]
    console.data({**found, "theme": theme, "tokens_max_of_questions": tokens, "degraded_questions": len(degraded)})
    _show(console, found, tokens)
    if degraded:
        console.say(f"degraded: {counted(len(degraded), 'recall')} of {len(blocks)}; the first: {degraded[0]}")
    return ATTENTION if degraded else 0


def _plot(home: Path, console: Console, args: argparse.Namespace, settings: Settings, days: Sequence[datetime]) -> int:
    if args.plot and find_spec("matplotlib") is None:
        raise SettingsError(f"a picture needs matplotlib; to get it: {pip_install('plot')}")
    with console.busy("counting"), connection(home, COUNT_S_MAX) as reading:
        theme = theme_named(reading, args.theme, settings) if args.theme else ""
        found = {**growth(reading, days, theme, args.themes), "theme": theme}
    console.data({**found, "file": args.plot})
    if not args.plot:
        _show_days(console, found)
        return 0
    from .picture import png

    try:
        expanded(args.plot).write_bytes(png(found))
    except OSError as error:
        raise BadArgument(not_written(expanded(args.plot), error)) from None
    console.show(f"wrote {args.plot}")
    return 0


def growth(reading: Connection, days: Sequence[datetime], theme: str, themes_max: int) -> dict[str, Any]:
    """The rows that were added by day, by theme (of the largest) and by source, of one theme or all."""
    by_day = {int(day.key): day for day in statistics.growth_by_day(reading, days, theme)}
    totals = [] if theme else statistics.themes(reading, themes_max)
    new = statistics.growth_by_theme(reading, [total.theme for total in totals], days[0])
    sources = statistics.growth_by_source(reading, days[0], theme, SOURCE_ROWS, SOURCES_MAX)
    added = [(day, by_day.get(place)) for place, day in enumerate(days, 1)]
    return {
        "days": [
            {"day": day.date().isoformat(), "entries": rows.entries if rows else 0, "turns": rows.turns if rows else 0}
            for day, rows in added
        ],
        "themes": [
            {"theme": total.theme, "entries": total.entries, "turns": total.turns,
             "new_entries": rows.entries if rows else 0, "new_turns": rows.turns if rows else 0}
            for total, rows in ((total, new.get(total.theme)) for total in totals)
        ],
        "sources": [asdict(source) for source in sources],
        "sources_of_newest": SOURCE_ROWS,
    }  # fmt: skip


def last_days(count: int) -> list[datetime]:
    """When the last `count` days began in the time zone of this machine, today last."""
    today = datetime.now().astimezone().date()
    return [datetime.combine(today - timedelta(days=back), time()).astimezone() for back in range(count - 1, -1, -1)]


def _blocks(
    settings: Settings, home: Path, console: Console, questions: Sequence[Listed]
) -> tuple[list[str], list[str]]:
    """The block that an agent would get before each of these questions now, and why recalls for them were degraded."""
    with warm(settings, home, console) as runtime, console.progress() as progress:
        blocks = [
            before_turn(runtime, question.theme, clean(question.content))[0]
            for question in progress.track(questions, description="recalling")
        ]
        return blocks, [why for block in blocks if (why := why_degraded(runtime, block))]


def _show_days(console: Console, found: dict[str, Any]) -> None:
    days = found["days"]
    entries, turns = (sum(day[kind] for day in days) for kind in ("entries", "turns"))
    title = f"{counted(entries, 'new entry', 'new entries')} and {counted(turns, 'new turn')} in {len(days)} days"
    rows = [day["entries"] + day["turns"] for day in days]
    plot = bars(rows, days[0]["day"], days[-1]["day"], width=console.width)
    console.show(title, *(["", plot] if any(rows) else []))


def _show(console: Console, found: dict[str, Any], tokens: Sequence[int]) -> None:
    _show_days(console, found)
    if found["themes"]:
        console.show("", rows_table([_theme(theme) for theme in found["themes"]]))
    if found["sources"]:
        console.show("", rows_table([_source(source) for source in found["sources"]]))
        if any(sum(source[kind] for source in found["sources"]) >= SOURCE_ROWS for kind in ("entries", "turns")):
            console.say(f"homes and sources are those of the newest {SOURCE_ROWS:,} entries and turns")
    if tokens:
        middle, most = round(mathematics.median(tokens)), max(tokens)
        line = f"median {middle:,}, at most {most:,}, before the newest {counted(len(tokens), 'question')}"
        console.show("", facts_table([("Tokens a turn gets", line)]))


def _theme(theme: dict[str, Any]) -> dict[str, Cell]:
    return {
        "Entries": theme["entries"],
        "New": theme["new_entries"],
        "Turns": theme["turns"],
        "New turns": theme["new_turns"],
        "Theme": safe_line(theme["theme"], NAME_CHARS_MAX),
    }


def _source(source: dict[str, Any]) -> dict[str, Cell]:
    return {
        "New entries": source["entries"],
        "New turns": source["turns"],
        "Source": safe_line(source["source"], NAME_CHARS_MAX),
        "Home": safe_line(source["home"], NAME_CHARS_MAX),
    }
