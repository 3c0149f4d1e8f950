"""The facts of a theme that hold now, as they are injected: hot facts, open scopes, gauge and pressure."""

from __future__ import annotations

from dataclasses import dataclass

from ..settings import Settings
from ..store import facts as rows
from ..store.connection.database import Connection
from ..store.facts import Fact, FactScope
from . import block
from .block import Hot
from .notation import Notation

# A fact has at least six tokens in a block, so no budget shows more.
HOT_FACTS_MAX = 200


@dataclass(frozen=True, slots=True)
class FactState:
    """The first of `count` hot facts and the open scopes of a theme, and how many characters its active facts have."""

    theme: str
    facts: tuple[Fact, ...]
    count: int
    scopes: tuple[FactScope, ...]
    chars: int
    chars_max: int

    @property
    def percent(self) -> int:
        """How full the room for active facts is."""
        return self.chars * 100 // self.chars_max


def read(connection: Connection, theme: str, settings: Settings) -> FactState:
    """The state of a theme that has no other person's name. Costs the same however many cold facts there are."""
    hot, chars, scopes = rows.current(connection, theme, HOT_FACTS_MAX)
    count = len(hot) if len(hot) < HOT_FACTS_MAX else rows.count_hot(connection, theme)
    return FactState(theme, hot, count, scopes, chars, settings.facts_chars_max)


def pressure(percent: int, settings: Settings) -> str:
    """What makes room for new facts at this fill; empty while nothing does."""
    steps = (
        (settings.facts_unused_pct, "the longest unused facts become cold"),
        (settings.facts_closed_pct, "facts of closed scopes become cold"),
        (settings.facts_merge_pct, "equal facts of one target become one"),
    )
    return next((what for least, what in steps if percent >= least), "")


def text_of(state: FactState, settings: Settings, chars_max: int = 1_000_000) -> str:
    """The block of a state, within `facts_hot_tokens_max` and `chars_max`."""
    hot = Hot(
        facts=[Notation(fact.kind, fact.target, fact.content) for fact in state.facts],
        count=state.count,
        scopes=[scope.label for scope in state.scopes],
        percent=state.percent,
    )
    return block.block(hot, settings.facts_hot_tokens_max, chars_max)
