"""Moves rows from a theme to another one that has taken its name or its person, while agents go on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, LiteralString

from ..errors import SettingsError
from . import facts, out_of_order
from .connection import entry_homes
from .connection.database import Connection
from .connection.distributed import is_distributed
from .queries import KINDS, QUERIES, Kind

ROWS_MAX = 500
# Entries and facts that are moved in the transaction of a link, with all agents waiting to store events.
ROWS_AT_ONCE_MAX = 2000
# What is moved beside the rows of a kind.
_BESIDE: Mapping[Kind, tuple[LiteralString, ...]] = {
    "entries": ("move_history",),
    "turns": ("move_edges", "move_agents"),
    "facts": ("move_fact_scopes",),
}


def copy_records(connection: Connection, source: str, destination: str) -> None:
    """Copy what is known of the events of a theme: those that come again, and late ones, find it.

    Turns of the destination that were withdrawn under the source are deleted. Raises SettingsError when the role may
    not move the rows afterwards.
    """
    if not may_move(connection):
        raise SettingsError(
            "on a Citus cluster the tables' owner moves rows: put the owner's address into HERMES_PGVECTOR_DSN for "
            "this command"
        )
    for name in ("copy_events", "copy_tombstones", "copy_withdrawals"):
        connection.execute(QUERIES[name], {"source": source, "destination": destination})
    entry_homes.copy(connection, source, destination)
    out_of_order.withdraw_moved(connection, destination)


def copy_erasures(connection: Connection, source: str, destination: str) -> None:
    """Have what was erased of a theme not be stored of another one either, whose events it had."""
    connection.execute(QUERIES["copy_erasures"], {"source": source, "destination": destination})


def may_move(connection: Connection) -> bool:
    """Whether this role can move rows. On a cluster only the tables' owner can: the history is moved as that role, and
    Citus refuses a transaction in which two roles change rows of a theme."""
    if not is_distributed(connection):
        return True
    return bool((connection.execute(QUERIES["erasing_role"]).fetchone() or {})["may_erase"])


def move_at_once(connection: Connection, source: str, destination: str, *, mark: str = "") -> int:
    """Move entries and facts, as `move`, up to ROWS_AT_ONCE_MAX of them, and the scopes of facts; returns how many."""
    values, moved = _locked(connection, source, destination, mark=mark), 0
    while moved < ROWS_AT_ONCE_MAX:
        batch = _move_kind(connection, "facts", values) + _move_kind(connection, "entries", values)
        if not batch:
            break
        moved += batch
    connection.execute(QUERIES["move_fact_scopes"], {**values, "limit": ROWS_AT_ONCE_MAX})
    return moved


def move(
    connection: Connection,
    source: str,
    destination: str,
    *,
    account: str = "",
    mark: str = "",
    limit: int = 0,
    kinds: Collection[Kind] = tuple(KINDS),
) -> int:
    """Move up to `limit` rows of each table from a theme to another, of one account if it is named.

    Returns how many rows were moved; call it in transactions of its own until it returns 0. `mark` is the account that
    the rows are marked with at their destination. The default limit is ROWS_MAX. Ids, vectors, times and history stay.
    """
    values = _locked(connection, source, destination, account=account, mark=mark, limit=limit)
    # A process of an earlier release stores turns of an account under the account.
    may_be_old = "turns" in kinds and mark and not is_distributed(connection)
    if may_be_old:
        connection.execute(QUERIES["delete_repeated_turns"], values)
    moved = sum(_move_kind(connection, kind, values) for kind in kinds)
    for name in (name for kind in kinds for name in _BESIDE[kind]):
        moved += max(0, connection.execute(QUERIES[name], values).rowcount)
    if may_be_old and not moved:
        # It withdraws them there, too.
        connection.execute(QUERIES["copy_withdrawals"], values)
        out_of_order.withdraw_moved(connection, destination)
    return moved


def _locked(
    connection: Connection, source: str, destination: str, *, account: str = "", mark: str = "", limit: int = 0
) -> dict[str, Any]:
    """Take the locks of a move; returns the parameters of its statements."""
    facts.lock(connection, (source, destination))
    return {
        "source": source, "destination": destination, "account": account, "limit": limit or ROWS_MAX,
        "mark": json.dumps({"linked_account": mark} if mark else {}),
    }  # fmt: skip


def _move_kind(connection: Connection, kind: Kind, values: dict[str, Any]) -> int:
    ids = [row["id"] for row in connection.execute(QUERIES[f"owned_{kind}"], values)]
    if not ids:
        return 0
    values = {**values, "ids": ids}
    if kind == "turns":
        _replace_replayed(connection, values)
    if kind == "facts":
        connection.execute(QUERIES["settle_facts"], values)
    for name in (f"copy_{kind}", f"copy_pieces_{kind}", f"delete_moved_{kind}"):
        connection.execute(QUERIES[name], values)
    if kind == "entries":
        connection.execute(QUERIES["settle_history"], values)
    if kind == "turns":
        out_of_order.withdraw_moved(connection, values["destination"], ids)
    return len(ids)


def _replace_replayed(connection: Connection, values: dict[str, Any]) -> None:
    """Delete what replays have stored at the destination of the turns that are moved to it."""
    for turn in connection.execute(QUERIES["turns_of_replays"], values).fetchall():
        connection.execute(QUERIES["replace_replayed"], {**turn, "theme": values["destination"]})
