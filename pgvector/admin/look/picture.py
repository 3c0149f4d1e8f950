"""The growth of the memory as a picture: rows by day, and the largest themes. Needs the extra `plot`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...text.sanitize import safe_line

KINDS = {"turns": "#4269d0", "entries": "#efb118"}
NAME_CHARS_MAX = 30
LABELS_MAX = 6
INK, RULE = "#333333", "#d9d9d9"
# Fonts for the characters that the one of matplotlib lacks, of those that are installed.
FURTHER_FONTS = (
    "Noto Sans CJK SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "PingFang SC", "Hiragino Sans GB",
)  # fmt: skip


def png(found: Mapping[str, Any]) -> bytes:
    """A picture of what `growth` found, as PNG."""
    installed = set(get_font_names())
    fonts = ["DejaVu Sans", *(name for name in FURTHER_FONTS if name in installed)]
    written = io.BytesIO()
    with rc_context({"font.family": fonts}), warnings.catch_warnings():
        figure = _figure(found)
        # A font may lack characters of a name, which become boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(written, format="png", dpi=150)
    return written.getvalue()


def _figure(found: Mapping[str, Any]) -> Figure:
    themes, heights = found["themes"], [3.2]
    if themes:
        heights.append(0.9 + 0.3 * len(themes))
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(9, sum(heights)), layout=layout, facecolor="white")
    axes = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
    _by_day(axes[0], found["days"], found["theme"])
    if themes:
        _by_theme(axes[1], themes)
    return figure


def _by_day(axes: Axes, days: list[dict[str, Any]], theme: str) -> None:
    places = range(len(days))
    below = [0] * len(days)
    for kind, colour in KINDS.items():
        heights = [day[kind] for day in days]
        axes.bar(places, heights, 0.8, bottom=below, color=colour, label=f"{sum(heights):,} new {kind}")
        below = [low + high for low, high in zip(below, heights, strict=True)]
    step = -(-len(days) // LABELS_MAX)
    shown = range((len(days) - 1) % step, len(days), step)
    axes.set_xticks(list(shown), [days[place]["day"] for place in shown])
    axes.set_xlim(-0.7, len(days) - 0.3)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(bottom=0, top=None if any(below) else 1)
    _dress(axes, f"Rows by day of {_name(theme)}" if theme else "Rows by day", "y")
    if any(below):
        axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), labelcolor=INK)
    else:
        what = f"no rows in {len(days)} days" if len(days) > 1 else "no rows today"
        axes.set_yticks([])
        axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", va="center", color=INK)


def _by_theme(axes: Axes, themes: list[dict[str, Any]]) -> None:
    """The largest theme is the uppermost."""
    places = range(len(themes))
    left = [0] * len(themes)
    for kind, colour in KINDS.items():
        widths = [theme[kind] for theme in themes]
        axes.barh(places, widths, 0.7, left=left, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, rows in enumerate(left):
        axes.annotate(f"{rows:,}", (rows, place), (4, 0), textcoords="offset points", va="center", color=INK, size=9)
    axes.set_yticks(list(places), [_name(theme["theme"]) for theme in themes], parse_math=False)
    axes.set_ylim(len(themes) - 0.4, -0.6)
    axes.set_xlim(0, 1.1 * max(1, *left))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _dress(axes, "Rows of the largest themes, in all", "x")


def _dress(axes: Axes, title: str, values: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK, parse_math=False)
    axes.spines[["top", "right", "left" if values == "y" else "bottom"]].set_visible(False)
    axes.grid(axis=values, color=RULE, linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelcolor=INK, labelsize=9)


def _name(theme: str) -> str:
    return safe_line(theme, NAME_CHARS_MAX)
