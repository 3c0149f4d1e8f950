"""A small plot of bars for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 6


def bars(values: Sequence[int], first: str, last: str, *, width: int) -> str:
    """Bars of `values`, at most `width` columns wide, with the highest value at the left and two labels below.

    There is at least one bar. When there are more values than columns, neighbouring ones are added up, the same number
    in each bar.
    """
    label = f"{max(values, default=0):,}"
    group = 1
    while len(values) > group * max(1, width - len(label) - 1):
        group += 1
    sums = _grouped(values, group)
    label = f"{max(sums, default=0):,}"
    wide = 2 if 2 * len(sums) <= width - len(label) - 1 else 1
    most = max(1, *sums) if sums else 1
    # A value above 0 is seen, however small it is.
    filled = [-(-value * HEIGHT * 8 // most) for value in sums]
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        cells = (BLOCKS[min(8, max(0, eighths - 8 * row))] * wide for eighths in filled)
        lines.append(f"{label if row == HEIGHT - 1 else '':>{len(label)}} {''.join(cells)}".rstrip())
    room = wide * len(sums) - len(first)
    lines.append(f"{'':>{len(label)}} {first}{f' {last}' if room <= len(last) else f'{last:>{room}}'}")
    return "\n".join(lines)


def _grouped(values: Sequence[int], group: int) -> list[int]:
    """Sums of each `group` values; the newest group is full, the oldest may not be."""
    starts = range(len(values) % group - group if len(values) % group else 0, len(values), group)
    return [sum(values[max(0, start) : start + group]) for start in starts]
