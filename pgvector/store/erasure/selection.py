"""What is to be erased: counted, marked, and deleted in batches."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, Literal, TypeAlias

from ...errors import Refused, SettingsError
from .. import person_links
from ..connection import entry_homes
from ..connection.database import Connection
from ..queries import KINDS, QUERIES, Kind, containing
from ..schema.preflight import ADMINISTRATOR
from . import marks

BATCH_ROWS, PASSES_MAX = 500, 5
# A bigint of Postgres.
_BIGINT_MAX = (1 << 63) - 1
# Runs a function in a transaction of its own, and once more when that was undone.
Run: TypeAlias = Callable[[Callable[[Connection], Any]], Any]
Found: TypeAlias = Literal[Kind, "history"]
# What goes with a theme or a session, and is not listed.
_BESIDE = ("edges", "agents", "scopes", "withdrawals", "pruned", "tombstones")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows of these themes (None: all), ids, session and text, all of which must fit; empty ones fit every row.

    `kind` limits it to rows of a kind, which `ids` needs. The earlier texts of erased entries go with them. `last` has
    the highest ids of a kind, where later rows stay.
    """

    themes: tuple[str, ...] | None = None
    kind: Kind | None = None
    ids: tuple[int, ...] | None = None
    session: str = ""
    text: str = ""
    last: Mapping[Found, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all of the themes is erased."""
        return self.ids is None and not self.session and not self.text

    @property
    def kinds(self) -> tuple[Found, ...]:
        """The kinds of rows that may be found."""
        if self.kind is None:
            return (*KINDS, "history")
        return (self.kind, "history") if self.kind == "entries" else (self.kind,)

    @property
    def parameters(self) -> dict[str, Any]:
        """The named parameters of the statements."""
        in_json = json.dumps(self.text, ensure_ascii=False)[1:-1]
        return {
            "themes": None if self.themes is None else list(self.themes),
            "ids": None if self.ids is None else list(self.ids),
            "session": self.session, "text": containing(self.text), "noted": containing(in_json), "limit": BATCH_ROWS,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a kind in a theme that are to be erased."""

    kind: Found
    theme: str
    rows: int
    first: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """A row that is to be erased."""

    kind: Found
    theme: str
    id: int
    text: str


def versions(connection: Connection, kind: Kind, number: int, themes: tuple[str, ...] | None) -> tuple[int, ...]:
    """The ids of an entry, turn or fact, with those of its earlier versions."""
    values = {"id": number, "themes": None if themes is None else list(themes)}
    if kind == "entries":
        row = connection.execute(QUERIES["versions_of_entry"], values).fetchone()
        return tuple(sorted({number, *(row["ids"] if row else ())}))
    if kind == "turns":
        return (number,)
    rows = connection.execute(QUERIES["successors_of_fact"], values).fetchall()
    superseded: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)
    for row in rows:
        superseded[row["theme"], row["successor"]].append(row["id"])
    chain = [(row["theme"], number) for row in rows if row["id"] == number]
    for fact in chain:
        chain += [(fact[0], earlier) for earlier in superseded.pop(fact, ())]
    return tuple(sorted({number, *(earlier for _, earlier in chain)}))


def count(connection: Connection, selection: Selection) -> list[Group]:
    """What is to be erased, by kind and theme."""
    return [
        Group(kind, **row)
        for kind in selection.kinds
        for row in connection.execute(QUERIES[f"count_erasable_{kind}"], selection.parameters)
    ]


def sample(connection: Connection, selection: Selection, limit: int) -> list[Row]:
    """Up to `limit` rows that are to be erased, of each kind."""
    return [row for kind in selection.kinds for row in _page(connection, selection, kind, limit=limit)]


def homes(connection: Connection, selection: Selection, limit: int) -> list[str]:
    """The ids of the homes that have written entries of these themes."""
    values = {**selection.parameters, "limit": limit}
    return [row["home"] for row in connection.execute(QUERIES["homes_of_themes"], values)]


def check_role(reading: Connection, deleting: Connection) -> None:
    """Raise SettingsError unless the role of `deleting` may erase, in the database that `reading` reads."""
    here, there = (connection.execute(QUERIES["erasing_role"]).fetchone() or {} for connection in (reading, deleting))
    if here["place"] != there["place"]:
        raise SettingsError(
            "the administrator's DSN leads to another database than that of this home; nothing is changed"
        )
    if not there["may_erase"]:
        raise SettingsError(
            f"role {there['role']} may not erase the history; give the administrator's DSN: --dsn {ADMINISTRATOR}"
        )


def check_names(connection: Connection, themes: Collection[str]) -> None:
    """Raise Refused when rows of these themes may be stored under a name that is not among them.

    No link or rename begins until the end of the transaction: call it first.
    """
    connection.execute(QUERIES["share_links"])
    if themes and person_links.around(connection, themes):
        raise Refused("the themes were linked or renamed meanwhile; run the same command again, and look at its plan")


def begin(connection: Connection, selection: Selection) -> Selection:
    """Mark the themes or the session in the caller's transaction; returns the selection without later rows.

    Raises Refused as `check_names`.
    """
    themes, marked = selection.themes or (), selection.whole or bool(selection.session)
    if marked:
        # As the marks do: whoever shares the lock cannot have it alone beside another one who shares it.
        connection.execute(QUERIES["lock_links"])
    check_names(connection, themes)
    if not marked:
        return selection
    kind: marks.MarkKind = "session" if selection.session else "theme"
    marks.add(connection, [(theme, kind, selection.session) for theme in themes])
    last = {}
    for found in selection.kinds:
        row = connection.execute(QUERIES[f"last_id_{found}"], {"themes": list(themes)}).fetchone() or {"id": 0}
        last[found] = int(row["id"])
    return replace(selection, last=last)


def mark(run: Run, selection: Selection) -> Iterator[None]:
    """Mark all of the selection in batches, before anything is deleted.

    Without the marks an event of another home could bring a deleted text back.
    """
    if selection.whole or selection.session:
        place = "", ""
        while found := run(partial(_mark_sessions, selection=selection, after=place)):
            place = found
            yield
    for kind in ("entries", "history") if selection.whole else selection.kinds:
        row = Row(kind, "", 0, "")
        while marked := run(partial(_mark_rows, selection=selection, after=row)):
            row = marked
            yield


def _mark_sessions(connection: Connection, selection: Selection, after: tuple[str, str]) -> tuple[str, str] | None:
    values = {**selection.parameters, "after_theme": after[0], "after_session": after[1]}
    page = connection.execute(QUERIES["erasable_sessions"], values).fetchall()
    if page:
        marks.add(connection, [(row["theme"], "session", row["session"]) for row in page if row["session"]])
    return (page[-1]["theme"], page[-1]["session"]) if page else None


def _mark_rows(connection: Connection, selection: Selection, after: Row) -> Row | None:
    page = _page(connection, selection, after.kind, after)
    kind = "entries" if after.kind == "history" else after.kind
    if page:
        marks.add(connection, [(row.theme, kind, row.text) for row in page])
    return page[-1] if page else None


def delete(run: Run, selection: Selection) -> Iterator[Counter[str]]:
    """Delete all of the selection in batches, until nothing of it is found; yields how many rows of which kind.

    A row that somebody moves to another theme meanwhile may get to where was looked already. Agents may store rows with
    the text faster than this looks, so it looks PASSES_MAX times at most. Raises Refused as `check_names`.
    """
    for _ in range(PASSES_MAX):
        found = False
        # The history first: the earlier texts of each page of entries are looked for in what is left of it.
        for kind in reversed(selection.kinds):
            row: Row | None = Row(kind, "", 0, "")
            while row is not None:
                row, deleted = run(partial(_delete_page, selection=selection, after=row))
                found |= row is not None
                yield deleted
        if not found:
            break
    run(partial(check_names, themes=selection.themes or ()))
    for name in _BESIDE if selection.kind is None else ():
        while deleted := run(partial(_delete_beside, selection=selection, name=name)):
            yield deleted


def _delete_page(connection: Connection, selection: Selection, after: Row) -> tuple[Row | None, Counter[str]]:
    page, deleted = _page(connection, selection, after.kind, after), Counter[str]()
    for theme, rows in groupby(page, key=lambda row: row.theme):
        deleted += _delete_rows(connection, after.kind, theme, list(rows), alone=not selection.whole)
    return page[-1] if page else None, deleted


def _delete_beside(connection: Connection, selection: Selection, name: str) -> Counter[str]:
    return +Counter({name: connection.execute(QUERIES[f"erase_{name}"], selection.parameters).rowcount})


def _delete_rows(connection: Connection, kind: Found, theme: str, page: list[Row], *, alone: bool) -> Counter[str]:
    """Delete a page of rows; `alone`, with what other tables have of it, which otherwise goes with the theme."""
    values = {"theme": theme, "source": theme, "ids": [row.id for row in page], "texts": [row.text for row in page]}
    deleted = Counter[str]()
    if kind == "history":
        deleted["history"] = connection.execute(QUERIES["erase_history_rows"], values).rowcount
    else:
        deleted["pieces"] = connection.execute(QUERIES[f"erase_pieces_{kind}"], values).rowcount
        if kind == "entries" and alone:
            deleted["history"] = connection.execute(QUERIES["erase_past"], values).rowcount
        if kind == "facts" and alone:
            connection.execute(QUERIES["detach_erased_facts"], values)
        deleted[kind] = connection.execute(QUERIES[f"delete_moved_{kind}"], values).rowcount
        if kind == "entries":
            # A trigger has noted the deletions.
            connection.execute(QUERIES["erase_past"], values)
    if alone:
        for name in ("tombstones", "withdrawals", "pruned", "edges"):
            if name != "edges" or kind == "turns":
                deleted[name] = connection.execute(QUERIES[f"erase_{name}_of_texts"], values).rowcount
    entry_homes.forget(connection, [theme], [row.text for row in page])
    return +deleted


def settle(connection: Connection, selection: Selection, *, links: bool) -> Counter[str]:
    """Delete the counts of words, and the links of the themes if asked, in the caller's transaction."""
    deleted = Counter[str]()
    if selection.whole:
        entry_homes.forget(connection, selection.parameters["themes"])
    if links:
        connection.execute(QUERIES["lock_links"])
        deleted["links"] = connection.execute(QUERIES["erase_links"], selection.parameters).rowcount
    deleted["words"] = connection.execute(QUERIES["erase_words"], selection.parameters).rowcount
    return +deleted


def _page(
    connection: Connection, selection: Selection, kind: Found, after: Row | None = None, limit: int = BATCH_ROWS
) -> list[Row]:
    values = {
        **selection.parameters, "limit": limit, "after_theme": after.theme if after else "",
        "after_id": after.id if after else 0,
        # Without it an index is read from the start of the theme.
        "id_min": after.id + 1 if after and len(selection.themes or ()) == 1 else -_BIGINT_MAX,
        "last_id": selection.last.get(kind, _BIGINT_MAX),
    }  # fmt: skip
    return [Row(kind, **row) for row in connection.execute(QUERIES[f"erasable_{kind}"], values)]
