"""One HERMES_HOME: its id, its folders, its memory files, and the snapshot of them as last reconciled."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ..errors import SettingsError
from ..files import create, make_private, overwrite, read, read_matching, read_or_create
from ..hosts.config import DEFAULTS, files_in_use, has_earlier_defaults, host_config
from ..hosts.environment import scrubber
from ..model import FILES, Target
from ..text.cleaning import clean_entry
from ..text.masks import masked
from .entries import parse, same_but_masked
from .snapshot import Known, Snapshot, locked

if TYPE_CHECKING:
    from ..settings import Settings
    from ..store.entries import Entry

log = logging.getLogger("hermes.pgvector")

FILE_BYTES_MAX = 4 << 20
LABEL_CHARS = 8
_ID = re.compile("[0-9a-f]{32}")
# The file that tells where among the profiles of its host a home was when it was last opened.
PLACE = "home_place"


class Home:
    """The files of one home. Safe for several processes.

    The settings say where its spool is and in which form its entries are stored: without them in the home, whole.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Settings | None = None) -> None:
        self.path = Path(path).expanduser().resolve()
        self.state = self.path / "pgvector"
        spool_dir = settings.spool_dir if settings else ""
        self._masks = settings is not None and settings.mask_secrets_in_entries
        self._chars_max = settings.content_chars_max if settings else FILE_BYTES_MAX
        self.spool = Path(spool_dir).expanduser() / self._name_among_homes() if spool_dir else self.state / "spool"
        self._id = ""
        self._known = Known()

    def _name_among_homes(self) -> str:
        """The name of this home's folder in a shared spool folder: other hosts and homes do not store its events."""
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return f"{socket.gethostname()}-{digest}"

    @property
    def id(self) -> str:
        """The random id that is kept in the home; empty when the home cannot be written."""
        if not self._id:
            with suppress(OSError, SettingsError):
                self._id = self._read_or_make_id()
        return self._id

    @property
    def known_id(self) -> str:
        """The id of the home; empty when it has none yet, or it cannot be read. Makes no file."""
        with suppress(OSError):
            return self._id or read_matching(self.state / "home_id", _ID)
        return ""

    def label(self, chosen: str) -> str:
        """What others may know of this home: the label that its operator has chosen, or the beginning of its id."""
        return chosen.strip() or self.id[:LABEL_CHARS]

    def snapshot(self, wait_s: float) -> AbstractContextManager[Snapshot]:
        """The snapshot, as `snapshot.locked`."""
        return locked(self.state / "snapshot.jsonl", wait_s, self._known)

    def abandon(self) -> None:
        """Close what a thread of the parent had open, in a forked child."""
        self._known.abandon()

    def file(self, target: Target) -> Path:
        """The path of MEMORY.md or USER.md."""
        return self.path / "memories" / FILES[target]

    def stored_form(self) -> Callable[[str], str]:
        """The function from an entry, as a hook or the file has it, to the text that is stored of it."""
        return entry_form(masks=self._masks, chars_max=self._chars_max)

    def entries(self, target: Target) -> tuple[str, ...] | None:
        """The texts that are stored of the entries of MEMORY.md or USER.md now, without duplicates.

        Empty when there is no file, None when it is unreadable.
        """
        return self.entries_of(str(self.file(target)))

    def entries_of(self, path: str) -> tuple[str, ...] | None:
        """As `entries`, of a copy of such a file."""
        lines, form = self._lines_of(path), self.stored_form()
        return None if lines is None else tuple(dict.fromkeys(map(form, lines)))

    def lines(self, target: Target) -> tuple[str, ...] | None:
        """As `entries`, with the entries as hooks get them: scrubbed by the host, secrets not masked."""
        return self._lines_of(str(self.file(target)))

    def _lines_of(self, path: str) -> tuple[str, ...] | None:
        try:
            content = read(path, FILE_BYTES_MAX)
            return None if content is None else tuple(map(scrubber(), parse(content.decode())))
        except (OSError, UnicodeDecodeError) as error:
            # A link to nothing may be one to a disk that is not there now.
            if isinstance(error, FileNotFoundError) and not os.path.islink(path):
                return ()
            name, reason = os.path.basename(path), type(error).__name__
            log.warning("%s cannot be read (%s); nothing is removed because of it", name, reason)
            return None

    def file_of(self, entry: Entry) -> str:
        """The name of the file in which a stored entry stands; empty when in none, or the host uses none."""
        target: Target = "user" if entry.target == "user" else "memory"
        try:
            used = files_in_use(self.path)[target]
        except SettingsError:
            used = True
        held = used and entry.home == self.id and same_but_masked(entry.content, self.lines(target) or ())
        return FILES[target] if held else ""

    def _read_or_make_id(self) -> str:
        begin(self.path)
        path = self.state / "home_id"
        if path.exists() and not read_matching(path, _ID):
            log.warning("%s is damaged: the home gets a new id; its stored entries stay as they are", path)
        if self._is_clone(path):
            self._part_from_original(path)
        home_id = read_or_create(path, uuid4().hex, _ID)
        place = self.state / PLACE
        with suppress(OSError):
            if read_matching(place, _ID) != _place(self.path):
                overwrite(place, _place(self.path))
        return home_id

    def _is_clone(self, id_file: Path) -> bool:
        """Whether this is a profile that the host has made as a copy of the whole folder of another one."""
        profiles, own, place = self.path.parent, read_matching(id_file, _ID), read_matching(self.state / PLACE, _ID)
        # Another folder with the id may be a backup of this one, from which this one may have been restored.
        if profiles.name != "profiles" or not own or place == _place(self.path):
            return False
        folders = [profiles.parent]
        with suppress(OSError):  # A user may enter the folder of its profile, and not list those of others.
            folders += profiles.iterdir()
        return any(self._is_copy_of(folder, id_file, own, place) for folder in folders)

    def _is_copy_of(self, folder: Path, id_file: Path, own: str, place: str) -> bool:
        other = folder / "pgvector" / "home_id"
        with suppress(OSError):
            if read_matching(other, _ID) == own and not other.samefile(id_file):
                if place:
                    return place == _place(folder)
                # Copied by an earlier release. The folder above the profiles is never a copy, and the time of the last
                # change of a file is not copied.
                is_root = folder == self.path.parents[1]
                return is_root or other.stat().st_ctime_ns < id_file.stat().st_ctime_ns
        return False

    def _part_from_original(self, id_file: Path) -> None:
        """Give a copy an id of its own: with that of the original, its changes would be made to the original's rows."""
        from ..store.embedded import identity

        with id_file.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever waited finds the id of the first one.
            if self._is_clone(id_file):
                # Without these, the entries of the copied files are new in this home, and so is its embedded database.
                for name in ("snapshot.jsonl", identity.FILE):
                    (self.state / name).unlink(missing_ok=True)
                overwrite(id_file, uuid4().hex)
                log.info("this profile is a copy of another one; it gets an id of its own")


def _place(folder: Path) -> str:
    """A mark of the profile in this folder; that of the folder above the profiles is the same on every host."""
    name = folder.name if folder.parent.name == "profiles" else ""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def entry_form(*, masks: bool, chars_max: int) -> Callable[[str], str]:
    """The function from an entry of a memory file to the text that is stored of it, at most `chars_max` characters.

    With `masks` it has no secrets. Everything that stores an entry of a file, or compares one with a row or with the
    snapshot, uses it.
    """
    scrub = scrubber()

    def form(entry: str) -> str:
        text = scrub(entry)
        return clean_entry(masked(text) if masks else text, chars_max)

    return form


def begin(home: Path) -> None:
    """Note in a home without files of this package that it has the defaults of this release.

    Call it before the first of the files is made. Raises OSError, and SettingsError when config.yaml cannot be read.
    """
    note = home / "pgvector" / DEFAULTS
    if not note.exists() and not has_earlier_defaults(home, host_config(home)):
        make_private(note.parent)
        create(note, "2\n")
