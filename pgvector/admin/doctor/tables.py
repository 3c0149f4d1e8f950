"""Checks of tables, indexes, triggers and statements: what is missing or foreign, locked, bloated, or would fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...store.diagnosis import Health, Holder
from ...store.schema.objects import definitions
from ...store.schema.preflight import migrate_command
from ..check import Check, in_psql, quoted
from ..console import counted

SHOWN_MAX = 3


def tables(found: Health, *, complete: bool, distributed: bool = False) -> Iterator[Check]:
    """What is wrong with the tables. `complete` is whether they should have what this release knows, and no more."""
    known = definitions(distributed=distributed) if complete else {}
    yield from _indexes(found, known)
    yield from _triggers(found, known)
    if found.bloated:
        what = f"more dead rows than live ones: {_shown(found.bloated)}"
        # VACUUM mends a graph around each deleted row, which takes longer than to build it anew.
        graphs = [f"{table}_meaning" for table in found.bloated if f"{table}_meaning" in found.indexes]
        rebuilt = [f"reindex index concurrently {graph}" for graph in graphs if not distributed]
        yield Check("bloat", "warning", what, in_psql(*rebuilt, f"vacuum {', '.join(found.bloated)}"))
    if found.uncounted:
        what = f"the planner has no statistics of {_shown(found.uncounted)}: recalls may be slow"
        yield Check("statistics", "warning", what, in_psql(f"analyze {', '.join(found.uncounted)}"))


def locks(holders: Sequence[Holder]) -> Iterator[Check]:
    """The processes of the server for which agents wait."""
    for pid, program, table in holders[:SHOWN_MAX]:
        what = f"process {pid} of the server ({program or 'unnamed'}) has locked {table}; end it unless it is at work"
        yield Check("locks", "problem", what, in_psql(f"select pg_terminate_backend({pid})"))
    if not holders:
        yield Check("locks", "warning", "a table of the memory was locked for a moment", "run doctor again")


def statements(failing: dict[str, str], role: str) -> Check:
    """The statements of the store that fail, by name with the reason."""
    if not failing:
        return Check("statements", "ok", "all can be planned by this role")
    reasons = "; ".join(f"{name}: {reason}" for name, reason in list(failing.items())[:SHOWN_MAX])
    found = f"{counted(len(failing), 'statement')} would fail: {reasons}"
    remedy = f"{migrate_command(role)}; if that changes nothing, add by hand what the reason names (docs/schema.md)"
    return Check("statements", "problem", found, remedy)


def _indexes(found: Health, known: dict[str, str]) -> Iterator[Check]:
    missing = [name for name, text in known.items() if " INDEX " in text and name not in found.indexes]
    if found.broken_indexes:
        remedy = in_psql(*(f"reindex index concurrently {name}" for name in found.broken_indexes))
        yield Check("indexes", "problem", f"not usable: {_shown(found.broken_indexes)}", remedy)
    if missing:
        remedy = in_psql(*(known[name] for name in missing))
        yield Check("indexes", "problem", f"missing: {_shown(missing)}", remedy)
    if not (found.broken_indexes or missing):
        yield Check("indexes", "ok", "all are there and usable" if known else "all are usable")


def _triggers(found: Health, known: dict[str, str]) -> Iterator[Check]:
    if not known:
        return
    present = [name for name, _, _ in found.triggers]
    missing = [name for name, text in known.items() if " TRIGGER " in text and name not in present]
    if missing:
        remedy = in_psql(*(known[name] for name in missing))
        yield Check("triggers", "problem", f"missing: {_shown(missing)}", remedy)
    for name, table, enabled in found.triggers:
        if name in known and enabled == "D":
            what = f"{name} on {table} is disabled, so entries that are changed go wrong"
            yield Check("triggers", "problem", what, in_psql(f"alter table {table} enable trigger {name}"))
        elif name not in known and enabled != "D":
            what = f"{name} on {table} is not one of the memory's and may refuse rows"
            yield Check("triggers", "warning", what, in_psql(f"alter table {table} disable trigger {quoted(name)}"))


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
