"""The block of hot facts for a prompt: notation, gauge, open scopes and facts, within a budget of tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import FACTS_HEADING
from ..text.sanitize import safe_line, unlinked_line
from .notation import Notation
from .tokens import tokens_of

HEADING = f"{FACTS_HEADING}; C constraint, D decision, V value, ? open, ✓ done, ~ obsolete):"
NONE = "(none yet)"
SCOPES_MAX = 5
SCOPE_SHOWN_CHARS = 40
# The least budgets: what is always there has room in them.
CHARS_MIN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """What a block shows: the first of `count` hot facts, the labels of open scopes, and how full the memory is."""

    facts: Sequence[Notation] = ()
    count: int = 0
    scopes: Sequence[str] = ()
    percent: int = 0


def block(hot: Hot, tokens_max: int, chars_max: int = 1_000_000) -> str:
    """The block, of at most `tokens_max` tokens as `tokens_of` counts them and `chars_max` characters.

    No fact is cut: one that does not fit is left out, and the last line counts those.
    """
    count = max(hot.count, len(hot.facts))
    room = _Room(tokens_max, chars_max)
    room.takes(HEADING)
    room.takes(_left_out(count))
    lines = [HEADING, *filter(room.takes, [_state(hot, tokens_max // 6)])]
    facts = [*filter(room.takes, map(line, hot.facts))]
    if count == 0:
        return "\n".join((*lines, NONE))
    return "\n".join((*lines, *facts, *([_left_out(count - len(facts))] if count > len(facts) else [])))


class _Room:
    """What is left of a budget."""

    def __init__(self, tokens: int, chars: int) -> None:
        self._tokens, self._chars = tokens, chars

    def takes(self, line: str) -> bool:
        """Whether the line still fits; then its room is taken."""
        tokens, chars = self._tokens - tokens_of(f"{line}\n"), self._chars - len(line) - 1
        if tokens < 0 or chars < 0:
            return False
        self._tokens, self._chars = tokens, chars
        return True


def line(fact: Notation) -> str:
    """The fact in notation, sanitized and whole."""
    text = str(fact)
    # Sanitizing adds a few characters to a line; it cuts none of this length.
    return unlinked_line(text, 10 * len(text))


def _state(hot: Hot, tokens_max: int) -> str:
    """How full the memory is, and as many open scopes as have room; the others are counted."""
    labels = [safe_line(label, SCOPE_SHOWN_CHARS) for label in hot.scopes]
    for shown in range(min(SCOPES_MAX, len(labels)), 0, -1):
        more = f", {len(labels) - shown} more" if len(labels) > shown else ""
        line = f"({hot.percent} % full; open scopes: {', '.join(labels[:shown])}{more})"
        if tokens_of(line) <= tokens_max:
            return line
    return f"({hot.percent} % full; {len(labels)} open scopes)"


def _left_out(count: int) -> str:
    return f"… {count} more: memory_search"
