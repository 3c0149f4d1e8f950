"""What differs where the tables are distributed by theme over the nodes of a cluster.

There a statement about rows by their keys names one theme, so that one node answers it: it is repeated for each theme.
A statement that the cluster does not plan has another form, whose name ends in `_citus`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from ..queries import QUERIES
from .socket_timeouts import TimedConnection

# Of a statement in its form for a cluster.
ON_CLUSTER = "_citus"
# What Citus does not plan: it is for what processes of release 2.0.0, which cannot use a cluster, leave under the
# accounts of persons.
REFUSED_ON_CLUSTER = {"delete_repeated_turns"}
# What the trigger of the history reads on a node; see schema/citus.sql.
_NOTE = "hermes_pgvector.change"
# Has Citus pass the settings of a transaction on to the nodes.
PASS_ON = b"set local citus.propagate_set_commands = 'local'"


def is_distributed(connection: psycopg.Connection[DictRow]) -> bool:
    """Whether the tables behind a connection of `Database` are distributed."""
    return isinstance(connection, TimedConnection) and connection.distributed


def form_of(connection: psycopg.Connection[DictRow], name: str) -> str:
    """The name of the form of a statement that this database runs."""
    other = f"{name}{ON_CLUSTER}"
    return other if is_distributed(connection) and other in QUERIES else name


def forms(connection: psycopg.Connection[DictRow]) -> set[str]:
    """The names of the statements that this database runs."""
    others = {name for name in QUERIES if ON_CLUSTER in name}
    if not is_distributed(connection):
        return QUERIES.keys() - others
    return QUERIES.keys() - {name.replace(ON_CLUSTER, "") for name in others} - REFUSED_ON_CLUSTER


@contextmanager
def noted(connection: psycopg.Connection[DictRow], note: Mapping[str, Any]) -> Iterator[None]:
    """On a cluster, have the history tell this of the entries that are deleted in the block.

    The function that adds it elsewhere has the rights of the tables' owner, and Citus refuses a transaction in which
    two roles change rows of a theme.
    """
    connection.execute(PASS_ON)
    connection.execute(f"set local {_NOTE} = {sql.quote(json.dumps(note))}".encode())
    yield
    connection.execute(f"set local {_NOTE} = ''".encode())


def by_theme(connection: psycopg.Connection[DictRow], columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """The parameters of a statement about some rows: one set, or on a cluster one for each theme.

    `columns` are lists with one place a row, of which `themes` has the themes.
    """
    themes = columns["themes"]
    if not is_distributed(connection):
        yield {**columns, "theme": None}
        return
    for theme in dict.fromkeys(themes):
        places = [place for place, each in enumerate(themes) if each == theme]
        yield {**{name: [column[place] for place in places] for name, column in columns.items()}, "theme": theme}
