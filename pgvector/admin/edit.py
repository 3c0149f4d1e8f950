"""edit: change the text of an entry in an editor."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from ..errors import BadArgument, BadEvent, PgvectorError, Refused
from ..files import read
from ..mirror.home import Home
from ..model import Update
from ..settings import Settings, load
from ..store.connection.database import Connection
from ..store.entries import Entry, entry_with, themes_with_id, with_id
from ..store.history import past_entries, update_seen
from ..text.cleaning import clean
from ..text.masks import masked
from ..text.sanitize import safe_line
from .console import Console, labels
from .database import connection, theme_named
from .limits import COUNT_S_MAX

TEXT_CHARS_MAX = 400
FILE_BYTES_MAX = 16 << 20
EDITOR = "vi"
STDERR = 2
PAST_MAX = 20


def edit(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Open an entry in an editor and store its new text. Returns 0, or 1 when the entry was changed meanwhile.

    Raises BadArgument for an unknown entry, and Refused for one of a memory file of this home.
    """
    settings = load(home)
    with connection(home, COUNT_S_MAX) as reading:
        seen = _entry(reading, args.id, args.theme, settings)
    if file := Home(home).file_of(seen):
        raise Refused(f"entry {seen.id} stands in {home / 'memories' / file}: edit that file, and agents follow")
    content = _edited(seen.content)
    if settings.mask_secrets_in_entries:
        content = masked(content)
    if content in ("", seen.content):
        console.data({"changed": False, "id": seen.id, "theme": seen.theme})
        console.say(f"the text is {'unchanged' if content else 'empty'}: entry {seen.id} stays as it is")
        return 0
    try:
        if len(content) > (most := settings.content_chars_max):
            raise BadArgument(f"the text has {len(content)} characters; content_chars_max allows {most}")
        current = _store(home, console, seen, content)
    except PgvectorError as error:
        console.say("nothing is changed; you wrote:", content)
        if isinstance(error, BadEvent):
            raise Refused(f"entry {seen.id} was removed while you edited it") from None
        raise
    return 0 if current is None else _conflict(console, seen, current, content)


def _store(home: Path, console: Console, seen: Entry, content: str) -> Entry | None:
    """Store the new text and print it. Returns the entry as it is now when somebody else has changed it."""
    event = Update(theme=seen.theme, entry_id=seen.id, content=content, metadata={"origin": "remember"})
    with connection(home, COUNT_S_MAX) as writing:
        current = update_seen(writing, event, seen.content)
        if current is not None:
            return current
        changed = entry_with(writing, seen.theme, seen.target, content)
        newest = past_entries(writing, PAST_MAX, theme=seen.theme)
    past = next((entry.id for entry in newest if entry.entry_id == seen.id), None)
    console.data({"changed": True, "entry": changed and asdict(changed), "replaces": seen.id, "history": past})
    if changed:
        kept = labels(changed.tags, changed.expires_at)
        console.show(f"entry {seen.id} of theme {seen.theme} is entry {changed.id} now{kept}:")
    console.show(safe_line(content, TEXT_CHARS_MAX))
    console.say(f"to take it back: hermes-pgvector undo {past or 'N, as hermes-pgvector history shows it'}")
    return None


def _entry(reading: Connection, number: int, theme: str, settings: Settings) -> Entry:
    """The entry with this id, in `theme` or in the only theme that has one."""
    themes = [theme_named(reading, theme, settings)] if theme else themes_with_id(reading, number)
    if len(themes) > 1:
        raise BadArgument(f"themes {', '.join(themes)} have an entry {number}; give one of them as --theme")
    found = with_id(reading, themes[0], number) if themes else None
    if found is None:
        raise BadArgument(f"there is no entry {number}; `hermes-pgvector search` shows the ids of entries")
    if found.id != number:
        raise BadArgument(f"entry {found.id} has replaced entry {number}; edit that one")
    return found


def _edited(content: str) -> str:
    """The content after a person has edited it, in a file that nobody else can read and that is deleted afterwards."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not (named or sys.stdin.isatty()):
        raise Refused(f"there is no terminal for {EDITOR}; set EDITOR to a program that needs none; nothing is changed")
    command = shlex.split(named or EDITOR)
    # Editors put backups beside the file.
    with tempfile.TemporaryDirectory(prefix="hermes-pgvector-") as folder:
        path = Path(folder) / "entry.md"
        path.touch(mode=0o600)
        path.write_text(f"{content}\n", encoding="utf-8")
        try:
            # The screen of the editor is not for a pipe or a file that takes the result.
            screen = None if sys.stdout.isatty() else STDERR
            code = subprocess.run([*command, str(path)], stdout=screen, check=False).returncode
        except OSError as error:
            raise Refused(
                f"{command[0]} cannot be started ({error.strerror}); set EDITOR; nothing is changed"
            ) from None
        if code != 0:
            raise Refused(f"{command[0]} ended with code {code}; nothing is changed")
        try:
            text = read(str(path), FILE_BYTES_MAX)
            if text is None:
                raise Refused(f"the text has more than {FILE_BYTES_MAX} bytes; nothing is changed")
            return clean(text.decode()).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"the edited file cannot be read ({type(error).__name__}); nothing is changed") from None


def _conflict(console: Console, seen: Entry, current: Entry, content: str) -> int:
    """Show an entry that somebody else has changed while it was edited."""
    console.data({"changed": False, "id": seen.id, "current": asdict(current), "edited": content})
    console.show(
        f"somebody else has changed the entry; entry {current.id} says:", current.content, "", "you wrote:", content
    )
    console.say(f"hermes-pgvector: nothing is changed; to go on: hermes-pgvector edit {current.id}")
    return 1
