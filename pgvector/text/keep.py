"""Decides by the rules of `keep` what is kept of a text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from .keep_rules import Action, Matcher, Rule, Side, expression

OWNER = "owner"
# Where the person who types is the owner.
TERMINALS = frozenset({"cli", "tui", "desktop", "webui", "acp"})
PRIVATE_CHATS = frozenset({"dm", "private", "direct", "c2c"})
LEVELS: dict[Action, int] = {"none": 0, "entries": 1, "turns": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a text comes from, as the host says it; what it does not say is empty.

    `authors` are the ids of its author, None when it is not known who it is. `is_file` marks an entry found in
    MEMORY.md or USER.md, which are the owner's.
    """

    platform: str = ""
    chat_type: str = ""
    rooms: tuple[str, ...] = ()
    authors: tuple[str, ...] | None = ()
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is kept, and the number of the rule that decided, counted from 1; 0 when none applies."""

    action: Action
    rule: int = 0

    def __str__(self) -> str:
        return f"rule {self.rule} of keep says {self.action}" if self.rule else "no rule of keep applies"


class Decider:
    """The rules in their order, ready for use. Safe for any thread."""

    def __init__(self, rules: Sequence[Rule], owner_accounts: Collection[str]) -> None:
        self._rules = [(rule, expression(rule.pattern) if rule.pattern else None) for rule in rules]
        self._owner = frozenset(map(_folded, owner_accounts))
        self.has_patterns = any(matcher for _, matcher in self._rules)

    def turn(self, source: Source, side: Side, texts: Mapping[Side, str], *, most: bool = False) -> Ruling:
        """What is kept of this side of a turn. A rule without a role is about the whole turn, so either text counts.

        When the author is not known, this is the least that could be kept; with `most`, the most.
        """

        def concerns(rule: Rule, matcher: Matcher | None) -> bool:
            if rule.role and rule.role != side:
                return False
            searched = [texts[rule.role]] if rule.role else texts.values()
            return matcher is None or any(map(matcher, searched))

        return self._decide(source, concerns, most=most)

    def entry(self, source: Source, content: str) -> Ruling:
        """What is kept of an entry. Rules with a role are about turns alone."""

        def concerns(rule: Rule, matcher: Matcher | None) -> bool:
            return rule.role is None and (matcher is None or matcher(content))

        return self._decide(source, concerns, most=False)

    def _decide(self, source: Source, concerns: Callable[[Rule, Matcher | None], bool], *, most: bool) -> Ruling:
        possible: list[Ruling] = []
        for number, (rule, matcher) in enumerate(self._rules, 1):
            if not (_is_there(rule, source) and concerns(rule, matcher)):
                continue
            by_author = self._is_by(rule.author, source) if rule.author else True
            if by_author is not False:
                possible.append(Ruling(rule.action, number))
            if by_author:
                break
        else:
            possible.append(Ruling("turns"))
        return (max if most else min)(possible, key=lambda ruling: LEVELS[ruling.action])

    def _is_by(self, author: str, source: Source) -> bool | None:
        """Whether a text is by this author; None when that is not known."""
        if _folded(author) != OWNER:
            return None if source.authors is None else _folded(author) in map(_folded, source.authors)
        platform = _folded(source.platform)
        if source.is_file or platform in TERMINALS or platform in self._owner:
            return True
        if source.authors is None:
            return None
        return any(f"{platform}:{_folded(author)}" in self._owner for author in source.authors)


def _is_there(rule: Rule, source: Source) -> bool:
    return (
        (not rule.platform or _folded(rule.platform) == _folded(source.platform))
        and (not rule.chat_type or _is_chat_type(_folded(rule.chat_type), _folded(source.chat_type)))
        and (not rule.room or _folded(rule.room) in map(_folded, source.rooms))
    )


def _is_chat_type(wanted: str, actual: str) -> bool:
    """Whether a chat has this type. `dm` stands for all private chats, `group` for all others."""
    if wanted in ("dm", "group") and actual:
        return (wanted == "dm") == (actual in PRIVATE_CHATS)
    return wanted == actual


def _folded(name: str) -> str:
    return name.strip().casefold()
