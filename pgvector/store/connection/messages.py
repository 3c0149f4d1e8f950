"""Several statements in one message, for one round trip.

The server answers a message as a whole and then counts the time that the transaction is idle, so a process that stops
keeps no locks. It does not in a pipeline of libpq, nor behind one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, LiteralString, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import DictRow

Statement: TypeAlias = tuple[LiteralString, Mapping[str, Any]]


class Answer(NamedTuple):
    """The rows that a statement returned, and how many it returned or changed."""

    rows: list[DictRow]
    affected: int


def together(connection: psycopg.Connection[DictRow], statements: Iterable[Statement]) -> list[Answer]:
    """Run statements, in their order, each with its values as literals; returns the answer of each.

    For small values, which a server would else get in binary form.
    """
    literal = psycopg.ClientCursor(connection)
    message = ";\n".join([literal.mogrify(text, values) for text, values in statements])
    cursor, answers = connection.execute(message.encode()), list[Answer]()
    while True:
        answers.append(Answer(cursor.fetchall() if cursor.description else [], cursor.rowcount))
        if not cursor.nextset():
            return answers
