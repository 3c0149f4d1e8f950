"""Median and worst of the figures, the table of them, and the goals."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table
from run import Figures

# Ends of the names of figures of which a higher value is better.
_MORE_IS_BETTER = ("_per_s", "_share", "rows_stored", "_min")
# Figures that describe the work and not its result.
_GIVEN = ("rows_offered", "providers_leaked")
Results = dict[str, dict[str, dict[str, Any]]]


def summary(runs: list[Figures]) -> dict[str, Any]:
    """`median`, `worst` and `runs` of each figure; a value of None is worse than any number.

    The worst value of a rate or share is the lowest one, of anything else the highest. Samples are left out.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run.get(name) for run in runs]
        if any(isinstance(value, list | str) for value in values):
            continue
        known = [value for value in values if value is not None]
        ranked = sorted(known, reverse=name.endswith(_MORE_IS_BETTER)) + [None] * (len(values) - len(known))
        middle = ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1]
        median = None if None in middle else statistics.fmean(middle)
        found[name] = {"median": median, "worst": ranked[-1], "runs": values}
    return found


def goals(results: Results) -> list[dict[str, Any]]:
    """The goals that were measured: name, value, limit and whether it is met."""
    ours = results["ours"]
    wanted: list[tuple[str, float | None, str, float]] = []

    def want(title: str, scenario: str, name: str, sign: str, limit: float, kind: str = "worst") -> None:
        if scenario in ours and name in ours[scenario]:
            wanted.append((title, ours[scenario][name][kind], sign, limit))

    for scenario, figures in ours.items():
        for name in figures:
            if name.endswith("rows_lost"):
                want(f"{scenario}: {name.replace('_', ' ')}", scenario, name, "<=", 0)
    if "burst" in ours:
        rate = ours["burst"]["rows_per_s"]
        wanted.append(("burst: worst rate, share of the median", rate["worst"] / rate["median"], ">=", 0.85))
        for title, package, scenario, least in (("bare loop", "ours", "bare_loop", 1.5), ("peer", "peer", "burst", 10)):
            if other := results.get(package, {}).get(scenario, {}).get("rows_per_s", {}).get("median"):
                wanted.append((f"burst: median rate relative to the {title}", rate["median"] / other, ">=", least))
    for scenario, least in (("bundled", 0.9), ("bundled_long", 0.8)):
        want(f"{scenario}: pace, share of the model alone", scenario, "model_pace_share", ">=", least)
    want("bundled: first vector after the first row, s", "bundled", "first_vector_after_first_row_s", "<=", 2)
    for name in ours.get("recovery", ()):
        want(f"recovery: {name.removesuffix('_s').replace('_', ' ')}, s", "recovery", name, "<=", 10)
    want("orphan rows: all complete, s", "orphan_rows", "complete_s", "<=", 30)
    for hook in ("sync_turn", "on_memory_write"):
        for name in (hook, f"{hook}_without_gateway"):
            want(f"{name}: first call, ms", "hooks", f"{name}_first_ms", "<=", 5)
            want(f"{name}: 99th percentile, µs", "hooks", f"{name}_p99_us", "<=", 500)
    for call in ("is_available", "get_tool_schemas", "initialize", "system_prompt_block", "on_turn_start"):
        want(f"start: {call}, ms", "start", f"{call}_ms", "<=", 5)
    for name in ("later", "from_start"):
        title = f"shutdown while the embedder hangs ({name.replace('_', ' ')}): rows only in the spool"
        want(title, "shutdown", f"{name}_rows_in_spool_only", "<=", 0)
    want("sessions: connections per process", "sessions", "connections_per_process", "<=", 3)
    want("sessions: connections when idle", "sessions", "connections_idle", "<=", 0)
    want("sessions: threads per process", "sessions", "threads_max", "<=", 7)
    return [
        {"goal": title, "value": value, "wanted": f"{sign} {limit:g}", "met": _met(value, sign, limit)}
        for title, value, sign, limit in wanted
    ]


def show(report: dict[str, Any]) -> None:
    """Print the table and the goals."""
    console = Console(highlight=False)
    results: Results = report["results"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("scenario", "figure"):
        table.add_column(title)
    for package in results:
        for title in (package, "worst"):
            table.add_column(title, justify="right")
    if len(results) > 1:
        table.add_column("ours is better by", justify="right")
    for scenario, figures in results["ours"].items():
        for name in figures:
            found = [each.get(scenario, {}).get(name, {}) for each in results.values()]
            cells = [_shown(one.get(kind), bool(one)) for one in found for kind in ("median", "worst")]
            table.add_row(scenario, name.replace("_", " "), *cells, _ratio(name, [one.get("median") for one in found]))
    console.print(table)
    console.print()
    for goal in report["goals"]:
        mark = "[green]✓[/]" if goal["met"] else "[red]✗[/]"
        console.print(f"{mark} {goal['goal']}: {_shown(goal['value'], True)} ({goal['wanted']})")


def _met(value: float | None, sign: str, limit: float) -> bool:
    if value is None:
        return False
    return value <= limit if sign == "<=" else value >= limit


def _ratio(name: str, medians: list[float | None]) -> str:
    """How many times better our figure is than the peer's; empty where that says nothing."""
    ours, theirs = medians if len(medians) > 1 else (None, None)
    if not ours or not theirs or name in _GIVEN:
        return ""
    return f"{ours / theirs if name.endswith(_MORE_IS_BETTER) else theirs / ours:.2g} ×"


def _shown(value: float | None, measured: bool) -> str:
    if value is None:
        return "not in time" if measured else ""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
