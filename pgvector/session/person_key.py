"""The key that names the themes of persons and rooms: the operator's, else one that the homes of a database share."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import BadEvent
from ..files import append, create, make_private, overwrite
from ..model import Event

log = logging.getLogger("hermes.pgvector")

NOT_MET = "whose it is will be known when that person or room writes again; then it is filed by itself"
SEEN_MAX = 10_000
_KEY = re.compile("[0-9a-f]{64}")
# A key that is nobody's: a name that is the same by it does not depend on the key.
_PROBE = bytes(32)


class PersonKey:
    """The key of one home. Safe for any thread.

    `named` is the operator's key. Without it the home keeps a copy of the database's, and until a database has answered
    for the first time it goes on with a *provisional* key of its own: a hook never waits. The provisional key becomes
    the database's if that has none; else what was filed by it is renamed on its way into the database. Whom a name of
    a process that has ended stands for, no file tells: it is known when that person or room is met again.
    """

    def __init__(self, state: Path, named: str = "") -> None:
        self.path, self._provisional = state / "person_key", state / "person_key.provisional"
        self._names_path = state / "person_key.names"
        # The database's key may be moved into the environment as it is.
        self._named = bytes.fromhex(named) if _KEY.fullmatch(named) else named.encode("utf-8", "surrogatepass")
        self._lock = threading.Lock()
        self._key: bytes | None = None
        self._before: bytes | None = None
        self._met: set[str] = set()
        self._seen: dict[str, Callable[[bytes], str]] = {}
        self._names: frozenset[str] = frozenset()
        self._names_stamp = (0, 0)
        self._told = False
        self.settled = bool(named)

    def theme(self, name: Callable[[bytes], str]) -> str:
        """The theme that `name` makes of the key as it is now; the key is empty when its file is damaged."""
        with self._lock:
            key = self._current()
            theme = name(key)
            if key and self._before and theme not in self._met and len(self._met) < SEEN_MAX:
                self._met.add(theme)
                if name(_PROBE) != theme:
                    self._meet(name, self._before)
            return theme

    def filed(self, event: Event) -> Event:
        """The event under the names of its theme and its author by the key as it is now.

        Raises BadEvent when it is of a process that has ended, and whose it is has not been met since.
        """
        with self._lock:
            theme = self._final(event.theme)
            if theme is None:
                raise BadEvent(NOT_MET)
            metadata, author = event.metadata, event.metadata.get("author")
            if isinstance(author, str):
                metadata = {**metadata, "author": self._final(author) or author}
        return replace(event, theme=theme, metadata=metadata)

    def met(self) -> frozenset[str]:
        """The provisional names of those whom this process has met, once there is another key: `filed` knows them."""
        with self._lock:
            return frozenset(self._seen if self._key != self._before else ()) & self._given_out()

    def settle(self, agreed: Callable[[str], str]) -> None:
        """Take the key of a database that answers. `agreed(offer)` returns the key it holds, the offer if it had none,
        and with an empty offer nothing is changed.

        A home that has a key already keeps it, whatever the database holds. Cheap once it has succeeded.
        """
        if self.settled:
            return
        with self._lock:
            own = self._read(self.path)
            # When the file is damaged, a new key would hide what persons have stored; the database's is the same.
            offer = own or ("" if self.path.exists() else self._current().hex())
        found = agreed(offer)
        with self._lock:
            if own or found:
                self._keep(own or found)
            self.settled = True

    def kept(self) -> str:
        """The key in the home's file, as hexadecimal digits; empty when there is none or it is damaged."""
        return self._read(self.path)

    def abandon(self) -> None:
        """Begin anew in a forked child, where whoever held the lock does not exist."""
        self._lock = threading.Lock()

    def _current(self) -> bytes:
        if self._key:
            return self._key
        own = self._named or bytes.fromhex(self._read(self.path))
        if own:
            self._key = own
            self._before = bytes.fromhex(self._read(self._provisional)) or None
        elif self.path.exists():
            self._tell_of_damage()
            return b""
        else:
            self._key = self._before = self._make_provisional()
        return self._key

    def _final(self, name: str) -> str | None:
        """Another name if this one is of the provisional key; None when nobody knows whose."""
        key = self._current()
        if not key or not self._before or key == self._before:
            return name
        made = self._seen.get(name)
        return made(key) if made is not None else None if name in self._given_out() else name

    def _meet(self, name: Callable[[bytes], str], provisional: bytes) -> None:
        """Note what somebody is called by the provisional key, in the home as well while that is the only one."""
        before = name(provisional)
        self._seen[before] = name
        if self._key == provisional and before not in self._given_out():
            with contextlib.suppress(OSError):
                append(self._names_path, f"{before}\n")

    def _given_out(self) -> frozenset[str]:
        """The names that processes of this home have made of the provisional key."""
        with contextlib.suppress(OSError):
            found = self._names_path.stat()
            stamp = found.st_mtime_ns, found.st_size
            if stamp != self._names_stamp:
                self._names = frozenset(self._names_path.read_text(encoding="ascii", errors="replace").split())
                self._names_stamp = stamp
        return self._names

    def _keep(self, key: str) -> None:
        """Adopt a key, and put it into the home's file for the next start."""
        with contextlib.suppress(OSError):
            make_private(self.path.parent)
            if self.path.exists() and not self._read(self.path):
                overwrite(self.path, key)
            create(self.path, key)
            # Another process of the home may have adopted one a moment before.
            key = self._read(self.path) or key
            self._before = self._before or bytes.fromhex(self._read(self._provisional)) or None
            if bytes.fromhex(key) == self._before:
                self._provisional.unlink(missing_ok=True)
                self._names_path.unlink(missing_ok=True)
        self._key, self._met = bytes.fromhex(key), set()

    def _make_provisional(self) -> bytes:
        with contextlib.suppress(OSError):
            make_private(self._provisional.parent)
            if not self._read(self._provisional):
                self._provisional.unlink(missing_ok=True)
                create(self._provisional, os.urandom(32).hex())
            return bytes.fromhex(self._read(self._provisional))
        return os.urandom(32)

    def _read(self, path: Path) -> str:
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""
        return text if _KEY.fullmatch(text) else ""

    def _tell_of_damage(self) -> None:
        if not self._told:
            log.warning(
                "%s is damaged, so persons and rooms have no memory until the database answers with its key; if it has "
                "none, restore the file from a back-up, or set HERMES_PGVECTOR_PERSON_KEY, or delete it to let them "
                "begin anew",
                self.path,
            )
        self._told = True
