"""MEMORY.md and USER.md as lists of entries: parsed, compared, changed. Pure.

Entries are compared as whole texts; only `find_removed` looks for a part of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import timedelta

from ..model import Add, Event, Remove, Replace
from ..text.masks import masked

DELIMITER = "\n§\n"


def parse(text: str) -> tuple[str, ...]:
    """The entries of a file, stripped, without duplicates, in order: the same list that the host reads."""
    return _distinct(parse_all(text))


def parse_all(text: str) -> tuple[str, ...]:
    """The entries of a file as `parse`, with those that stand there twice."""
    # Hooks get a text as the agent wrote it; hosts read it back from the file with line feeds only.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    return tuple(filter(None, (entry.strip() for entry in lines.split(DELIMITER))))


def diff(file: Iterable[str], snapshot: Iterable[str]) -> tuple[list[str], list[str]]:
    """The entries that a file has gained, and those that it has lost, since its snapshot, in their order.

    An entry in both is unchanged. If the database lacks it, another home has removed it, and it is not added again. An
    entry that only the database has belongs to another home.
    """
    now, before = _distinct(file), _distinct(snapshot)
    known, present = frozenset(before), frozenset(now)
    return [entry for entry in now if entry not in known], [entry for entry in before if entry not in present]


def same_but_masked(entry: str, entries: Iterable[str]) -> str | None:
    """The first of the entries that is the given one, with or without masks in it; None when there is none."""
    form = masked(entry)
    return next((each for each in entries if masked(each) == form), None)


def in_form(event: Add | Replace | Remove, form: Callable[[str], str]) -> Add | Replace | Remove:
    """The change with each of its texts in the form that is stored. An entry is masked as it is in the file, alone."""
    if not isinstance(event, Remove):
        event = replace(event, content=DELIMITER.join(map(form, parse(event.content))))
    if isinstance(event, Add):
        return event
    return replace(event, old_text=form(event.old_text), previous=form(event.previous))


def apply_change(snapshot: Iterable[str], event: Add | Replace | Remove) -> tuple[str, ...]:
    """The snapshot after a change that a hook reported, as the host changes the file.

    A replacement keeps the place of the old entry. When the old entry is not known, it stays in the snapshot, and the
    next reconciliation finds that the file has lost it.
    """
    entries = _distinct(snapshot)
    match event:
        case Add():
            return _distinct((*entries, *parse(event.content)))
        case Replace():
            new = parse(event.content)
            old = event.previous or find_removed(event.old_text, entries, event.surviving)
            if old in entries:
                place = entries.index(old)
                return _distinct((*entries[:place], *new, *entries[place + 1 :]))
            return _distinct((*entries, *new))
        case Remove():
            old = event.previous or find_removed(event.old_text, entries, event.surviving)
            return tuple(entry for entry in entries if entry != old)


def split_contents(event: Add | Replace) -> list[Event]:
    """The change as one event for each entry: a content with the delimiter in it is several entries of the file."""
    first, *others = parse(event.content) or ("",)
    more = [
        Add(
            theme=event.theme, home=event.home, session_id=event.session_id, target=event.target,
            metadata=event.metadata, content=entry, at=event.at + timedelta(microseconds=place),
        )
        for place, entry in enumerate(others, 1)
    ]  # fmt: skip
    return [replace(event, content=first), *more]


def find_removed(old_text: str, before: Iterable[str], after: Collection[str]) -> str | None:
    """The one entry of `before` that contains `old_text` and is not in `after`; None when there is none or several."""
    wanted = old_text.strip()
    if not wanted:
        return None
    surviving = frozenset(after)
    removed = [entry for entry in _distinct(before) if wanted in entry and entry not in surviving]
    return removed[0] if len(removed) == 1 else None


def _distinct(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, entries)))
