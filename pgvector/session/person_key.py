"""The secret key from which the theme names of persons and rooms are made."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import BadEvent
from ..files import append, read_matching, read_or_create
from ..model import Event

if TYPE_CHECKING:
    from ..outbox.dead_letters import DeadLetters

log = logging.getLogger("hermes.pgvector")

# The reason of a dead letter, stored with it: never change the text.
NOT_MET = "whose it is will be known when that person or room writes again; then it is filed by itself"
NAMES_MAX = 10_000
_KEY = re.compile("[0-9a-f]{64}")
# A key that is never used. A name that is the same with it does not depend on the key.
_UNUSED_KEY = bytes(32)

MakeName: TypeAlias = Callable[[bytes], str]


class PersonKey:
    """The key of one home. Safe for any thread.

    It is the operator's key, else a copy of the key in the database, which all homes of a fleet share. Hooks cannot
    wait for the database, so until it answers for the first time a home makes names with a *provisional* key. That key
    becomes the database's if it has none. Otherwise events named with it are renamed before they are stored. A hash
    cannot be reversed: events left by a dead process are renamed when the person or room is met again.
    """

    def __init__(self, state: Path, operators_key: str = "") -> None:
        self.path = state / "person_key"
        self._provisional_path = state / "person_key.provisional"
        # The names made with the provisional key, by any process of the home.
        self._names_path = state / "person_key.names"
        self._operators = key_bytes(operators_key)
        self._lock = threading.Lock()
        self._key = b""
        # Empty when nothing has to be renamed.
        self._provisional = b""
        # How to make a name again with another key, by its name with the provisional key.
        self._makers: dict[str, MakeName] = {}
        self._damage_logged = False
        self.settled = bool(operators_key)

    def name(self, make: MakeName) -> str:
        """The name that `make` returns for the current key, which is empty when its file is damaged."""
        with self._lock:
            key = self._current()
            name = make(key)
            if key and self._provisional and make(_UNUSED_KEY) != name:
                self._note(make)
            return name

    def renamed(self, event: Event) -> Event:
        """The event with its theme and author as the current key names them.

        Raises BadEvent for an event of a dead process whose person or room was not met since.
        """
        with self._lock:
            theme = self._renamed(event.theme)
            if theme is None:
                raise BadEvent(NOT_MET)
            metadata, author = event.metadata, event.metadata.get("author")
            if isinstance(author, str):
                metadata = {**metadata, "author": self._renamed(author) or author}
        return replace(event, theme=theme, metadata=metadata)

    def met(self) -> frozenset[str]:
        """The provisional names that `renamed` can rename now; empty while the key is provisional itself."""
        with self._lock:
            if not self._provisional or self._key == self._provisional:
                return frozenset()
            return self._noted().intersection(self._makers)

    def refile(self, letters: DeadLetters, accept: Callable[[Event], bool]) -> None:
        """Accept dead letters whose person or room was met since. Other processes may do the same."""
        themes = self.met()
        for letter in letters:
            event = letter.event if letter.reason == NOT_MET else None
            if event is not None and event.theme in themes and accept(event):
                # The writer may have made it a dead letter again already, for another reason.
                now = letters.read(letter.id)
                if now is not None and now.reason == NOT_MET:
                    letters.delete(letter.id)

    def settle(self, agree: Callable[[str], str]) -> None:
        """Agree on the key with a database that answers; does nothing once that has succeeded.

        `agree(offer)` returns the key in the database, which is the offer if it had none. An empty offer changes
        nothing there. A home that has a key already keeps it, whatever the database holds.
        """
        if self.settled:
            return
        with self._lock:
            own = _read(self.path)
            # A new key in place of a damaged one would hide what is stored; the database may have the damaged one.
            offer = own or ("" if self.path.exists() else self._current().hex())
        found = agree(offer)
        with self._lock:
            if own or found:
                self._use(own or found)
            self.settled = True

    def saved(self) -> str:
        """The key in the home's file, as hexadecimal digits; empty when there is none or it is damaged."""
        return _read(self.path)

    def abandon(self) -> None:
        """Renew the lock in a forked child, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def _current(self) -> bytes:
        """The current key, loaded or made on first use; empty when its file is damaged."""
        if not self._key:
            # Before it is read: another process may make it a moment later.
            exists = os.path.exists(self.path)
            self._key = self._operators or bytes.fromhex(_read(self.path))
            if self._key:
                self._provisional = bytes.fromhex(_read(self._provisional_path))
            elif exists:
                self._log_damage()
            else:
                self._key = self._provisional = self._make_provisional()
        return self._key

    def _renamed(self, name: str) -> str | None:
        """The name with the current key; None for a provisional name that cannot be made again."""
        key = self._current()
        if not key or not self._provisional or key == self._provisional:
            return name
        if make := self._makers.get(name):
            return make(key)
        return None if name in self._noted() else name

    def _note(self, make: MakeName) -> None:
        """Note a provisional name, for other processes too while the key is provisional."""
        name = make(self._provisional)
        if name in self._makers or len(self._makers) >= NAMES_MAX:
            return
        self._makers[name] = make
        if self._key == self._provisional and name not in self._noted():
            with contextlib.suppress(OSError):
                append(self._names_path, f"{name}\n")

    def _noted(self) -> frozenset[str]:
        """The names that processes of this home made with the provisional key."""
        with contextlib.suppress(OSError):
            return frozenset(self._names_path.read_text(encoding="ascii", errors="replace").split())
        return frozenset()

    def _use(self, key: str) -> None:
        """Use a key from now on, and save it in the home for the next start."""
        with contextlib.suppress(OSError):
            # Another process of the home may have saved one a moment before.
            key = read_or_create(self.path, key, _KEY) or key
        self._key = bytes.fromhex(key)
        self._provisional = self._provisional or bytes.fromhex(_read(self._provisional_path))
        if self._provisional == self._key:
            self._provisional = b""
            with contextlib.suppress(OSError):
                self._provisional_path.unlink(missing_ok=True)
                self._names_path.unlink(missing_ok=True)

    def _make_provisional(self) -> bytes:
        made = os.urandom(32)
        with contextlib.suppress(OSError):
            return bytes.fromhex(read_or_create(self._provisional_path, made.hex(), _KEY))
        return made

    def _log_damage(self) -> None:
        if not self._damage_logged:
            log.warning(
                "%s is damaged: persons and rooms have no memory until the database answers with its key. If the "
                "database has none, restore the file from a backup, or set HERMES_PGVECTOR_PERSON_KEY, or delete the "
                "file to start with a new key and empty memories of persons and rooms",
                self.path,
            )
        self._damage_logged = True


def key_bytes(key: str) -> bytes:
    """The bytes of a key, which operators may move from the database, where it is hexadecimal, into the environment."""
    return bytes.fromhex(key) if _KEY.fullmatch(key) else key.encode("utf-8", "surrogatepass")


def _read(path: Path) -> str:
    """The key in a file, as 64 hexadecimal digits; empty when there is none or it is damaged or unreadable."""
    with contextlib.suppress(OSError):
        return read_matching(path, _KEY)
    return ""
