"""Stores the rows of an archive, in batches, each row once however often it comes."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import HalfVector

from ...errors import BadEvent
from ...model import Add, Delegated, Event, FactsTicked, FactWritten, TurnTaken, Withdrawn, now
from ...text import tokenizer
from ...text.times import utc
from .. import person_links, pieces
from ..connection import entry_homes
from ..connection.database import Connection
from ..connection.driver_errors import NOT_GRANTED
from ..connection.messages import together
from ..erasure import marks
from ..facts import lock
from ..queries import QUERIES
from ..schema.verification import Origin
from . import facts
from .facts import ImportedFact
from .lines import Line
from .reading import EMBEDDED

BATCH_ROWS_MAX, BATCH_CHARS_MAX = 100, 2_000_000
# Kinds that name themes, or homes of themes, of the archive.
OF_THEIR_THEMES = ("rename", "link", "tombstone", "erasure")


# The events by which the rows could have come here, for the marks of what was erased.
_EVENTS: Mapping[str, Callable[[str, Mapping[str, Any]], Event]] = {
    **dict.fromkeys(
        ("entry", "past"),
        lambda theme, row: Add(
            theme=theme, at=_time(row["created_at"]), target="memory", content=row["content"], session_id=_session(row)
        ),
    ),
    "turn": lambda theme, row: TurnTaken(
        theme=theme, at=_time(row["ts"]), session_id=row["session_id"], user=row["content"], assistant=""
    ),
    "fact": lambda theme, row: FactWritten(
        theme=theme, at=_time(row["written_at"]), session_id=row["session_id"], kind=row["kind"], target=row["target"],
        content=row["content"],
    ),
    "delegation": lambda theme, row: Delegated(
        theme=theme, at=_time(row["at"]), session_id=row["parent_session_id"], task=row["task"], result=row["result"],
        child_session_id=row["child_session_id"],
    ),
    "scope": lambda theme, row: FactsTicked(
        theme=theme, at=_time(row["opened_at"]), session_id=row["session_id"], turn=0
    ),
    **dict.fromkeys(
        ("withdrawal", "tombstone", "pruned"),
        lambda theme, row: Withdrawn(
            theme=theme, at=_time(row["at"]), session_id=row.get("session_id", ""), turns=(), standing=()
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one kind and theme."""

    kind: str
    theme: str
    lines: Sequence[Line]


@dataclass(slots=True)
class Destination:
    """Where an archive goes. `vectors` are what its vectors are of, None where they are not taken.

    `origin` is the database that the archive is from; it is empty in that database. `ids` are the ids of entries
    that the archive has, by their themes and ids there. `erased` counts the rows that were left out because they were
    erased here for good. `erasure_keys` are the secrets of the marks that the archive has. `apart` are persons and
    accounts of the archive, and whether these are no accounts of those here.
    """

    theme: str = ""
    vectors: Origin | None = None
    origin: str = ""
    dry_run: bool = False
    ids: dict[tuple[str, int], int] = field(default_factory=dict)
    erased: int = 0
    erasure_keys: Sequence[str] = ()
    apart: dict[tuple[str, str], bool] = field(default_factory=dict)

    def entry_id(self, theme: str, number: int) -> int:
        """The id of an entry of the archive. One that is gone gets a negative number, always the same."""
        if not self.origin or (theme, number) in self.ids:
            return self.ids.get((theme, number), number)
        digest = hashlib.sha256(f"{self.origin}:{theme}:{number}".encode()).digest()
        return -1 - int.from_bytes(digest[:7])


def batches(found: Iterable[Line]) -> Iterator[Batch]:
    """The rows in their order, in batches of bounded size."""
    kind, theme, held, chars = "", "", list[Line](), 0
    for line in found:
        other = (line.kind, line.row["theme"]) != (kind, theme)
        if held and (other or len(held) == BATCH_ROWS_MAX or chars + len(line.text) > BATCH_CHARS_MAX):
            yield Batch(kind, theme, held)
            held, chars = [], 0
        kind, theme = line.kind, line.row["theme"]
        held.append(line)
        chars += len(line.text)
    if held:
        yield Batch(kind, theme, held)


def store(connection: Connection, batch: Batch, to: Destination) -> int:
    """Store a batch in the caller's transaction, and return how many of its rows are new; no renames and no links."""
    if to.theme and batch.kind in OF_THEIR_THEMES:
        return 0
    if not to.theme and (apart := _apart(connection, batch, to)):
        places = person_links.places_of(together(connection, person_links.sharing([b.theme for b in apart]))[-1].rows)
        # All at once, in the order of all who lock several.
        lock(connection, [places[part.theme].theme if part.theme in places else part.theme for part in apart])
        return sum(store(connection, part, to) for part in apart)
    asked = to.theme or batch.theme
    if batch.kind == "erasure":
        connection.execute(QUERIES["lock_links"])
        marks.take_secrets(connection, to.erasure_keys)
        theme = asked
    else:
        (theme, account), names = person_links.shared_place(connection, asked)
        # Agents count turns, and other imports store rows, but not meanwhile.
        lock(connection, [theme])
        if to.dry_run and not connection.execute(QUERIES["admit_themes"], {"themes": [theme]}).fetchone():
            raise BadEvent(NOT_GRANTED)
        batch = replace(batch, lines=_not_erased(connection, theme, batch, to))
        if batch.kind == "turn":
            batch = replace(batch, lines=_not_there(connection, names, batch.lines))
        if not batch.lines:
            return 0
        if account:
            batch = replace(batch, lines=[line.marked("linked_account", account) for line in batch.lines])
    match batch.kind:
        case "entry" | "turn":
            if batch.kind == "entry" and not to.dry_run:
                for row in (line.row for line in batch.lines):
                    entry_homes.note(connection, theme, row["home"], row["target"], row["content"])
            return _add_rows(connection, theme, batch, to)
        case "fact":
            return _add_facts(connection, theme, batch.lines, to)
    values: dict[str, Any] = {"theme": theme, "rows": [line.text for line in batch.lines]}
    if batch.kind == "past":
        values["entries"] = [to.entry_id(batch.theme, line.row["entry_id"]) for line in batch.lines]
    return connection.execute(QUERIES[f"import_{batch.kind}"], values).rowcount


def _apart(connection: Connection, batch: Batch, to: Destination) -> list[Batch]:
    """The batch in parts, where rows are of accounts that are separated from their person here; else none."""
    parts = defaultdict[str, list[Line]](list)
    for line in batch.lines:
        metadata = line.row.get("metadata")
        account = str(metadata.get("linked_account") or "") if isinstance(metadata, Mapping) else ""
        if account and (batch.theme, account) not in to.apart:
            person = person_links.of_themes(connection, [account]).get(account)
            parted = person != batch.theme if person else person_links.in_use(connection, account)
            to.apart[batch.theme, account] = parted and account != batch.theme
        parts[account if to.apart.get((batch.theme, account)) else batch.theme].append(line)
    return [Batch(batch.kind, theme, lines) for theme, lines in parts.items()] if set(parts) - {batch.theme} else []


def _not_erased(connection: Connection, theme: str, batch: Batch, to: Destination) -> Sequence[Line]:
    """The rows that were not erased here after they were written."""
    if batch.kind not in _EVENTS:
        return batch.lines
    kept = marks.remaining(connection, [_EVENTS[batch.kind](theme, line.row) for line in batch.lines])
    found = [line for line, rest in zip(batch.lines, kept, strict=True) if rest is not None]
    to.erased += len(batch.lines) - len(found)
    return found


def _not_there(connection: Connection, names: Sequence[str], turns: Sequence[Line]) -> Sequence[Line]:
    """The turns without those that are stored under other names of their theme until they are moved."""
    for name in names:
        values = {"theme": name, "rows": [line.text for line in turns]}
        there = {row["place"] for row in connection.execute(QUERIES["turns_there"], values)}
        turns = [line for place, line in enumerate(turns, 1) if place not in there]
    return turns


def others_work(connection: Connection) -> bool:
    """Whether other processes use this database now."""
    row = connection.execute(QUERIES["count_other_processes"]).fetchone()
    return bool(row and row["others"])


def _add_rows(connection: Connection, theme: str, batch: Batch, to: Destination) -> int:
    vectors = [_vectors(line, to.vectors) for line in batch.lines]
    values: dict[str, Any] = {
        "theme": theme, "dry": to.dry_run, "rows": [line.text for line in batch.lines],
        "vectors": [own[0] if own else None for own in vectors],
        "words": [tokenizer.document(line.row["content"]) for line in batch.lines],
    }  # fmt: skip
    if batch.kind == "entry":
        numbers = ([to.entry_id(batch.theme, old) for old in line.row.get("replaces") or ()] for line in batch.lines)
        values["replaces"] = [f"{{{','.join(map(str, own))}}}" for own in numbers]
    rows = connection.execute(QUERIES[f"import_{batch.kind}"], values).fetchall()
    if to.dry_run:
        return sum(row["fresh"] for row in rows)
    fresh = [row for row in rows if row["fresh"]]
    chunked = [((theme, row["id"]), vectors[row["place"] - 1][1:]) for row in fresh]
    pieces.add(connection, EMBEDDED[batch.kind], chunked)
    if batch.kind == "entry":
        to.ids |= {(batch.theme, batch.lines[row["place"] - 1].row.get("id", 0)): row["id"] for row in rows}
    else:
        _withdraw(connection, theme, [batch.lines[row["place"] - 1].row for row in fresh])
    return len(fresh)


def _withdraw(connection: Connection, theme: str, turns: Sequence[Mapping[str, Any]]) -> None:
    """Delete those of the turns that were withdrawn in this database."""
    names = {"sessions": "session_id", "roles": "role", "contents": "content", "times": "ts"}
    parameters = {"theme": theme, **{name: [row[column] for row in turns] for name, column in names.items()}}
    for found in connection.execute(QUERIES["find_withdrawals"], parameters).fetchall():
        connection.execute(QUERIES["withdraw_turn"], {"theme": theme, **found})


def _add_facts(connection: Connection, theme: str, lines: Sequence[Line], to: Destination) -> int:
    found = facts.merged(connection, theme, [_fact(line, to.vectors) for line in lines])
    if not to.dry_run:
        facts.add(connection, theme, found, (), origin="", account=theme)
        pairs = [(line.row["event_id"], line.row["successor"]) for line in lines if line.row.get("successor")]
        parameters = {"theme": theme, "events": [own for own, _ in pairs], "successors": [next_ for _, next_ in pairs]}
        connection.execute(QUERIES["link_successors"], parameters)
    return len(found.fresh)


def _fact(line: Line, of: Origin | None) -> ImportedFact:
    row = line.row
    return ImportedFact(
        event_id=UUID(row["event_id"]).hex, kind=row["kind"], target=row["target"], scope=row["scope"],
        content=row["content"], status=row["status"], written_at=_time(row["written_at"]),
        changed_at=_time(row["changed_at"]), used_at=_time(row["used_at"]) if row.get("used_at") else None,
        uses=row.get("uses") or 0, session_id=row["session_id"], metadata=row.get("metadata") or {},
        vectors=_vectors(line, of),
    )  # fmt: skip


def _session(row: Mapping[str, Any]) -> str:
    """The session in the metadata of a row; empty when these are no object."""
    metadata = row.get("metadata")
    return str(metadata.get("session_id") or "") if isinstance(metadata, Mapping) else ""


def _time(text: str) -> datetime:
    """A time as Postgres writes it; now for infinity and years that Python does not know."""
    try:
        return utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return now()


def _vectors(line: Line, of: Origin | None) -> tuple[HalfVector, ...]:
    """The vectors of a row; none where they are not taken, or are none."""
    if of is None:
        return ()
    try:
        found = tuple(HalfVector.from_binary(base64.b64decode(text)) for text in line.vectors)
    except (ValueError, struct.error):
        return ()
    return found if all(vector.dimensions() == of.dimensions for vector in found) else ()
