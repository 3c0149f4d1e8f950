"""Bearer tokens of MCP clients, each for some themes: a file of the home that holds only their hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import BadArgument, SettingsError, cure
from ..files import locked_folder, make_private, overwrite, read
from ..model import now
from ..text.times import NEVER, utc_text

TOKENS_MAX = 100
FILE_BYTES_MAX = 1 << 20
PREFIX = "hpg_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret. `themes` has the theme that is written to first, `expires` a time or `never`."""

    id: str
    name: str
    themes: tuple[str, ...]
    sha256: str
    created: str
    expires: str = NEVER

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires != NEVER and datetime.fromisoformat(self.expires) <= now()


class Tokens:
    """The tokens of a home. Each method reads the file, so that a change is in force at once."""

    def __init__(self, state: Path) -> None:
        self._path = state / "mcp_tokens.json"

    def all(self) -> list[Token]:
        """The tokens, the oldest first. Raises SettingsError when the file cannot be read or others may read it."""
        try:
            content = read(str(self._path), FILE_BYTES_MAX)
            if os.stat(self._path).st_mode & 0o077:
                command = shlex.join(["chmod", "600", str(self._path)])
                raise SettingsError(f"other users may open {self._path}; run: {command}")
            return [_token(value) for value in json.loads(content or b"")["tokens"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = f"{self._path} cannot be read ({type(error).__name__})"
            raise SettingsError(f"{reason}; {cure(error, 'delete it, then add the tokens again')}") from None

    def add(self, themes: Sequence[str], name: str, expires: str) -> tuple[Token, str]:
        """A new token and its secret, which is kept nowhere. Raises BadArgument, SettingsError and Unavailable."""
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            id=secrets.token_hex(4), name=name, themes=tuple(themes), sha256=_digest(secret), created=utc_text(now()),
            expires=expires or NEVER,
        )  # fmt: skip
        make_private(self._path.parent)
        with locked_folder(self._path.parent):
            there = self.all()
            if len(there) >= TOKENS_MAX:
                raise BadArgument(f"there are {len(there)} tokens, and no more are kept; revoke one first")
            # Rules of `keep` know a client by it, in any case.
            if name and any(name.casefold() in (other.name.casefold(), other.id) for other in there):
                raise BadArgument(f"there is a token {name!r}; give another name, or revoke that one first")
            self._write([*there, token])
        return token, secret

    def revoke(self, name: str) -> Token:
        """Delete the token with this id or name. Raises BadArgument, SettingsError and Unavailable."""
        with locked_folder(self._path.parent):
            there = self.all()
            # A token without a name is revoked by its id.
            named = [token for token in there if name and token.name == name]
            found = [token for token in there if token.id == name] or named
            if len(found) != 1:
                what = f"{len(found)} tokens have the name" if found else "there is no token"
                raise BadArgument(f"{what} {name[:60]!r}; give an id that hermes-pgvector mcp token list shows")
            self._write([token for token in there if token is not found[0]])
        return found[0]

    def of(self, secret: str) -> Token | None:
        """The token with this secret, unless it has expired. Takes the same time for each. Raises SettingsError."""
        digest = _digest(secret)
        found = [token for token in self.all() if hmac.compare_digest(token.sha256, digest)]
        return found[0] if found and not found[0].expired else None

    def _write(self, tokens: Sequence[Token]) -> None:
        overwrite(self._path, json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2) + "\n")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(value: Any) -> Token:
    token = Token(**{**value, "themes": tuple(map(str, value["themes"]))})
    if datetime.fromisoformat(token.created if token.expires == NEVER else token.expires).tzinfo is None:
        raise ValueError("a time without a time zone")
    bytes.fromhex(token.sha256)
    return token
