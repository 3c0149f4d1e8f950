"""Facts and scopes of another memory, stored with their states, times and history as they were there."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from pgvector import HalfVector

from ...model import FactKind, Metadata
from ...text import tokenizer
from .. import pieces
from ..connection.database import Connection
from ..facts import lock
from ..queries import QUERIES

BATCH_MAX = 2000
Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFact:
    """A fact of another memory. `successor` is the `event_id` of the one that has superseded it, empty without one."""

    event_id: str
    kind: FactKind
    target: str
    scope: str
    content: str
    status: str
    written_at: datetime
    changed_at: datetime
    used_at: datetime | None = None
    uses: int = 0
    successor: str = ""
    session_id: str = ""
    metadata: Metadata = field(default_factory=dict)
    vectors: tuple[HalfVector, ...] = ()

    @property
    def key(self) -> Key:
        """What a theme has one current fact of."""
        return self.kind, self.target, self.scope

    @property
    def current(self) -> bool:
        """Whether it is recalled."""
        return self.status in ("active", "cold")


@dataclass(frozen=True, slots=True)
class ImportedScope:
    """A scope of another memory; open while it has no `closed_at`."""

    label: str
    opened_at: datetime
    written_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Merged:
    """How facts fit into a theme. `fresh` are to be added, `repeated` are there already, by their events' ids.

    `outdated` are fresh facts that a row is newer than, `superseded` rows that a fresh fact is newer than.
    """

    fresh: tuple[ImportedFact, ...]
    repeated: Mapping[str, int]
    outdated: Mapping[str, int]
    superseded: Mapping[int, str]


def merged(connection: Connection, theme: str, facts: Sequence[ImportedFact]) -> Merged:
    """How these facts fit into a theme. Changes nothing, but locks its facts until the end of the transaction.

    Of two current facts of one kind, target and scope the one that was written later stays, whichever memory has it.
    Of one target and scope an obsolete one is compared with those of all kinds.
    """
    lock(connection, [theme])
    repeated: dict[str, int] = {}
    fresh: list[ImportedFact] = []
    outdated: dict[str, int] = {}
    superseded: dict[int, str] = {}
    for start in range(0, len(facts), BATCH_MAX):
        batch = facts[start : start + BATCH_MAX]
        events = [UUID(fact.event_id) for fact in batch]
        stored = connection.execute(QUERIES["facts_of_events"], {"theme": theme, "events": events})
        repeated |= {row["event_id"].hex: row["id"] for row in stored}
        rest = [fact for fact in batch if fact.event_id not in repeated]
        for fact, newest, displaced in _beside_current(connection, theme, rest):
            if newest is None:
                superseded |= dict.fromkeys(displaced, fact.event_id)
                fresh.append(fact)
            elif (newest["kind"], newest["content"]) == (fact.kind, fact.content):
                repeated[fact.event_id] = newest["id"]
            else:
                outdated[fact.event_id] = newest["id"]
                fresh.append(replace(fact, status="superseded"))
    return Merged(tuple(fresh), repeated, outdated, superseded)


def _beside_current(
    connection: Connection, theme: str, facts: Sequence[ImportedFact]
) -> Iterator[tuple[ImportedFact, dict[str, Any] | None, list[int]]]:
    """Each fact with the newest row that is newer and in its place, and the ids of those that it displaces.

    There are none beside a fact that is not current.
    """
    wanted = [fact for fact in facts if fact.current]
    parameters = {"targets": [fact.target for fact in wanted], "scopes": [fact.scope for fact in wanted]}
    current: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(QUERIES["current_facts"], {"theme": theme, **parameters}):
        current[row["target"], row["scope"]].append(row)
    for fact in facts:
        rows = current[fact.target, fact.scope] if fact.current else []
        older = [row for row in rows if _written(row) < (fact.written_at, fact.event_id)]
        newer = [row for row in rows if row not in older and row["kind"] in (fact.kind, "obs")]
        displaced = [row["id"] for row in older if fact.kind in (row["kind"], "obs")]
        yield fact, max(newer, key=_written, default=None), displaced


def _written(row: Mapping[str, Any]) -> tuple[datetime, str]:
    return row["written_at"], row["event_id"].hex


def add(
    connection: Connection, theme: str, found: Merged, scopes: Sequence[ImportedScope], *, origin: str, account: str
) -> None:
    """Store the fresh facts and the scopes that the theme lacks, in the caller's transaction.

    The rows say in their metadata that they are of `origin`, unless it is empty. `account` is the theme that was asked
    for; the rows keep it where that is linked to a person, whose `theme` is.
    """
    linked = {"linked_account": account} if account != theme else {}
    connection.execute(QUERIES["supersede_by_import"], {"theme": theme, "ids": list(found.superseded)})
    ids = dict(found.repeated)
    for start in range(0, len(found.fresh), BATCH_MAX):
        batch = found.fresh[start : start + BATCH_MAX]
        marks = {"imported_from": origin, **linked} if origin else linked
        values = {"theme": theme, "metadata": json.dumps(marks), **_columns(batch)}
        ids |= {row["event_id"].hex: row["id"] for row in connection.execute(QUERIES["import_facts"], values)}
        pieces.add(connection, "facts", [((theme, ids[fact.event_id]), fact.vectors[1:]) for fact in batch])
    links = {ids[fact.event_id]: fact.successor for fact in found.fresh} | dict(found.superseded)
    known = {number: ids[successor] for number, successor in links.items() if successor in ids}
    known |= {ids[event_id]: number for event_id, number in found.outdated.items()}
    parameters = {"theme": theme, "ids": list(known), "successors": list(known.values())}
    connection.execute(QUERIES["link_imported_facts"], parameters)
    for scope in scopes:
        connection.execute(
            QUERIES["import_fact_scope"],
            {"theme": theme, "label": scope.label, "opened_at": scope.opened_at, "written_at": scope.written_at,
             "closed_at": scope.closed_at, "metadata": json.dumps(linked)},
        )  # fmt: skip


def _columns(facts: Sequence[ImportedFact]) -> dict[str, list[Any]]:
    """The rows of facts as `import_facts.sql` takes them: one list a column."""
    names = {
        "kinds": "kind", "targets": "target", "scopes": "scope", "contents": "content", "statuses": "status",
        "written": "written_at", "changed": "changed_at", "used": "used_at", "uses": "uses",
    }  # fmt: skip
    return {
        "events": [UUID(fact.event_id) for fact in facts],
        **{name: [getattr(fact, field) for fact in facts] for name, field in names.items()},
        "sessions": [fact.session_id for fact in facts],
        "embeddings": [fact.vectors[0] if fact.vectors else None for fact in facts],
        "metadatas": [json.dumps(dict(fact.metadata)) for fact in facts],
        "words": [tokenizer.document(f"{fact.target}: {fact.content}") for fact in facts],
    }
