"""Reads the facts, scopes and history in a `memory.db` of hermes-memory 0.3, a SQLite file, which is never changed."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import BadArgument, Refused
from ...facts.notation import normal_name
from ...model import FACT_KINDS, FACT_SCOPE_CHARS_MAX, FACT_TARGET_CHARS_MAX, now
from ...store.archive.facts import ImportedFact, ImportedScope
from ...text.cleaning import clean

ROWS_MAX = 1_000_000
CONTENT_CHARS_MAX = 10_000
CURRENT = ("active", "cold")
STATUSES = (*CURRENT, "superseded", "archived")
# The ids of the events that its facts become are made of this and of theirs, so that a second import adds nothing.
_NAMESPACE = uuid.UUID("5b0c4a7e-7f5e-5d0e-9d5b-3f6a2f1c8e10")
_COLUMNS = {
    "facts": "id content type target scope_id status superseded_by created_at updated_at last_accessed access_count",
    "scopes": "id label status last_referenced created_at closed_at",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds. `skipped` are the ids of facts that cannot be imported, with the reasons."""

    facts: tuple[ImportedFact, ...]
    scopes: tuple[ImportedScope, ...]
    skipped: Mapping[str, str]


def read(path: Path) -> Found:
    """The facts of a file in the order of their writing, and its scopes. Raises BadArgument, or Refused."""
    if not path.is_file():
        raise BadArgument(f"{path} is no file; give the memory.db of hermes-memory, usually ~/.hermes/memory.db")
    try:
        with opened(path) as database:
            scopes = _rows(database, path, "scopes")
            facts = _rows(database, path, "facts")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read as a database of hermes-memory: {error}; nothing is imported") from None
    labels = {row["id"]: normal_name(str(row["label"])) for row in scopes}
    found: list[ImportedFact] = []
    skipped: dict[str, str] = {}
    for row in facts:
        try:
            found.append(_fact(row, labels))
        except (BadArgument, ValueError, OverflowError, TypeError) as error:
            skipped[clean(str(row["id"]))[:60]] = str(error)
    return Found(_in_order(found), tuple(_scopes(scopes, labels)), skipped)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """One consistent view of the file. Another process may have it open; without one, no file is made beside it."""
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=10)) as database:
        database.row_factory = sqlite3.Row
        database.execute("begin")
        (intact,) = database.execute("pragma quick_check(1)").fetchone()
        if intact != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({intact})")
        yield database


def _rows(database: sqlite3.Connection, path: Path, table: str) -> list[sqlite3.Row]:
    columns = _COLUMNS[table].split()
    known = {row["name"] for row in database.execute(f"pragma table_info({table})")}
    if missing := [column for column in columns if column not in known]:
        raise sqlite3.DatabaseError(
            f"table {table} has no column {missing[0]}" if known else f"it has no table {table}"
        )
    names = ", ".join(columns)
    statement = f"select rowid as place, {names} from {table} order by created_at, rowid limit ?"  # noqa: S608
    found = database.execute(statement, (ROWS_MAX + 1,)).fetchall()
    if len(found) > ROWS_MAX:
        raise Refused(f"{path} has more than {ROWS_MAX} rows in {table}; nothing is imported")
    return found


def _fact(row: sqlite3.Row, labels: Mapping[str, str]) -> ImportedFact:
    """A fact as it can be stored. Raises BadArgument with the reason why it cannot, or what a wrong type raises."""
    target, content = normal_name(row["target"]), clean(row["content"]).strip()
    kind, status, scope = row["type"], row["status"], labels.get(row["scope_id"], "")
    if kind not in FACT_KINDS or status not in STATUSES:
        raise BadArgument(f"its type is {str(kind)[:20]!r} and its status {str(status)[:20]!r}")
    for name, text, most in (
        ("target", target, FACT_TARGET_CHARS_MAX), ("content", content, CONTENT_CHARS_MAX),
        ("scope", scope or "-", FACT_SCOPE_CHARS_MAX),
    ):  # fmt: skip
        if not 0 < len(text) <= most:
            raise BadArgument(f"its {name} has {len(text)} characters; it may have 1 to {most}")
    return ImportedFact(
        event_id=_event_id(row["id"]), kind=kind, target=target, scope=scope, content=content, status=status,
        successor=_event_id(row["superseded_by"]) if row["superseded_by"] else "",
        # Times are in whole seconds; the number of the row orders the facts of one second.
        written_at=_time(row["created_at"]) + timedelta(microseconds=row["place"] % 1_000_000),
        changed_at=_time(row["updated_at"]), used_at=_time(row["last_accessed"]) if row["last_accessed"] else None,
        uses=min(max(0, int(row["access_count"] or 0)), 1 << 30),
    )  # fmt: skip


def _in_order(facts: list[ImportedFact]) -> tuple[ImportedFact, ...]:
    """The facts in the order of their writing, at most one current of each kind, target and scope.

    hermes-memory keeps a cold fact beside the active one that was written after it; here the later one supersedes it.
    """
    facts.sort(key=lambda fact: (fact.written_at, fact.event_id))
    newest = {fact.key: fact.event_id for fact in facts if fact.status in CURRENT}
    known = {fact.event_id for fact in facts}

    def settled(fact: ImportedFact) -> ImportedFact:
        if fact.status in CURRENT and newest[fact.key] != fact.event_id:
            return replace(fact, status="superseded", successor=newest[fact.key])
        return fact if fact.successor in known else replace(fact, successor="")

    return tuple(map(settled, facts))


def _scopes(rows: list[sqlite3.Row], labels: Mapping[str, str]) -> Iterator[ImportedScope]:
    """One scope of each label: of several, the last one that was referred to."""
    latest: dict[str, sqlite3.Row] = {}
    for row in sorted(rows, key=lambda row: (row["status"] == "active", row["last_referenced"] or 0)):
        if 0 < len(labels[row["id"]]) <= FACT_SCOPE_CHARS_MAX:
            latest[labels[row["id"]]] = row
    for label, row in latest.items():
        written_at = _time(row["last_referenced"] or row["created_at"])
        closed_at = None if row["status"] == "active" else _time(row["closed_at"] or row["last_referenced"])
        yield ImportedScope(label, _time(row["created_at"]), written_at, closed_at)


def _event_id(name: Any) -> str:
    return uuid.uuid5(_NAMESPACE, f"hermes-memory:{name}").hex


def _time(seconds: Any) -> datetime:
    """A time of the file, not later than now: a fact of the future would displace all that are written until then."""
    return min(datetime.fromtimestamp(int(seconds), UTC), now())
