"""status: where the memory is, how much is in it, and what waits on this host."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..mirror.home import Home
from ..outbox.dead_letters import DeadLetters
from ..outbox.inspection import Backlog, processes, total
from ..settings import Settings, load
from ..text.sanitize import safe_line
from . import fleet
from .console import Console, age, counted, facts_table, local, rows_table, size
from .overview import Survey, survey

THEME_CHARS_MAX = 40


def status(home: Path, console: Console, *, themes_max: int) -> int:
    """Print the state of a home's memory. Returns 1 when the database cannot be used now, or a writer is stuck."""
    settings = load(home)
    here = Home(home, settings.spool_dir)
    running, aside = processes(here.spool), len(DeadLetters(here.state).ids())
    with console.busy("counting"):
        found = survey(settings, here.path, themes_max=themes_max, sampled=True)
    waiting, stuck_after_s = total(process.waiting for process in running), settings.stuck_after_s
    console.data({**_document(found, settings, here.path, waiting, aside), **fleet.document(running, stuck_after_s)})
    console.show(facts_table([*_lines(found, waiting, aside), ("Processes", fleet.line(running))]))
    if any(process.alive for process in running):
        console.show("", fleet.table(running, stuck_after_s))
    if found.themes:
        console.show("", _themes(found))
    stuck = fleet.stuck(running, stuck_after_s)
    told = [*map(fleet.stuck_line, stuck), *map(fleet.failing_line, fleet.failing(running, stuck_after_s))]
    for problem in [found.problem, *told] if found.problem else told:
        console.say(f"hermes-pgvector: {problem}")
    return 1 if found.problem or stuck else 0


def spool_line(waiting: Backlog) -> str:
    """The events that wait on this host, in one line."""
    if not waiting.events:
        return "nothing waits"
    since = f", the oldest came {age(waiting.oldest)}" if waiting.oldest else ""
    return f"{counted(waiting.events, 'event')} ({size(waiting.bytes)}) of {_processes(waiting.processes)}{since}"


def rows_line(found: Survey) -> str:
    """The rows of the database, in one line."""
    if found.totals is None:
        return "unknown"
    totals = found.totals
    return (
        f"{counted(totals.entries, 'entry', 'entries')} and {counted(totals.turns, 'turn')} "
        f"in {counted(totals.themes, 'theme')}"
    )


def _processes(number: int) -> str:
    return counted(number, "process", "processes")


def _lines(found: Survey, waiting: Backlog, aside: int) -> list[tuple[str, str]]:
    lines = [("Database", found.where)]
    if found.facts:
        facts = found.facts
        version = f"pgvector {facts.pgvector_version}" if facts.pgvector_version else "no pgvector"
        lines.append(("Server", f"Postgres {facts.server_version}, {version}, {size(facts.database_bytes)}"))
    else:
        lines.append(("Server", "stopped" if found.server else "not reached"))
    if found.schema:
        state = found.schema
        model = state.embedding_model or "no model yet"
        lines.append(("Schema", f"version {state.version}"))
        lines.append(("Vectors", f"{state.dimensions} numbers, {model}"))
    if found.totals:
        missing = found.totals.without_vector
        lines.append(("Rows", rows_line(found)))
        lines.append(("No vector", f"{counted(missing, 'row')}, found by words only" if missing else "none"))
    if found.agreement:
        asked = counted(found.agreement.questions, "question")
        lines.append(("Graph index", f"finds {found.agreement.share:.1%} of the ten nearest turns ({asked} made up)"))
    lines.append(("Spool", spool_line(waiting)))
    lines.append(("Set aside", f"{counted(aside, 'event')}; see: hermes-pgvector spool list" if aside else "none"))
    return lines


def _themes(found: Survey) -> Any:
    columns = ("Entries", "Turns", "No vector", "Newest", "Theme")
    rows = [
        (
            f"{theme.entries:,}",
            f"{theme.turns:,}",
            f"{theme.without_vector:,}",
            local(theme.latest),
            safe_line(theme.theme, THEME_CHARS_MAX),
        )
        for theme in found.themes
    ]
    return rows_table(columns, rows, numbers=columns[:3])


def _document(found: Survey, settings: Settings, home: Path, waiting: Backlog, aside: int) -> dict[str, Any]:
    facts, state = found.facts, found.schema
    return {
        "home": str(home),
        "database": {
            "where": found.where,
            "embedded": not settings.dsn.get_secret_value(),
            "reachable": found.reachable,
            "problem": found.problem,
            "connect_s": found.seconds,
            "server_version": facts and facts.server_version,
            "pgvector_version": facts and facts.pgvector_version,
            "bytes": facts and facts.database_bytes,
            "schema_version": state and state.version,
        },
        "vectors": {"dimensions": state and state.dimensions, "model": state and state.embedding_model},
        "rows": found.totals and asdict(found.totals),
        "graph_index": found.agreement and asdict(found.agreement),
        "themes": [asdict(theme) for theme in found.themes],
        "spool": waiting._asdict(),
        "set_aside": aside,
    }
