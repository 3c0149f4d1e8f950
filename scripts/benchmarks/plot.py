"""Rows a second and rows that wait, over the time of the burst, as a picture."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

WINDOW_S = 2.0


def plot(report: dict[str, Any], path: str) -> None:
    """Draw the burst of each package into a file, whose ending names the format."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    speed, waiting = figure.subplots(2, sharex=True)
    for package, results in report["results"].items():
        burst = results["burst"]
        seconds, rows, embedded = zip(*burst["samples"], strict=True)
        accepted = burst["rows_offered"]
        speed.plot(seconds, [_per_s(seconds, embedded, at) for at in range(len(seconds))], label=package)
        [line] = waiting.plot(seconds, [accepted - each for each in rows], label=f"{package}: not stored")
        waiting.plot(seconds, [accepted - each for each in embedded], "--", color=line.get_color(),
                     label=f"{package}: not embedded")  # fmt: skip
    speed.set_ylabel("rows embedded in a second")
    waiting.set_ylabel("rows")
    waiting.set_xlabel("seconds since the first of the turns")
    for axes in (speed, waiting):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def _per_s(seconds: tuple[float, ...], counts: tuple[int, ...], at: int) -> float:
    """The speed at a sample, over the last two seconds."""
    start = next(place for place, second in enumerate(seconds) if second >= seconds[at] - WINDOW_S)
    passed = seconds[at] - seconds[start]
    return (counts[at] - counts[start]) / passed if passed else 0.0
