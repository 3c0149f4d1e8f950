"""What was measured, as one table a person reads, with what it should be."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

# Scenario, path to the figure, what it is, its unit, and whether more of it is better.
_ROWS: list[tuple[str, tuple[str, ...], str, str, bool]] = [
    ("hooks", ("sync_turn", "p50_us"), "sync_turn: half of the calls within", "µs", False),
    ("hooks", ("sync_turn", "p99_us"), "sync_turn: 99 % of them", "µs", False),
    ("hooks", ("on_memory_write", "p50_us"), "on_memory_write: half of them", "µs", False),
    ("hooks", ("on_memory_write", "p99_us"), "on_memory_write: 99 % of them", "µs", False),
    ("hooks", ("on_memory_write_meanwhile", "p99_us"), "the same, while a burst is stored", "µs", False),
    ("burst", ("rows_offered",), "burst: rows offered", "", True),
    ("burst", ("rows_lost",), "burst: rows lost", "", False),
    ("burst", ("rows_without_vector",), "burst: rows without a vector", "", False),
    ("burst", ("rows_per_s",), "burst: rows stored and embedded", "/s", True),
    ("bare_loop", ("rows_per_s",), "a bare loop into the same tables", "/s", True),
    ("burst", ("agent_cpu_ms_per_row",), "burst: CPU of the agent for a row", "ms", False),
    ("steady", ("rows_lost",), "steady: rows lost", "", False),
    ("steady", ("seconds_behind",), "steady: tables behind the talk", "s", False),
    ("steady", ("p99_us",), "steady: sync_turn, 99 % of them", "µs", False),
    ("steady", ("agent_cpu_ms_per_row",), "steady: CPU of the agent for a row", "ms", False),
    ("fleet", ("rows_lost",), "fleet: rows lost", "", False),
    ("fleet", ("rows_per_s",), "fleet: rows stored and embedded", "/s", True),
    ("fleet", ("connections_per_process",), "fleet: connections a process, at most", "", False),
    ("fleet", ("connections_idle",), "fleet: connections when idle", "", False),
    ("fleet", ("threads_max",), "fleet: threads a process, at most", "", False),
    ("fleet", ("rss_mb_per_process",), "fleet: memory of a process", "MB", False),
    ("outage", ("rows_lost",), "Postgres away: rows lost", "", False),
    ("outage", ("drained_after_s",), "Postgres away: last row after its return", "s", False),
    ("outage", ("p99_us",), "Postgres away: sync_turn, 99 % of them", "µs", False),
    ("footprint", ("one_session", "rss_mb"), "one session: memory", "MB", False),
    ("footprint", ("one_session", "files"), "one session: open files", "", False),
    ("footprint", ("one_session", "threads"), "one session: threads", "", False),
    ("footprint", ("providers_leaked",), "providers never shut down", "", True),
    ("footprint", ("kb_per_leaked",), "for each of them: memory", "kB", False),
    ("footprint", ("all_leaked", "files"), "for all of them: open files", "", False),
    ("footprint", ("all_leaked", "threads"), "for all of them: threads", "", False),
    ("footprint", ("connections_max",), "for all of them: connections", "", False),
]


def figure(results: dict[str, Any], package: str, scenario: str, *path: str) -> float | None:
    """One figure of the results; None where it was not measured."""
    found: Any = results.get(package, {}).get(scenario)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """By how much we are better than the peer; above 1 is better, whatever is counted."""
    found = {}
    for scenario, path, _, _, more in _ROWS:
        ours, theirs = (figure(results, name, scenario, *path) for name in ("ours", "peer"))
        if ours and theirs and path[-1] not in ("rows_offered", "providers_leaked"):
            found[".".join((scenario, *path))] = ours / theirs if more else theirs / ours
    return found


def goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What should be so, and whether it is; what was not measured is left out."""

    def of(*path: str) -> float | None:
        return figure(results, "ours", *path)

    bare, peer = of("bare_loop", "rows_per_s"), figure(results, "peer", "burst", "rows_per_s")
    wanted: list[tuple[str, float | None, str, float | None]] = [
        ("sync_turn p99 in µs", of("hooks", "sync_turn", "p99_us"), "<=", 200),
        ("on_memory_write p99 in µs", of("hooks", "on_memory_write", "p99_us"), "<=", 200),
        ("rows lost in a burst", of("burst", "rows_lost"), "<=", 0),
        ("rows without a vector after a burst", of("burst", "rows_without_vector"), "<=", 0),
        ("rows a second, of a bare loop's", _part(of("burst", "rows_per_s"), bare), ">=", 1),
        ("rows a second, of the peer's", _part(of("burst", "rows_per_s"), peer), ">=", 8),
        ("rows lost at a steady pace", of("steady", "rows_lost"), "<=", 0),
        ("rows lost by a fleet", of("fleet", "rows_lost"), "<=", 0),
        ("connections a process of a fleet", of("fleet", "connections_per_process"), "<=", 3),
        ("connections of an idle fleet", of("fleet", "connections_idle"), "<=", 0),
        ("threads a process of a fleet", of("fleet", "threads_max"), "<=", 6),
        ("rows lost in an outage", of("outage", "rows_lost"), "<=", 0),
        ("rows lost by leaked providers", of("footprint", "rows_lost"), "<=", 0),
    ]
    found = []
    for name, value, sign, limit in wanted:
        if value is not None and limit is not None:
            met = value <= limit if sign == "<=" else value >= limit
            found.append({"goal": name, "value": value, "wanted": f"{sign} {limit:g}", "met": met})
    return found


def show(report: dict[str, Any]) -> None:
    """Print the table and the goals."""
    console = Console(highlight=False)
    results, compared = report["results"], report["ratios"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for title in ("ours", *(["the peer", "ours is better by"] if "peer" in results else [])):
        table.add_column(title, justify="right")
    for scenario, path, title, unit, _ in _ROWS:
        values = [figure(results, package, scenario, *path) for package in results]
        if values and values[0] is not None:
            ratio = compared.get(".".join((scenario, *path)))
            shown = [_shown(value, unit) for value in values] + ([f"{ratio:.1f} ×"] if ratio else [])
            table.add_row(title, *shown)
    console.print(table)
    console.print()
    for goal in report["goals"]:
        mark = "[green]✓[/]" if goal["met"] else "[red]✗[/]"
        console.print(f"{mark} {goal['goal']}: {goal['value']:.4g} ({goal['wanted']})")


def _part(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{number} {unit}".strip()
