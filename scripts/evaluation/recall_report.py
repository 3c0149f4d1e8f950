"""The figures of the recall sets as one table and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .recall_measures import MEASURES, SPECIAL, Estimate

Figures = Mapping[str, Mapping[str, Any]]
BESIDE = ("first", "in five", "R@10")


def table(results: Mapping[str, Figures]) -> str:
    """The first result in full, the others beside it, as a table in Markdown. Intervals stand in brackets."""
    (_, whole), *others = results.items()
    heads = ["class", "questions", *MEASURES, "per 1,000 tokens", "before a turn"]
    heads += [f"{name}: {' / '.join(BESIDE)}" for name, _ in others]
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)]]
    for category, figures in whole.items():
        tokens = figures["per 1,000 tokens"]
        cells = [category, str(figures["questions"]), *(_long(figures[name]) for name in MEASURES)]
        cells += ["" if tokens is None else f"{tokens:.2f}", _long(figures["before a turn"])]
        cells += [" / ".join(_short(of.get(category, {}).get(name)) for name in BESIDE) for _, of in others]
        lines.append(cells)
    special = [
        f"{category}, {name}: {_long(whole[category][name])}"
        + "".join(f"; {other}: {_short(figures_of[category][name])}" for other, figures_of in others)
        for category, (name, _) in SPECIAL.items()
        if name in whole.get(category, {})
    ]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + [""] * bool(special) + special)


def plain(value: Any) -> Any:
    """The figures as JSON has them: an estimate is its mean with the interval."""
    if isinstance(value, Estimate):
        return {"mean": value.mean, "interval": [value.low, value.high]}
    return {name: plain(inner) for name, inner in value.items()} if isinstance(value, Mapping) else value


def plot(results: Mapping[str, Figures], path: Path, title: str) -> None:
    """Plot the share of answers first and in five by class, with intervals. The suffix selects the format."""
    from matplotlib.figure import Figure

    whole = next(iter(results.values()))
    classes = [name for name, figures in whole.items() if figures["first"] and ", " not in name]
    figure = Figure(figsize=(11, 1 + 0.55 * len(classes)), layout="constrained")
    figure.suptitle(title)
    for axes, measure in zip(figure.subplots(1, 2, sharey=True), ("first", "in five"), strict=True):
        for place, (name, figures) in enumerate(results.items()):
            known = [(at, figures[category][measure]) for at, category in enumerate(classes) if category in figures]
            height = 0.8 / len(results)
            axes.barh(
                [at + (place - (len(results) - 1) / 2) * height for at, _ in known],
                [found.mean for _, found in known], height, label=name,
                xerr=_errors([found for _, found in known]), error_kw={"alpha": 0.4},
            )  # fmt: skip
        axes.set_xlim(0, 1)
        axes.set_xlabel(measure)
        axes.grid(axis="x", alpha=0.3)
        axes.set_yticks(range(len(classes)), classes)
    axes.set_ylim(len(classes) - 0.5, -0.5)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(results))
    figure.savefig(path, dpi=150)


def _errors(found: Sequence[Estimate]) -> list[list[float]]:
    return [[max(0.0, one.mean - one.low) for one in found], [max(0.0, one.high - one.mean) for one in found]]


def _long(found: Estimate | None) -> str:
    return "" if found is None else f"{_two(found.mean)} ({_two(found.low)}–{_two(found.high)})"


def _short(found: Estimate | None) -> str:
    return "–" if found is None else _two(found.mean)


def _two(share: float) -> str:
    return f"{share:.2f}".removeprefix("0")
