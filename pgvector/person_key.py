"""The key that names the themes of persons and rooms: the operator's, else one that the homes of a database share."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from .files import create, overwrite
from .records import make_private

log = logging.getLogger("hermes.pgvector")

SEEN_MAX = 10_000
_KEY = re.compile("[0-9a-f]{64}")


class PersonKey:
    """The key of one home. Safe for any thread.

    `named` is the operator's key. Without it the home keeps a copy of the database's, and until a database has answered
    for the first time it goes on with a *provisional* key of its own: a hook never waits. The provisional key becomes
    the database's if that has none; else what was filed by it is renamed on its way into the database.
    """

    def __init__(self, state: Path, named: str = "") -> None:
        self.path, self._provisional = state / "person_key", state / "person_key.provisional"
        # The database's key may be moved into the environment as it is.
        self._named = bytes.fromhex(named) if _KEY.fullmatch(named) else named.encode("utf-8", "surrogatepass")
        self._lock = threading.Lock()
        self._key: bytes | None = None
        self._before: bytes | None = None
        self._seen: dict[str, Callable[[bytes], str]] = {}
        self._told = False
        self.settled = bool(named)

    def theme(self, name: Callable[[bytes], str]) -> str:
        """The theme that `name` makes of the key as it is now; the key is empty when its file is damaged."""
        with self._lock:
            key = self._current()
            theme = name(key)
            if key and key == self._before and len(self._seen) < SEEN_MAX:
                self._seen[theme] = name
            return theme

    def final(self, theme: str) -> str:
        """The theme under which to file what was accepted for `theme`: another one if the key was provisional then."""
        with self._lock:
            name = self._seen.get(theme)
            return name(self._key) if name is not None and self._key and self._key != self._before else theme

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
        if self._named:
            return self._named
        if not self._key:
            own = self._read(self.path)
            if own:
                self._key = bytes.fromhex(own)
            elif self.path.exists():
                self._tell_of_damage()
                return b""
            else:
                self._key = self._before = self._make_provisional()
        return self._key

    def _keep(self, key: str) -> None:
        """Adopt a key, and put it into the home's file for the next start."""
        with contextlib.suppress(OSError):
            make_private(self.path.parent)
            if self.path.exists() and not self._read(self.path):
                overwrite(self.path, key)
            create(self.path, key)
            # Another process of the home may have adopted one a moment before.
            key = self._read(self.path) or key
            self._provisional.unlink(missing_ok=True)
        self._key = bytes.fromhex(key)

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
