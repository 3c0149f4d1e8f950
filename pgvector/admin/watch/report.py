"""watch: compare the host's record with the memory, and say why it is silent or degraded."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from rich.table import Table

from ...errors import PgvectorError, SettingsError
from ...files import expanded
from ...mirror.home import Home
from ...model import now
from ...outbox.inspection import Backlog, processes, total
from ...session.outages import began
from ...settings import Settings, load
from ...store.connection.database import Connection
from ...store.schema.verification import SchemaState
from ..console import ATTENTION, Console, counted, facts_table, local_time
from . import host, metrics, services, turns
from .finding import Finding
from .turns import Recorded


@dataclass
class _Seen:
    """What was found, and the turns that were compared."""

    findings: list[Finding] = field(default_factory=list)
    expected: list[Recorded] = field(default_factory=list)
    known: set[Recorded] = field(default_factory=set)
    waiting: Backlog = field(default_factory=Backlog)
    schema: SchemaState | None = None
    outage: datetime | None = None


def watch(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print why the memory needs attention. Returns 3 when it does. Raises PgvectorError when that is unknown."""
    with console.busy("looking"):
        seen = _look(home, args)
    findings = seen.findings
    figures = _figures(seen)
    text = metrics.lines(home, {finding.reason for finding in findings}, figures)
    if args.metrics not in (None, "-"):
        metrics.write(expanded(args.metrics), text)
    console.data(
        {
            "ok": not findings,
            "findings": [asdict(finding) for finding in findings],
            **figures,
            "newest_turn": seen.expected[0].at if seen.expected else None,
            "outage_since": seen.outage,
        }
    )
    if args.metrics == "-":
        console.show(text.rstrip("\n"))
    else:
        console.show(_table(seen))
    for finding in findings:
        console.say(f"hermes-pgvector: {finding.reason}: {finding.found}; to do: {finding.remedy}")
    return ATTENTION if findings else 0


def _look(home: Path, args: argparse.Namespace) -> _Seen:
    seen = _Seen()
    if not args.skip_host:
        seen.findings += host.findings(home, args.hermes)
    try:
        settings = load(home)
        here = Home(home, settings)
    except SettingsError as error:
        seen.findings.append(Finding("settings", str(error), "correct it, then: hermes-pgvector doctor"))
        return seen
    seen.outage = began(here.state / "outages", "database")
    running = processes(here.spool)
    seen.waiting = total(process.waiting for process in running)
    _compare(seen, here, settings, args)
    seen.findings += services.stores(running, seen.waiting, settings, here.spool, wait_s_max=60.0 * args.wait)
    return seen


def _compare(seen: _Seen, home: Home, settings: Settings, args: argparse.Namespace) -> None:
    """Look for the newest turns of the host in the database and in the spools."""
    until = now() - timedelta(seconds=args.settle)
    try:
        seen.expected = turns.expected(home, settings, until - timedelta(hours=args.hours), until, args.turns)
    except OSError as error:
        raise PgvectorError(f"{error.strerror}: check {home.path / 'state.db'}") from error
    seen.known = turns.spooled(home, seen.expected)

    def look_up(connection: Connection, schema: SchemaState) -> None:
        seen.known |= turns.stored(connection, seen.expected)
        seen.schema = schema

    problems = [
        services.patiently(lambda: services.database(settings, home.path, look_up)),
        services.data(settings, home),
        services.patiently(lambda: services.embedder(settings, seen.schema)),
    ]
    seen.findings += filter(None, problems)
    if len(seen.expected) >= args.turns_min and not seen.known:
        found = f"of the newest {counted(len(seen.expected), 'turn')} of the host none is stored or waits"
        remedy = "restart the host, say something, and look into its log; see also: hermes-pgvector spool list"
        seen.findings.append(Finding("turns", f"{found}; the last was at {_times(seen.expected)}", remedy))


def _times(recorded: Iterable[Recorded]) -> str:
    return local_time(max(turn.at for turn in recorded))


def _figures(seen: _Seen) -> dict[str, float | None]:
    oldest = seen.waiting.oldest
    return {
        "turns_expected": len(seen.expected),
        "turns_known": len(seen.known),
        "waiting_events": seen.waiting.events,
        "oldest_waiting_seconds": round((now() - oldest).total_seconds(), 1) if oldest else 0.0,
    }


def _table(seen: _Seen) -> Table:
    known = f"{len(seen.known)} of the newest {counted(len(seen.expected), 'turn')} stored or waiting"
    reasons = ", ".join(dict.fromkeys(finding.reason for finding in seen.findings))
    return facts_table(
        [
            ("Memory", f"needs attention: {reasons}" if reasons else "fine"),
            ("Turns", known if seen.expected else "none to compare"),
            ("Spool", counted(seen.waiting.events, "event") + " waiting"),
        ]
    )
