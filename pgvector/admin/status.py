"""status: where the memory is, how much is in it, and what waits on this host."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ..mirror.home import Home
from ..outbox.dead_letters import DeadLetters
from ..outbox.inspection import Backlog, Process, total
from ..outbox.inspection import processes as processes_of
from ..outbox.pending_writes import pending_writes
from ..settings import Settings, load
from ..store.statistics import ThemeTotals
from ..text.sanitize import safe_line
from . import processes
from .console import ATTENTION, Cell, Console, counted, facts_table, local_time, rows_table
from .overview import Overview, overview, quota_line

THEME_CHARS_MAX = 40


def status(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the state of a home's memory. Returns 1 when the database cannot be used, or a process is stuck.

    Returns ATTENTION when a process fails, an embedder keeps rows waiting, or there are dead letters.
    """
    settings = load(home)
    here = Home(home, settings.spool_dir)
    running, dead_letters = processes_of(here.spool), len(DeadLetters(here.state).ids())
    pending = len(pending_writes(here.state, settings).ids())
    with console.busy("counting"):
        found = overview(settings, here.path, themes_max=args.themes)
    backlog, stuck_after_s = total(process.waiting for process in running), settings.stuck_after_s
    document = {**_document(found, settings, here.path, backlog, dead_letters), "pending": pending}
    console.data({**document, **processes.document(running, stuck_after_s)})
    facts = _facts(found, running, backlog, dead_letters)
    if pending:
        facts.append(("Approval", f"{counted(pending, 'write')} to approve; see: hermes-pgvector pending list"))
    console.show(facts_table([*facts, ("Processes", processes.summary(running))]))
    alive = [processes.row(process, stuck_after_s) for process in running if process.alive]
    for rows in (alive, [_theme(theme) for theme in found.themes]):
        if rows:
            console.show("", rows_table(rows))
    troubled = processes.troubled(running, stuck_after_s)
    for problem in filter(None, (found.problem, *(check.found for check in troubled))):
        console.say(f"hermes-pgvector: {problem}")
    if found.problem or any(check.verdict == "problem" for check in troubled):
        return 1
    return ATTENTION if troubled or dead_letters or processes.embedder_problem(running) else 0


def _facts(found: Overview, running: list[Process], waiting: Backlog, dead_letters: int) -> list[tuple[str, str]]:
    lines = [("Database", found.where)]
    if found.facts:
        facts = found.facts
        version = f"pgvector {facts.pgvector_version}" if facts.pgvector_version else "no pgvector"
        lines.append(("Server", f"Postgres {facts.server_version}, {version}, {size(facts.database_bytes)}"))
    else:
        state = "not reachable" if found.server is None else "stopped" if found.server.account else "not created yet"
        lines.append(("Server", state))
    if found.schema:
        lines.append(("Schema", f"version {found.schema.version}"))
        model = found.schema.embedding_model or "no model yet"
        lines.append(("Vectors", f"{found.schema.dimensions} dimensions, {model}"))
    if found.totals:
        lines.append(("Rows", found.rows))
        lines.append(("No vector", processes.backlog_line(found.totals.without_vector, running)))
        if found.totals.without_words:
            lines.append(("No words", f"{counted(found.totals.without_words, 'row')}, not found by words"))
    lines += [("Quota", quota_line(quota)) for quota in found.quotas if quota.full]
    lines.append(("Spool", processes.waiting_line(waiting)))
    see = "; see: hermes-pgvector spool list"
    lines.append(("Dead letters", f"{counted(dead_letters, 'event')}{see}" if dead_letters else "none"))
    return lines


def _theme(theme: ThemeTotals) -> dict[str, Cell]:
    return {
        "Entries": theme.entries,
        "Turns": theme.turns,
        "Facts": theme.facts,
        "No vector": theme.without_vector,
        "Newest": local_time(theme.latest),
        "Theme": safe_line(theme.theme, THEME_CHARS_MAX),
    }


def _document(found: Overview, settings: Settings, home: Path, waiting: Backlog, dead_letters: int) -> dict[str, Any]:
    facts, state = found.facts, found.schema
    return {
        "home": str(home),
        "database": {
            "where": found.where,
            "embedded": not settings.dsn.get_secret_value(),
            "reachable": found.seconds is not None,
            "problem": found.problem,
            "connect_s": found.seconds,
            "server_version": facts and facts.server_version,
            "pgvector_version": facts and facts.pgvector_version,
            "bytes": facts and facts.database_bytes,
            "schema_version": state and state.version,
        },
        "vectors": {"dimensions": state and state.dimensions, "model": state and state.embedding_model},
        "rows": found.totals and asdict(found.totals),
        "themes": [asdict(theme) for theme in found.themes],
        "quotas": [{**asdict(quota), "full": quota.full} for quota in found.quotas],
        "spool": waiting._asdict(),
        "set_aside": dead_letters,
    }
