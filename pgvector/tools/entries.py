"""The tools that keep, correct, remove and list entries: remember, update, forget and list_memories.

A host imports this module at its start, so the functions import what takes long to import.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import BadArgument, DatabaseUnavailable, Refused, SchemaNotApplied, Unavailable
from ..hosts.environment import user_zone
from ..model import TARGETS, Add, Caller, Update, now
from ..recall.quarantine import RELEASED
from ..runtime import Runtime
from ..session.attribution import save_id
from ..session.scopes import readable, writable
from ..text import times
from ..text.cleaning import clean
from ..text.masks import masked
from . import arguments as given
from .arguments import Arguments
from .entry_schemas import LIMIT_DEFAULT
from .storage import accept, check_kept, check_on_record, read_if_there, read_when_settled

if TYPE_CHECKING:
    from ..store.connection.database import Connection
    from ..store.entries import Entry

METADATA_CHARS_MAX = 4000
# Metadata of the origin of an entry, which a model must not set.
RESERVED = frozenset({
    "origin", "session_id", "saves", "context", "client", "tools", "delegated_to", "history_id",
    "linked_account", RELEASED,
})  # fmt: skip
ID_MAX = (1 << 63) - 1


def remember(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Accept an entry of the caller's theme, or of one that `also_write` lists.

    Raises BadArgument, Refused, or DatabaseUnavailable.
    """
    wait = given.switch(arguments, "sync")
    event, old = _addition(runtime, arguments, caller)
    answer = _accepted(runtime, event, old, unchecked=bool(event.supersedes) and old is None)
    return answer | (_when_stored(runtime, event, event.target) if wait else {})


def preview_of_remember(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `remember` would do. Raises as it does, and DatabaseUnavailable when the old text cannot be shown."""
    event, old = _addition(runtime, arguments, caller)
    if event.supersedes:
        _require(old)
    own = {name: value for name, value in event.metadata.items() if name not in RESERVED}
    noted = [f"in theme {event.theme}"] if event.theme != caller.theme else []
    noted += [f"metadata: {json.dumps(own)}"] if own else []
    return "\n".join([f"remember ({event.target}): {event.content}", *noted, *_changes(arguments, old)])


def update(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Accept another text for an entry of the caller's theme, and wait until it is stored. Raises as `remember`."""
    event, old = _correction(runtime, arguments, caller)
    if old is not None and old.content == event.content and not event.expires and event.tags is None:
        return {"status": "unchanged", "id": old.id, "theme": old.theme}
    answer = _accepted(runtime, event, old, unchecked=old is None)
    return answer | (_when_stored(runtime, event, old.target) if old is not None else {})


def preview_of_update(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `update` would do. Raises as `preview_of_remember`."""
    event, old = _correction(runtime, arguments, caller)
    target = _require(old).target
    return "\n".join([f"update ({target}): {event.content}", *_changes(arguments, old)])


def _addition(runtime: Runtime, arguments: Arguments, caller: Caller) -> tuple[Add, Entry | None]:
    """The event of `remember`, and the entry whose place it takes if that is known."""
    content = _content(runtime, arguments, caller)
    metadata = given.mapping(arguments, "metadata", METADATA_CHARS_MAX)
    check_kept(caller, content + (f"\n{json.dumps(metadata, ensure_ascii=False)}" if metadata else ""))
    if claimed := RESERVED & metadata.keys():
        raise BadArgument(f"metadata may not hold {', '.join(sorted(claimed))}; choose other names")
    target = given.choice(arguments, "target", TARGETS) or "memory"
    named = given.text(arguments, "theme")
    theme = writable(caller.theme, named, runtime.settings) if named else caller.theme
    labels = _labels(arguments)
    number = given.whole(arguments, "supersedes", 1, ID_MAX)
    old = _correctable(runtime, caller, theme, "supersedes", number) if number else None
    event = Add(
        theme=theme, session_id=caller.session_id, target=target, content=content,
        metadata={**metadata, **_origin(caller)}, supersedes=number or 0, **labels,
    )  # fmt: skip
    return event, old


def _correction(runtime: Runtime, arguments: Arguments, caller: Caller) -> tuple[Update, Entry | None]:
    """The event of `update`, and the entry that it changes if that is known."""
    content = _content(runtime, arguments, caller)
    check_kept(caller, content)
    labels = _labels(arguments)
    number = _id(arguments)
    old = _correctable(runtime, caller, caller.theme, "id", number)
    event = Update(
        theme=caller.theme, session_id=caller.session_id, entry_id=number, content=content, metadata=_origin(caller),
        **labels,
    )  # fmt: skip
    return event, old


def _changes(arguments: Arguments, old: Entry | None) -> list[str]:
    """Lines about what a write changes beside its text. A time span counts from the approval."""
    expires, tags = given.text(arguments, "expires"), given.tags(arguments, "tags")
    lines = [f"expires: {expires}"] if expires else []
    lines += [] if tags is None else [f"tags: {', '.join(tags) or 'none'}"]
    return lines + ([] if old is None else [f"in place of entry {old.id}: {old.content}"])


def _require(old: Entry | None) -> Entry:
    if old is None:
        raise DatabaseUnavailable("the entry to be changed cannot be read now, so nobody can approve it; try later")
    return old


def _content(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """The text to keep."""
    check_on_record(caller)
    chars_max = runtime.settings.content_chars_max
    content = clean(given.text(arguments, "content")).strip()
    if runtime.settings.mask_secrets_in_entries:
        content = masked(content)
    if not content:
        raise BadArgument("content is missing or empty; say what to remember")
    if len(content) > chars_max:
        raise BadArgument(f"content has {len(content)} characters; it may have {chars_max}")
    return content


def _labels(arguments: Arguments) -> dict[str, Any]:
    """The fields of an event for expiry and tags."""
    expires = times.expiry(given.text(arguments, "expires"), now(), zone=user_zone())
    return {"expires": expires, "tags": given.tags(arguments, "tags")}


def _origin(caller: Caller) -> dict[str, Any]:
    return {"origin": "remember", "session_id": caller.session_id, "saves": [save_id()], **caller.marks}


def _id(arguments: Arguments) -> int:
    number = given.whole(arguments, "id", 1, ID_MAX)
    if number is None:
        raise BadArgument("id is missing; list_memories and recall_memory show it")
    return number


def _correctable(runtime: Runtime, caller: Caller, theme: str, name: str, number: int) -> Entry | None:
    """The entry that is to be corrected; None while the database does not answer.

    Raises BadArgument when the theme has no such entry now, and when it stands in a file of this home: the host's own
    tool changes both the file and, by its hook, the entry. Of another theme, entries are unknown where the caller may
    not read it, and where it is linked to a person: it then holds private chats.
    """
    from ..store.entries import with_id

    def reading(connection: Connection, place: str) -> Entry | None:
        return with_id(connection, place, number) if theme in (caller.theme, place) else None

    if theme != caller.theme and not _reads(runtime, caller, theme):
        raise BadArgument(_unknown(theme, name, number))
    try:
        found = read_when_settled(runtime, theme, reading)
    except (Unavailable, SchemaNotApplied):
        return None
    if found is None:
        raise BadArgument(_unknown(theme, name, number))
    if found.id != number:
        raise BadArgument(f"{name} is {number}; entry {found.id} has replaced it: recall it, then give its id")
    if file := runtime.home.file_of(found):
        raise BadArgument(
            f"entry {number} stands in {file}: change it there with the memory tool; it then changes here"
        )
    return found


def _reads(runtime: Runtime, caller: Caller, theme: str) -> bool:
    """Whether the caller may read another theme."""
    try:
        themes = readable(caller.theme, theme, runtime.settings, caller.granted)
    except BadArgument:
        return False
    return themes is None or theme in themes


def _unknown(theme: str, name: str, number: int) -> str:
    return f"{name} is {number}; the memory of theme {theme} has no such entry"


def _accepted(runtime: Runtime, event: Add | Update, old: Entry | None, *, unchecked: bool) -> dict[str, Any]:
    from . import answers

    accept(runtime, event)
    notes = {"note": "the database does not answer, so the id was not checked"} if unchecked else {}
    if old is not None and old.home and old.home != runtime.home.id:
        notes = {"note": "another host has the old text in its memory file, and keeps it there"}
    return answers.of_accepted(event, old) | notes


def _when_stored(runtime: Runtime, event: Add | Update, target: str) -> dict[str, Any]:
    """The part of the answer about the stored row; waits for it at most as long as a recall may take.

    Raises Refused when the database has refused it.
    """
    from ..store.entries import entry_with
    from ..store.facts import is_applied
    from . import answers

    def reading(connection: Connection, theme: str) -> Entry | None:
        found = entry_with(connection, theme, target, event.content)
        if found is None and not is_applied(connection, theme, event.id):
            raise Refused("the database refuses this entry; the reason is in: hermes-pgvector spool list")
        return found

    budget_s = runtime.settings.recall_budget_s
    if runtime.writer.flush(budget_s) and (found := read_if_there(runtime, event.theme, reading, budget_s)):
        return answers.of_stored(found, event)
    return answers.of_unstored(budget_s)


def forget(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Remove an entry of the caller's theme; the history keeps it. Raises BadArgument, or Unavailable."""
    from ..store.entries import delete
    from ..store.person_links import themes_of
    from . import answers

    number = _id(arguments)
    at, budget_s = now(), runtime.settings.recall_budget_s
    with runtime.database.transaction(budget_s, budget_s, within_s=budget_s) as connection:
        found = (
            delete(connection, theme, number, session_id=caller.session_id, at=at)
            for theme in themes_of(connection, caller.theme)
        )
        removed = next(filter(None, found), None)
    if removed is None:
        raise BadArgument(_unknown(caller.theme, "id", number))
    return answers.of_forgotten(removed, runtime.settings.recall_chars_max, file=runtime.home.file_of(removed))


def preview_of_forget(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `forget` would do. Raises BadArgument, or Unavailable."""
    from ..store.entries import with_id
    from ..store.person_links import themes_of

    number, budget_s = _id(arguments), runtime.settings.recall_budget_s
    with runtime.database.connection(budget_s, within_s=budget_s) as connection:
        every = [with_id(connection, theme, number) for theme in themes_of(connection, caller.theme)]
    found = next((each for each in every if each is not None and each.id == number), None)
    if found is None:
        raise BadArgument(_unknown(caller.theme, "id", number))
    return f"forget entry {number} ({found.target}): {found.content}"


def list_memories(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Count the entries of the caller's theme and list the newest. Raises BadArgument, or Unavailable."""
    from ..store.entries import count_by_target, newest
    from . import answers

    limit_max = runtime.settings.recall_limit_max
    target = given.choice(arguments, "target", TARGETS) or ""
    limit = given.whole(arguments, "limit", 1, limit_max) or min(LIMIT_DEFAULT, limit_max)
    before = given.whole(arguments, "before", 1, ID_MAX)
    tags = given.tags(arguments, "tags") or ()

    def reading(connection: Connection, theme: str) -> dict[str, Any]:
        counts = count_by_target(connection, theme)
        found = newest(connection, theme, limit, target=target, before=before, tags=tags)
        return answers.of_list(theme, counts, found, limit, runtime.settings.recall_chars_max)

    return read_when_settled(runtime, caller.theme, reading)
