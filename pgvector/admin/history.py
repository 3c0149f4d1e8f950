"""history, undo: what entries said before they were replaced, removed or edited, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from rich.text import Text

from ..errors import BadArgument, Refused
from ..session.themes import aliased
from ..settings import load
from ..store import entries
from ..store.connection.database import Connection, Database
from ..store.history import Past, past_entries, restore
from ..text.sanitize import safe_line
from ..text.theme_names import normalise
from .console import Console, local, rows_table
from .migration import start_server

TEXT_CHARS_MAX = 300


def history(home: Path, console: Console, *, theme: str, target: str, limit: int, since: datetime | None) -> int:
    """Print what went last, newest first, of one theme or all. Returns 0, also when there is nothing."""
    settings = load(home)
    own = aliased(normalise(theme), settings.theme_aliases) if theme else ""
    with _connection(home) as connection:
        found = past_entries(connection, limit, theme=own, target=target, since=since)
    console.data({"history": [asdict(entry) for entry in found]})
    if found:
        rows = [(str(entry.id), local(entry.gone_at), entry.how, _told(entry)) for entry in found]
        console.show(rows_table(("ID", "Went", "How", "Entry"), rows, numbers=("ID",)))
    else:
        console.show("nothing was replaced or removed")
    return 0


def undo(home: Path, console: Console, *, number: int) -> int:
    """Bring back the entry that the history has as `number`. Raises Refused when its theme has it already."""
    with _connection(home) as connection:
        found = past_entries(connection, 1, number=number)
        if not found:
            raise BadArgument(f"the history has no entry {number}; see hermes-pgvector history")
        entry = found[0]
        restored = restore(connection, entry)
        if restored is None:
            there = _row(connection, entry, entry.content)
            raise Refused(f"theme {entry.theme} has this entry already, as row {there} of {entry.target}")
        instead = _row(connection, entry, entry.replaced_by) if entry.replaced_by else None
    console.data({"restored": restored, "beside": instead, "entry": asdict(entry)})
    console.show(f"brought back into theme {entry.theme}, {entry.target}, as row {restored}:")
    console.show(safe_line(entry.content, TEXT_CHARS_MAX))
    if instead is not None:
        console.say(f"what replaced it is there, too, as row {instead}")
    console.say("no file was changed: an agent recalls the entry, and MEMORY.md or USER.md stays as it is")
    return 0


def _row(connection: Connection, entry: Past, content: str) -> int | None:
    """The id of the row of the same theme and target that says exactly this; None when there is none."""
    found = entries.entry_with(connection, entry.theme, entry.target, content)
    return found.id if found else None


@contextmanager
def _connection(home: Path) -> Iterator[Connection]:
    """A connection to the memory of a home, whose embedded server is started when it is stopped."""
    settings = load(home)
    database = Database(settings, home)
    try:
        start_server(database)
        with database.connection(settings.connect_timeout_s) as connection:
            database.verify(connection)
            yield connection
    finally:
        database.close()


def _told(entry: Past) -> Text:
    """Where an entry was and from which session it went, what it said, and what is there instead; for a terminal."""
    session = f", session {safe_line(entry.session_id, 36)}" if entry.session_id else ""
    text = Text.assemble(
        (f"{safe_line(entry.theme, 40)}, {entry.target}, of {local(entry.updated_at)}{session}\n", "dim"),
        safe_line(entry.content, TEXT_CHARS_MAX),
    )
    if entry.replaced_by is not None:
        text.append(f"\n→ {safe_line(entry.replaced_by, TEXT_CHARS_MAX)}", "dim")
    return text
