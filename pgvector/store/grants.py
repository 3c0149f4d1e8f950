"""The themes that logins may see with row security: listed, granted and taken back by the tables' owner."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..errors import BadArgument
from ..model import Scope
from ..text.theme_names import is_pattern, normalise
from .connection.database import Connection
from .queries import QUERIES


@dataclass(frozen=True, slots=True)
class Grant:
    """A pattern of the themes that a login may see. `admitted` are those of persons and rooms that it has met first."""

    login: str
    pattern: str
    admitted: bool
    granted_at: datetime


def pattern_of(name: str) -> str:
    """The pattern in its normal form. Raises BadArgument for an empty one, and for a `*` elsewhere than at its end."""
    if not name.strip():
        raise BadArgument(f"the pattern {name!r} is empty; name a theme, or give `*` for all")
    pattern = normalise(name)
    if pattern != "**" and is_pattern(pattern.removesuffix("*")):
        raise BadArgument(f"{name!r} is no theme, no beginning with `*` behind it, and neither `*` nor `**`")
    return pattern


def listed(connection: Connection, limit: int, login: str = "") -> list[Grant]:
    """Up to `limit` grants, of one login if it is named, those of patterns first."""
    rows = connection.execute(QUERIES["list_grants"], {"login": login, "limit": limit})
    return [Grant(**row) for row in rows]


def add(connection: Connection, login: str, pattern: str) -> bool:
    """Grant a pattern to a login; False when it has it. Raises BadArgument when there is no such login."""
    role = connection.execute(QUERIES["is_role"], {"login": login}).fetchone()
    if role is None:
        raise BadArgument(f"the server has no role {login!r}; for those with grants: hermes-pgvector grants list")
    if not role["may_log_in"]:
        raise BadArgument(f"role {login!r} cannot log in; grants hold for logins, not for the members of a group")
    return connection.execute(QUERIES["add_grant"], {"login": login, "pattern": pattern}).rowcount == 1


def remove(connection: Connection, login: str, pattern: str) -> bool:
    """Take a pattern from a login; False when it does not have it."""
    return connection.execute(QUERIES["remove_grant"], {"login": login, "pattern": pattern}).rowcount == 1


def narrowing(scope: Scope, *, others: bool = False) -> dict[str, str]:
    """The setting of a transaction that sees the themes of a scope only, where row security is on.

    It has a theme on each line, `*` for all but those of persons and rooms. With `others` these are seen, too.
    """
    themes = (scope.own,) if scope.themes is None else scope.themes
    lines = ("*", *themes) if others or scope.themes is None else themes
    return {"hermes_pgvector__themes": "\n".join(lines) or "\n"}
