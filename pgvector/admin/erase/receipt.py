"""The receipt of an erasure: what was removed, what still holds it, and how to clear that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.filesize import decimal as size

from ...store.erasure.traces import Server
from ...store.schema.preflight import ADMINISTRATOR
from ..console import Cell, Console, counted, rows_table

HOMES_SHOWN = 5
NAMES: Mapping[str, tuple[str, str]] = {
    "entries": ("entry", "entries"), "turns": ("turn", "turns"), "facts": ("fact", "facts"),
    "history": ("earlier text", "earlier texts"), "pieces": ("vector of a chunk", "vectors of chunks"),
    "edges": ("delegated task", "delegated tasks"), "agents": ("child agent", "child agents"),
    "scopes": ("scope", "scopes"), "withdrawals": ("withdrawal", "withdrawals"),
    "pruned": ("note of a pruned turn", "notes of pruned turns"),
    "tombstones": ("tombstone", "tombstones"), "words": ("count of a word", "counts of words"),
    "links": ("link", "links"), "dead_letters": ("dead letter", "dead letters"),
    "waiting_writes": ("waiting write", "waiting writes"),
    "snapshot": ("entry of the snapshot", "entries of the snapshot"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holder:
    """What still holds something that was erased, and how to clear it. `attention`: it does not clear by itself."""

    where: str
    what: str
    clear: str
    attention: bool = False


def removed_text(removed: Mapping[str, int]) -> str:
    """What was removed, in words."""
    parts = [counted(number, *NAMES[name]) for name, number in removed.items() if number]
    return ", ".join(parts) or "nothing"


def of_homes(homes: Sequence[str], own: str) -> Iterator[Holder]:
    """The spools and files of other homes that wrote into the themes."""
    others = [home for home in homes if home != own]
    if others:
        named = ", ".join(home[:8] for home in others[:HOMES_SHOWN])
        more = f" and {len(others) - HOMES_SHOWN} more" if len(others) > HOMES_SHOWN else ""
        what = f"pending: events in spools, snapshots and memory files of {named}{more}"
        how = "late events are dropped, see erase --list; run the same command in each of them"
        yield Holder("other homes", what, how)


def of_server(server: Server, *, rewritten: bool, again: str, old: Sequence[str] = ()) -> Iterator[Holder]:
    """What the server holds. `again` is the command that rewrites the tables, which `old` transactions hindered."""
    if not server.statistics:
        what = f"values of columns; role {server.role} may not delete them"
        yield Holder(
            "planner statistics",
            what,
            f"as a superuser: hermes-pgvector erase --vacuum --dsn {ADMINISTRATOR}",
            attention=True,
        )
    if not rewritten:
        what = f"deleted rows in the files of tables and indexes ({size(server.bytes)})"
        if old:
            what += f", which old transactions may read: {', '.join(old)}"
        yield Holder("tables", what, f"VACUUM FULL; agents wait for it: {again}", attention=True)
    what = f"the last changes, up to {size(server.wal_mb_max << 20)}"
    yield Holder("write-ahead log (pg_wal)", what, "it is written over as the server goes on")
    if server.archived:
        yield Holder(
            "archive of the write-ahead log",
            "archive_mode is on",
            "delete the archive up to now, after a new base backup",
        )
    if server.replicas or server.slots:
        what = f"{counted(server.replicas, 'replica')}, {counted(server.slots, 'slot')}"
        yield Holder(
            "replicas", what, "they follow this server, also its VACUUM FULL; a slot that is not read keeps the log"
        )
    if server.logged:
        yield Holder("the server's log", "it has statements with their values", "delete the old log files")
    yield Holder(
        "dumps and backups", "those that were made before", "delete them after a new one: pg_dump, export, base backup"
    )


def show(console: Console, document: dict[str, Any], removed: Mapping[str, int], holders: Sequence[Holder]) -> int:
    """Print the receipt; returns 3 when something needs attention, else 0."""
    console.data({**document, "removed": dict(removed), "holds": [asdict(holder) for holder in holders]})
    console.show(f"erased: {removed_text(removed)}", "", "What still holds it:")
    rows: list[dict[str, Cell]] = [
        {
            "": "!" if holder.attention else "",
            "Where": holder.where,
            "What, and how to clear it": f"{holder.what}; {holder.clear}",
        }
        for holder in holders
    ]
    console.show(rows_table(rows))
    return 3 if any(holder.attention for holder in holders) else 0
