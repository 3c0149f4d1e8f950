"""The templates and what they need: links, times, highlighted words, bars, and the commands that change a row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ...hosts.environment import typed
from ...model import Hit
from ...text import tokenizer
from ...text.sanitize import cut_at_word, safe_line, visible
from ..console import age, counted, local_time

SNIPPET_CHARS_MAX = 420
BEFORE_CHARS_MAX = 80
NAME_CHARS_MAX = 128
TOKENS_MAX = 60
# Shorter words are marked only when they are the same, longer ones also with another ending.
STEM_CHARS_MIN, ENDING_CHARS_MAX = 4, 3
BAR_WIDTH, CHART_HEIGHT = 20, 100


@dataclass(frozen=True, slots=True)
class Bar:
    """A day of the chart: its place and its two heights, in the units of the drawing."""

    title: str
    x: int
    turns: int
    entries: int


def page(name: str, **values: Any) -> str:
    """A page from its template."""
    return _environment().get_template(f"{name}.html").render(**values)


def link(path: str, **parameters: Any) -> str:
    """A link to a page; parameters that are empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in ("", None)}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def name_of(text: str) -> str:
    """A name that a user has chosen, as one line."""
    return safe_line(text, NAME_CHARS_MAX) or "(none)"


def snippet(text: str, matched: Sequence[str] = ()) -> Markup:
    """The text around the first of the matched words, with these words marked."""
    shown = visible(text)
    first = next((found.start() for found in _spans(shown, matched)), 0)
    if first <= SNIPPET_CHARS_MAX - BEFORE_CHARS_MAX:
        return marked(cut_at_word(shown, SNIPPET_CHARS_MAX), matched)
    start = first - BEFORE_CHARS_MAX
    start = shown.find(" ", start, first) + 1 or start
    return Markup("… ") + marked(cut_at_word(shown[start:], SNIPPET_CHARS_MAX), matched)


def marked(text: str, matched: Sequence[str]) -> Markup:
    """The text, escaped, with the matched words marked."""
    parts, end = [], 0
    for found in _spans(text, matched):
        parts += [escape(text[end : found.start()]), Markup("<mark>{}</mark>").format(found[0])]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _spans(text: str, matched: Sequence[str]) -> Iterator[re.Match[str]]:
    """The parts of the text that hold a matched word: as the index sees it, or with another ending."""
    if not matched:
        return
    unspaced = [re.escape(word) for word in matched if not word.isascii()]
    pattern = re.compile("|".join([*unspaced, r"[^\W_](?:[\w.@:/+#'-]*\w)?"]))
    for found in pattern.finditer(text):
        if found[0] in matched or any(_same(token, word) for token in _tokens(found[0]) for word in matched):
            yield found


def _tokens(word: str) -> list[str]:
    return tokenizer.query(word, TOKENS_MAX)


def _same(token: str, word: str) -> bool:
    short, long = sorted((token, word), key=len)
    ending = len(short) >= STEM_CHARS_MIN and len(long) - len(short) <= ENDING_CHARS_MAX
    return token == word or (ending and long.startswith(short))


def why(hit: Hit) -> list[str]:
    """Why a hit was found, in the order of weight for a reader."""
    reasons = []
    if hit.similarity is not None:
        reasons.append(f"meaning: similarity {hit.similarity:.2f}")
    if hit.relevance is not None:
        reasons.append(f"relevance for the re-ranker: {hit.relevance:.2f}")
    if hit.matched:
        reasons.append(f"words: {safe_line(' '.join(hit.matched), NAME_CHARS_MAX)} (BM25 {hit.words:.1f})")
    if hit.said > 1:
        reasons.append(f"said {hit.said} times")
    if hit.alike:
        reasons.append(f"{hit.alike} more alike")
    if hit.newer:
        reasons.append(f"older than {hit.newer[0]}")
    return reasons or ["beside a turn that was found"]


def bars(days: Sequence[dict[str, Any]]) -> list[Bar]:
    """The chart of the rows that were added each day, the highest of them as high as the drawing."""
    most = max((day["entries"] + day["turns"] for day in days), default=0) or 1

    def height(rows: int) -> int:
        return max(2, round(CHART_HEIGHT * rows / most)) if rows else 0

    return [
        Bar(
            f"{day['day']}: {counted(day['entries'], 'entry', 'entries')}, {counted(day['turns'], 'turn')}",
            place * BAR_WIDTH, height(day["turns"]), height(day["entries"]),
        )
        for place, day in enumerate(days)
    ]  # fmt: skip


def commands(home: Path, kind: str, number: int, theme: str) -> list[tuple[str, str]]:
    """What changes a row of a home: a label and a command line for a shell."""
    change, erase = (typed(f"hermes-pgvector {job} {number}", home) for job in ("edit", "erase"))
    of_theme = f"--theme {shlex.quote(theme)}"
    if kind == "turns":
        return [("Erase it for good", f"{erase} --turn {of_theme}")]
    return [("Change its text", f"{change} {of_theme}"), ("Erase it for good", f"{erase} {of_theme}")]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__ or ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(link=link, why=why, snippet=snippet, counted=counted)
    environment.filters.update(time=local_time, age=age, name=name_of, visible=visible)
    return environment
