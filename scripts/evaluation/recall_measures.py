"""Measures of the recall sets, each with its 95 % interval. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .recall_run import LIMIT, Asked

# A token of English is about four bytes; other scripts have more of both.
TOKEN_BYTES = 4
RESAMPLES = 1000
Z = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean with its interval: Wilson's for shares of questions, else by bootstrap. None without values."""
    if not values:
        return None
    count, mean = len(values), sum(values) / len(values)
    if set(values) <= {0, 1}:
        middle, spread = mean + Z * Z / (2 * count), Z * math.sqrt((mean * (1 - mean) + Z * Z / (4 * count)) / count)
        scale = 1 + Z * Z / count
        return Estimate(mean, max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale))
    chosen = random.Random(0)
    means = sorted(sum(chosen.choices(values, k=count)) / count for _ in range(RESAMPLES))
    return Estimate(mean, means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1])


def rank(found: Sequence[str], wanted: Iterable[str]) -> float:
    """The place of the first hit that is wanted, from 1; infinite when there is none."""
    wanted = frozenset(wanted)
    return next((place for place, row in enumerate(found, 1) if row in wanted), math.inf)


def share_found(asked: Asked) -> float:
    """The share of the answers among the first LIMIT hits."""
    answers = asked.question.answers
    return len(answers & set(asked.found[:LIMIT])) / len(answers)


def above(asked: Asked) -> bool:
    """Whether an answer is found and no row that it replaces stands before it."""
    best = rank(asked.found[:LIMIT], asked.question.answers)
    return best < math.inf and best < rank(asked.found[:LIMIT], asked.question.older)


# Of questions with an answer; the last two of those classes that ask for it.
MEASURES: Mapping[str, Callable[[Asked], float]] = {
    "first": lambda asked: rank(asked.found, asked.question.answers) == 1,
    "in five": lambda asked: rank(asked.found, asked.question.answers) <= 5,
    "R@10": share_found,
    "MRR": lambda asked: 1 / rank(asked.found[:LIMIT], asked.question.answers),
}
SPECIAL: Mapping[str, tuple[str, Callable[[Asked], float]]] = {
    "newest": ("newer above older", above),
    "multi_hop": ("all in ten", lambda asked: share_found(asked) == 1),
}


def measured(asked: Sequence[Asked]) -> dict[str, Any]:
    """The figures of some questions: `questions`, each measure, `per 1,000 tokens`, and what is before a turn.

    `before a turn` is the share of questions before which an answer is shown, or anything where there is none.
    """
    figures: dict[str, Any] = {"questions": len(asked)}
    answerable = [one for one in asked if one.question.answers]
    for name, measure in MEASURES.items():
        figures[name] = estimate([float(measure(one)) for one in answerable])
    categories = {one.question.category for one in asked}
    for category in categories & set(SPECIAL) if len(categories) == 1 else ():
        name, measure = SPECIAL[category]
        figures[name] = estimate([float(measure(one)) for one in answerable])
    tokens = sum(one.answer_bytes for one in answerable) / TOKEN_BYTES
    evidence = sum(len(one.question.answers & set(one.found[:LIMIT])) for one in answerable)
    figures["per 1,000 tokens"] = 1000 * evidence / tokens if tokens else None
    figures["before a turn"] = estimate([float(_brought(one)) for one in asked if one.shown is not None])
    return figures


def _brought(asked: Asked) -> bool:
    answers, shown = asked.question.answers, set(asked.shown or ())
    return bool(answers & shown if answers else shown)


def grouped(asked: Sequence[Asked], by: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The figures by class, of `all` questions with an answer, and of each kind or language in a class by `by`."""
    classes = dict.fromkeys(one.question.category for one in asked)
    results: dict[str, dict[str, Any]] = {}
    for category in classes:
        of_class = [one for one in asked if one.question.category == category]
        results[category] = measured(of_class)
        for attribute in by:
            for value in sorted({getattr(one.question, attribute) for one in of_class}):
                chosen = [one for one in of_class if getattr(one.question, attribute) == value]
                results[f"{category}, {value}"] = measured(chosen)
    return results | {"all": measured([one for one in asked if one.question.answers])}
