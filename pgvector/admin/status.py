"""status: where the memory is, how much is in it, and what waits on this host."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ..hosts.environment import typed
from ..settings import Settings, load
from ..store.statistics import ThemeTotals
from ..text.sanitize import safe_line
from . import processes, refusal, standby
from .console import ATTENTION, Cell, Console, counted, facts_table, local_time, rows_table
from .disk import disk
from .overview import Observation, observed, quota_line

THEME_CHARS_MAX = 40
HOME_CHARS_MAX, HOMES_SHOWN = 40, 10


def status(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the state of a home's memory. Returns 1 when the database cannot be used, a process is stuck, or there is
    hardly any room on the disk of the outbox.

    Returns ATTENTION when a process fails, an embedder keeps rows waiting, or there are dead letters.
    """
    settings = load(home)
    with console.busy("counting"):
        seen = observed(settings, home, themes_max=args.themes)
    found, running, stuck_after_s = seen.database, seen.processes, seen.stuck_after_s
    room = disk("disk", seen.home.spool)
    full = room.found if room.verdict == "problem" else ""
    document = {**_document(seen, settings), "disk_problem": full}
    console.data({**document, **processes.document(running, stuck_after_s)})
    console.show(facts_table([("Home", str(home)), *facts(seen)]))
    alive = [processes.row(process, stuck_after_s) for process in running if process.alive]
    for rows in (alive, [_theme(theme) for theme in found.themes]):
        if rows:
            console.show("", rows_table(rows))
    troubled = processes.troubled(running, stuck_after_s)
    refused = found.server is None and found.problem.startswith(refusal.CONNECTING)
    to_do = f"; to do: {refusal.of_home(found.problem, home)}" if refused else ""
    if found.problem and found.schema:
        to_do = "; for more: hermes-pgvector doctor"
    for problem in filter(None, (found.problem + to_do, full, *(check.found for check in troubled))):
        console.say(f"hermes-pgvector: {problem}")
    if found.problem or full or any(check.verdict == "problem" for check in troubled):
        return 1
    return ATTENTION if troubled or seen.dead_letters or processes.embedder_problem(running) else 0


def facts(seen: Observation) -> list[tuple[str, str]]:
    """The state of a home as names and values."""
    found, running, waiting = seen.database, seen.processes, seen.waiting
    lines = [("Database", found.where)]
    if found.server_info:
        server = found.server_info
        version = f"pgvector {server.pgvector_version}" if server.pgvector_version else "no pgvector"
        lines.append(("Server", f"Postgres {server.server_version}, {version}, {size(server.database_bytes)}"))
    elif found.server is None or found.server.running:
        lines.append(("Server", "not reachable"))
    else:
        lines.append(("Server", "stopped" if found.server.account else "not there"))
    if found.standby:
        lines.append(("Standby", standby.line(found.standby, running)))
    if found.schema:
        over = ", distributed over a Citus cluster" if found.schema.distributed else ""
        lines.append(("Schema", f"version {found.schema.version}{over}"))
        model = found.schema.embedding_model or "no model yet"
        lines.append(("Vectors", f"{found.schema.dimensions} dimensions, {model}"))
    if found.totals:
        lines.append(("Rows", found.rows))
        lines.append(("No vector", processes.backlog_line(found.totals.without_vector, running)))
        if found.totals.without_words:
            lines.append(("No words", f"{counted(found.totals.without_words, 'row')}, not found by words"))
    if found.homes:
        homes = [f"{safe_line(one.home, HOME_CHARS_MAX)} ({one.processes})" for one in found.homes[:HOMES_SHOWN]]
        more = len(found.homes) - HOMES_SHOWN
        lines.append(("Live homes", ", ".join([*homes, *([f"and {more:,} more"] if more > 0 else [])])))
    lines += [("Quota", quota_line(quota)) for quota in found.quotas if quota.full]
    lines.append(("Spool", processes.waiting_line(waiting)))
    see = typed("; see: hermes-pgvector spool list", seen.home.path)
    letters = seen.dead_letters
    lines.append(("Dead letters", f"{counted(letters, 'event')}{see}" if letters else "none"))
    if seen.refused_themes:
        lines.append(("Refused", f"{counted(seen.refused_themes, 'theme')} not in allowed_themes{see}"))
    if seen.pending:
        line = f"{counted(seen.pending, 'write')} to approve; see: hermes-pgvector pending list"
        lines.append(("Approval", typed(line, seen.home.path)))
    return [*lines, ("Processes", processes.summary(running))]


def _theme(theme: ThemeTotals) -> dict[str, Cell]:
    return {
        "Entries": theme.entries,
        "Turns": theme.turns,
        "Facts": theme.facts,
        "No vector": theme.without_vector,
        "Newest": local_time(theme.latest),
        "Theme": safe_line(theme.theme, THEME_CHARS_MAX),
    }


def _document(seen: Observation, settings: Settings) -> dict[str, Any]:
    found = seen.database
    server, state = found.server_info, found.schema
    return {
        "home": str(seen.home.path),
        "database": {
            "where": found.where,
            "embedded": not settings.dsn.get_secret_value(),
            "reachable": found.seconds is not None,
            "problem": found.problem,
            "connect_s": found.seconds,
            "server_version": server and server.server_version,
            "pgvector_version": server and server.pgvector_version,
            "bytes": server and server.database_bytes,
            "schema_version": state and state.version,
        },
        "standby": found.standby and {**found.standby._asdict(), "recalls": standby.recalls(seen.processes)},
        "vectors": {"dimensions": state and state.dimensions, "model": state and state.embedding_model},
        "rows": found.totals and asdict(found.totals),
        "themes": [asdict(theme) for theme in found.themes],
        "quotas": [{**asdict(quota), "full": quota.full} for quota in found.quotas],
        "homes": [home._asdict() for home in found.homes],
        "spool": seen.waiting._asdict(),
        "set_aside": seen.dead_letters,
        "refused_themes": seen.refused_themes,
        "pending": seen.pending,
    }
