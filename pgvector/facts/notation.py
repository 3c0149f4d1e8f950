"""Notation of facts, `KIND[target]: content`: parsed, formatted, and corrected where it is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import BadArgument
from ..model import FACT_SCOPE_CHARS_MAX, FACT_TARGET_CHARS_MAX, FactKind
from ..text.cleaning import clean, compatible
from ..text.sanitize import cut_at_word, visible

SYMBOLS: Mapping[FactKind, str] = {"C": "C", "D": "D", "V": "V", "?": "?", "done": "✓", "obs": "~"}
EXAMPLE = "C[db.id]: UUID, never autoincrement"
FORMS = "C[target]: constraint, D[…] decision, V[…] value, ?[…] open question, ✓[…] done, ~[…] obsolete"
# So much of a wrong fact is shown again.
_SHOWN_CHARS = 160

_KIND_OF: dict[str, FactKind] = {
    **{symbol: kind for kind, symbol in SYMBOLS.items()},
    "Ｃ": "C", "Ｄ": "D", "Ｖ": "V", "？": "?", "✔": "done", "✅": "done", "☑": "done",
    "〜": "obs", "∼": "obs", "～": "obs",
}  # fmt: skip
# What people write for a kind; a fact that begins so is shown in the right form.
_WORDS: dict[str, FactKind] = {
    "c": "C", "constraint": "C", "rule": "C", "must": "C",
    "d": "D", "decision": "D", "decided": "D",
    "v": "V", "value": "V", "fact": "V", "note": "V",
    "unknown": "?", "open": "?", "question": "?", "todo": "?",
    "done": "done", "fixed": "done",
    "obsolete": "obs", "obs": "obs", "replaced": "obs",
}  # fmt: skip
_OPEN, _CLOSE = r"[\[［【〔]", r"[\]］】〕]"
_FACT = re.compile(
    rf"(?P<kind>[{re.escape(''.join(_KIND_OF))}])\ufe0f?\s*{_OPEN}(?P<target>[^\[\]［］【】〔〕]*){_CLOSE}\s*[:：]"
    r"(?P<content>.*)",
    re.DOTALL,
)
# Some signs become a bracket in their normal form.
_NO_BRACKETS = str.maketrans("[]", "()")
_NAME = r"[^\[\]()［］【】〔〕（）:：]{1,200}"
_LOOSE = re.compile(
    rf"(?P<kind>\w{{1,20}}|[^\s\w\[(]{{1,2}})?\s{{0,9}}[\[(［【〔（](?P<target>{_NAME})[\])］】〕）]"
    r"\s{0,9}[:：=\-–—]{0,2}\s{0,9}(?P<content>.*)",
    re.DOTALL,
)
_HEADED = re.compile(r"(?P<head>[\w.\-/ ]{1,60}?)\s{0,9}[:：=]\s{0,9}(?P<content>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Notation:
    """A fact as it is written: its kind, what it is about, and what holds."""

    kind: FactKind
    target: str
    content: str

    def __str__(self) -> str:
        return formatted(self.kind, self.target, self.content)


def formatted(kind: FactKind, target: str, content: str) -> str:
    """The fact in notation, as one line."""
    return f"{SYMBOLS[kind]}[{target}]: {content}"


def parse(text: str, content_chars_max: int) -> Notation:
    """The fact that a text is. Raises BadArgument, which shows the right form with the user's own words.

    Full-width signs count as their narrow ones. A longer content than `content_chars_max` is refused, never cut.
    """
    text = clean(text).strip()
    if not text:
        raise BadArgument(f"content is missing or empty; write a fact, for example {EXAMPLE}")
    found = _FACT.fullmatch(text)
    content = found["content"].strip() if found else ""
    if found is None or len(content.splitlines()) > 1 or not all(map(normal_name, (found["target"], content))):
        raise BadArgument(_explained(text))
    target = normal_name(found["target"])
    # Of a longer one, `normal_name` reads the beginning.
    chars = len(found["target"]) if len(found["target"]) > 10 * FACT_TARGET_CHARS_MAX else len(target)
    if chars > FACT_TARGET_CHARS_MAX:
        raise BadArgument(f"the target of content has {chars} characters; it may have {FACT_TARGET_CHARS_MAX}")
    if len(content) > content_chars_max:
        raise BadArgument(
            f"the fact about {target!r} has {len(content)} characters; it may have {content_chars_max}: "
            "nothing is cut, so shorten it or write several facts"
        )
    return Notation(_KIND_OF[found["kind"]], target, content)


def normal_name(text: str) -> str:
    """A target or a scope in its normal form: no hidden characters, one width of letters, single spaces."""
    seen = (c for c in compatible(clean(text)[: 10 * FACT_TARGET_CHARS_MAX]) if c.isspace() or c.isprintable())
    return " ".join("".join(seen).translate(_NO_BRACKETS).split())


def scope_label(text: str, name: str = "scope") -> str:
    """The label of a scope in its normal form, empty for an empty text. Raises BadArgument for a longer one."""
    label = normal_name(text)
    if text.strip() and not label:
        raise BadArgument(f"{name} is {text[:40]!r}, which has nothing to see; leave it out or name a piece of work")
    if max(len(label), len(text) // 10) > FACT_SCOPE_CHARS_MAX:
        raise BadArgument(f"{name} has {len(text)} characters; it may have {FACT_SCOPE_CHARS_MAX}")
    return label


def _explained(text: str) -> str:
    if (lines := [line.strip() for line in text.splitlines() if line.strip()])[1:]:
        several = sum(bool(_FACT.fullmatch(line)) for line in lines) > 1
        advice = "write each fact with a call of its own, for example" if several else "write it as one line"
        shown = lines[0] if several else " ".join(lines)
        return f"content has {len(lines)} lines, and a fact is one line: {advice}: {_shown(shown)}"
    return f"content is not a fact: {FORMS}. Did you mean: {_shown(suggested(text))}"


def suggested(text: str) -> str:
    """A text that is no fact as the fact that it may mean; of what it does not say, a word stands in its place."""
    if found := _LOOSE.fullmatch(text):
        kind = _meant(found["kind"] or "")
        return _complete(kind, found["target"], found["content"])
    if found := _HEADED.fullmatch(text):
        kind = _meant(found["head"])
        return _complete(kind, "" if kind else found["head"], found["content"])
    empty = _FACT.fullmatch(text)
    return _complete(_KIND_OF[empty["kind"]], "", empty["content"]) if empty else _complete(None, "", text)


def _complete(kind: FactKind | None, target: str, content: str) -> str:
    seen = content.strip() if normal_name(content) else "what holds"
    return formatted(kind or "V", normal_name(target) or "target", seen)


def _meant(word: str) -> FactKind | None:
    return _KIND_OF.get(word) or _WORDS.get(word.strip().lower())


def _shown(text: str) -> str:
    return cut_at_word(" ".join(visible(text[: 4 * _SHOWN_CHARS]).split()), _SHOWN_CHARS)
