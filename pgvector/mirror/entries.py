"""MEMORY.md and USER.md as lists of entries: read, compare, and tell which entry a change was about. Pure.

Entries are compared as whole texts; the only substring test is that of `resolve`, on the entries of one file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from ..model import Add, Event, Remove, Replace

DELIMITER = "\n§\n"


@dataclass(frozen=True, slots=True)
class Changes:
    """What reconciling has to do to the database, in the order of the file and of the snapshot."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def parse(text: str) -> tuple[str, ...]:
    """The entries of a file, stripped, each once, in order; the same list that the host makes of it."""
    return _distinct(entry.strip() for entry in as_in_file(text).split(DELIMITER))


def as_in_file(content: str) -> str:
    """What an agent saves as the host will read it from the file: hooks get it as the agent wrote it."""
    return content.replace("\r\n", "\n").replace("\r", "\n").strip()


def diff(file: Iterable[str], snapshot: Iterable[str]) -> Changes:
    """Compare a file with its snapshot, the file as last reconciled.

    What is new in the file is added, what is gone from it is removed. An entry of both is left alone even when the
    database lacks it: it was removed elsewhere. What the database alone holds is another home's. Whether an entry is
    stored already is for the database to say, when the change arrives there.
    """
    now, before = _distinct(file), _distinct(snapshot)
    known, present = frozenset(before), frozenset(now)
    return Changes(
        add=tuple(entry for entry in now if entry not in known),
        remove=tuple(entry for entry in before if entry not in present),
    )


def apply(snapshot: Iterable[str], event: Add | Replace | Remove) -> tuple[str, ...]:
    """The snapshot after a change that a hook has reported, made the way the host makes it to the file.

    A replacement stays in its place. When the old entry cannot be told, it stays in the snapshot, and the next
    reconciliation finds it gone from the file.
    """
    entries = _distinct(snapshot)
    match event:
        case Add():
            return _distinct((*entries, *parse(event.content)))
        case Replace():
            new = parse(event.content)
            old = event.previous or resolve(event.old_text, entries, event.surviving)
            if old in entries:
                place = entries.index(old)
                return _distinct((*entries[:place], *new, *entries[place + 1 :]))
            return _distinct((*entries, *new))
        case Remove():
            old = event.previous or resolve(event.old_text, entries, event.surviving)
            return tuple(entry for entry in entries if entry != old)


def parted(event: Add | Replace) -> list[Event]:
    """The change as the file shows it: a content that holds the delimiter is several entries there."""
    first, *others = parse(event.content) or (event.content,)
    more = [
        Add(
            theme=event.theme, home=event.home, session_id=event.session_id, target=event.target,
            metadata=event.metadata, content=entry, at=event.at + timedelta(microseconds=place),
        )
        for place, entry in enumerate(others, 1)
    ]  # fmt: skip
    return [replace(event, content=first), *more]


def resolve(old_text: str, before: Iterable[str], after: Collection[str]) -> str | None:
    """The one entry of `before` that holds `old_text` and is gone in `after`; None when there is none or several."""
    wanted = old_text.strip()
    if not wanted:
        return None
    surviving = frozenset(after)
    gone = [entry for entry in _distinct(before) if wanted in entry and entry not in surviving]
    return gone[0] if len(gone) == 1 else None


def _distinct(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, entries)))
