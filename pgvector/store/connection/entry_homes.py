"""On a cluster: the themes in which a home may have an entry, so that a change of its files asks only their nodes.

The table is in `schema/citus.sql`, on the coordinator. Whoever inserts entries of a home notes them there; a note may
outlive its entry. Elsewhere nothing is noted, and one statement looks in all themes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString, TypeAlias

import psycopg
from psycopg.rows import DictRow

from .distributed import is_distributed

Connection: TypeAlias = psycopg.Connection[DictRow]


def themes(
    connection: Connection, home: str, target: str, contents: Sequence[str] | None, theme: str = ""
) -> list[str] | None:
    """A theme, and those in which a home may have these texts, or any; None where nobody needs to know."""
    if not is_distributed(connection):
        return None
    if not home:
        return [theme] if theme else []
    values = {"home": home, "target": target, "contents": None if contents is None else list(contents), "theme": theme}
    return [row["theme"] for row in connection.execute(_THEMES, values)]


def note(connection: Connection, theme: str, home: str, target: str, content: str) -> None:
    """Note that a theme gets an entry of a home."""
    if home and is_distributed(connection):
        connection.execute(_NOTE, {"theme": theme, "home": home, "target": target, "content": content})


def copy(connection: Connection, source: str, destination: str) -> None:
    """Note for a theme what is noted for another one, whose rows it gets."""
    if is_distributed(connection):
        connection.execute(_COPY, {"source": source, "destination": destination})


def forget(
    connection: Connection, themes: Sequence[str] | None, contents: Sequence[str] | None = None, target: str = ""
) -> None:
    """Delete the notes of entries that are gone: of themes, with these texts, of a target; by default any of each."""
    if themes != [] and is_distributed(connection):
        connection.execute(_FORGET, {"themes": themes, "contents": contents, "target": target})


_THEMES: LiteralString = """
    SELECT agent_identity AS theme FROM memory_entry_homes
    WHERE home = %(home)s AND target = %(target)s
      AND (%(contents)s::text[] IS NULL
        OR content_key = ANY (array(SELECT content_key(c) FROM unnest(%(contents)s::text[]) AS c)))
    UNION
    SELECT %(theme)s WHERE %(theme)s <> ''"""
_NOTE: LiteralString = """
    INSERT INTO memory_entry_homes (home, target, content_key, agent_identity)
    VALUES (%(home)s, %(target)s, content_key(%(content)s), %(theme)s)
    ON CONFLICT DO NOTHING"""
_COPY: LiteralString = """
    INSERT INTO memory_entry_homes (home, target, content_key, agent_identity)
    SELECT home, target, content_key, %(destination)s FROM memory_entry_homes WHERE agent_identity = %(source)s
    ON CONFLICT DO NOTHING"""
_FORGET: LiteralString = """
    DELETE FROM memory_entry_homes
    WHERE (%(themes)s::text[] IS NULL OR agent_identity = ANY (%(themes)s::text[]))
      AND (%(target)s = '' OR target = %(target)s)
      AND (%(contents)s::text[] IS NULL
        OR content_key = ANY (array(SELECT content_key(c) FROM unnest(%(contents)s::text[]) AS c)))"""
