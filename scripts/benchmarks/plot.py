"""Plot of the burst: embedded rows per second and waiting rows over time."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

WINDOW_S = 2.0


def plot(bursts: dict[str, dict[str, Any]], path: str) -> None:
    """Plot the burst of each package into the file `path`. The suffix selects the format."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    speed, waiting = figure.subplots(2, sharex=True)
    for package, burst in bursts.items():
        seconds, rows, embedded = zip(*burst["samples"], strict=True)
        accepted = burst["rows_offered"]
        speed.plot(seconds, [_per_s(seconds, embedded, at) for at in range(len(seconds))], label=package)
        [line] = waiting.plot(seconds, [accepted - each for each in rows], label=f"{package}: not stored")
        waiting.plot(seconds, [accepted - each for each in embedded], "--", color=line.get_color(),
                     label=f"{package}: not embedded")  # fmt: skip
    speed.set_ylabel("rows embedded per second")
    waiting.set_ylabel("rows waiting")
    waiting.set_xlabel("seconds since the first turn")
    for axes in (speed, waiting):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def _per_s(seconds: tuple[float, ...], counts: tuple[int, ...], at: int) -> float:
    """Rows per second at a sample, over the last WINDOW_S."""
    start = next(place for place, second in enumerate(seconds) if second >= seconds[at] - WINDOW_S)
    passed = seconds[at] - seconds[start]
    return (counts[at] - counts[start]) / passed if passed else 0.0
