"""The table of figures, the ratios to the peer, and the goals."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

# Scenario, path to the figure, title, unit, and whether a higher value is better.
_ROWS: list[tuple[str, tuple[str, ...], str, str, bool]] = [
    ("hooks", ("sync_turn", "p50_us"), "sync_turn: median", "µs", False),
    ("hooks", ("sync_turn", "p99_us"), "sync_turn: 99th percentile", "µs", False),
    ("hooks", ("on_memory_write", "p50_us"), "on_memory_write: median", "µs", False),
    ("hooks", ("on_memory_write", "p99_us"), "on_memory_write: 99th percentile", "µs", False),
    ("hooks", ("on_memory_write_meanwhile", "p99_us"), "on_memory_write during a burst: 99th percentile", "µs", False),
    ("burst", ("rows_offered",), "burst: rows offered", "", True),
    ("burst", ("rows_lost",), "burst: rows lost", "", False),
    ("burst", ("rows_without_vector",), "burst: rows without an embedding", "", False),
    ("burst", ("rows_per_s",), "burst: rows stored and embedded", "/s", True),
    ("bare_loop", ("rows_per_s",), "bare loop: rows stored and embedded", "/s", True),
    ("burst", ("agent_cpu_ms_per_row",), "burst: CPU time of the agent per row", "ms", False),
    ("steady", ("rows_lost",), "steady: rows lost", "", False),
    ("steady", ("seconds_behind",), "steady: delay of the tables", "s", False),
    ("steady", ("p99_us",), "steady: sync_turn, 99th percentile", "µs", False),
    ("steady", ("agent_cpu_ms_per_row",), "steady: CPU time of the agent per row", "ms", False),
    ("fleet", ("rows_lost",), "fleet: rows lost", "", False),
    ("fleet", ("rows_per_s",), "fleet: rows stored and embedded", "/s", True),
    ("fleet", ("connections_per_process",), "fleet: connections per process, maximum", "", False),
    ("fleet", ("connections_idle",), "fleet: connections when idle", "", False),
    ("fleet", ("threads_max",), "fleet: threads per process, maximum", "", False),
    ("fleet", ("rss_mb_per_process",), "fleet: memory per process", "MB", False),
    ("outage", ("rows_lost",), "outage: rows lost", "", False),
    ("outage", ("drained_after_s",), "outage: last row after the restart", "s", False),
    ("outage", ("p99_us",), "outage: sync_turn, 99th percentile", "µs", False),
    ("footprint", ("one_session", "rss_mb"), "one session: memory", "MB", False),
    ("footprint", ("one_session", "files"), "one session: open files", "", False),
    ("footprint", ("one_session", "threads"), "one session: threads", "", False),
    ("footprint", ("providers_leaked",), "leaked providers", "", True),
    ("footprint", ("kb_per_leaked",), "leaked providers: memory of each", "kB", False),
    ("footprint", ("all_leaked", "files"), "leaked providers, all: open files", "", False),
    ("footprint", ("all_leaked", "threads"), "leaked providers, all: threads", "", False),
    ("footprint", ("connections_max",), "leaked providers, all: connections", "", False),
]


def figure(results: dict[str, Any], package: str, scenario: str, *path: str) -> float | None:
    """One figure of the results, or None when it was not measured."""
    found: Any = results.get(package, {}).get(scenario)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Our figures relative to the peer's. Above 1, ours is better, also where lower values are better."""
    found = {}
    for scenario, path, _, _, more in _ROWS:
        ours, theirs = (figure(results, name, scenario, *path) for name in ("ours", "peer"))
        if ours and theirs and path[-1] not in ("rows_offered", "providers_leaked"):
            found[".".join((scenario, *path))] = ours / theirs if more else theirs / ours
    return found


def goals(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The goals that were measured: name, value, limit and whether it is met."""

    def of(*path: str) -> float | None:
        return figure(results, "ours", *path)

    bare, peer = of("bare_loop", "rows_per_s"), figure(results, "peer", "burst", "rows_per_s")
    wanted: list[tuple[str, float | None, str, float | None]] = [
        ("sync_turn, 99th percentile in µs", of("hooks", "sync_turn", "p99_us"), "<=", 200),
        ("on_memory_write, 99th percentile in µs", of("hooks", "on_memory_write", "p99_us"), "<=", 200),
        ("rows lost in a burst", of("burst", "rows_lost"), "<=", 0),
        ("rows without an embedding after a burst", of("burst", "rows_without_vector"), "<=", 0),
        ("rows per second relative to the bare loop", _ratio(of("burst", "rows_per_s"), bare), ">=", 1),
        ("rows per second relative to the peer", _ratio(of("burst", "rows_per_s"), peer), ">=", 8),
        ("rows lost at a steady rate", of("steady", "rows_lost"), "<=", 0),
        ("rows lost by a fleet", of("fleet", "rows_lost"), "<=", 0),
        ("connections per process of a fleet", of("fleet", "connections_per_process"), "<=", 3),
        ("connections of an idle fleet", of("fleet", "connections_idle"), "<=", 0),
        ("threads per process of a fleet", of("fleet", "threads_max"), "<=", 6),
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
    for title in ("ours", *(["peer", "ours is better by"] if "peer" in results else [])):
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


def _ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value is not None and other else None


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    number = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{number} {unit}".strip()
