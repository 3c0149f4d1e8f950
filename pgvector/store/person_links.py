"""The links of accounts to persons, and the other names of themes.

An account is the theme of a private chat or of a profile, a person a theme `dm-person-<16 hexadecimal digits>`. Events
name the account and are stored under its person. Their rows have the account in `metadata.linked_account`, so that they
can be separated again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from psycopg.rows import DictRow

from ..text.theme_names import reserved
from . import moves
from .connection.database import Connection
from .connection.distributed import form_of
from .connection.messages import Statement, together
from .queries import QUERIES

LINKS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Link:
    """An account of a person, and how many rows are still in the account's own theme."""

    person: str
    account: str
    linked_at: datetime
    entries: int
    turns: int
    facts: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The rows of a theme, and the time of the newest."""

    theme: str
    entries: int
    turns: int
    facts: int
    at: datetime | None

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return self.entries + self.turns + self.facts


Names: TypeAlias = Mapping[str, tuple[str, ...]]


class Place(NamedTuple):
    """The theme that events of another theme are stored in, and the linked account that they come from, or ""."""

    theme: str
    account: str


def sharing(themes: Collection[str]) -> list[Statement]:
    """Statements that keep the places of themes as they are until the end of the transaction, and read those of these.

    The answer of the last one is for `places_of`. Run them first in a transaction that writes.
    """
    return [*_admitting(themes), (QUERIES["share_links"], {}), (QUERIES["find_places"], {"themes": list(themes)})]


def naming(themes: Collection[str]) -> Statement:
    """The statement that reads the other names of the places of themes; its answer is for `names_of`."""
    return (QUERIES["find_names"], {"themes": list(themes)})


def names_of(found: Iterable[DictRow]) -> Names:
    """The names that rows of each place may still have: the accounts of a person, and old names."""
    return {row["place"]: tuple(row["names"]) for row in found}


def shared_place(connection: Connection, theme: str) -> tuple[Place, tuple[str, ...]]:
    """Where events of a theme are stored, until the end of the transaction, and the other names of that.

    Call it first in the transaction.
    """
    *_, places, names = together(connection, [*sharing([theme]), naming([theme])])
    place = places_of(places.rows).get(theme, Place(theme, ""))
    return place, names_of(names.rows).get(place.theme, ())


def around(connection: Connection, themes: Collection[str]) -> set[str]:
    """The other names that rows of these themes may have."""
    places, names = together(connection, [(QUERIES["find_places"], {"themes": list(themes)}), naming(themes)])
    found = {place.theme for place in places_of(places.rows).values()}
    return found.union(*names_of(names.rows).values()) - set(themes)


def admit(connection: Connection, themes: Iterable[str]) -> None:
    """With row security, have the login see those of the themes that are of persons and rooms and that nobody has yet.

    Call it in the transaction that stores rows of them. Rows of themes that the login may not see are refused there.
    """
    for text, values in _admitting(themes):
        connection.execute(text, values)


def _admitting(themes: Iterable[str]) -> list[Statement]:
    persons = [theme for theme in themes if reserved(theme)]
    return [(QUERIES["admit_themes"], {"themes": persons})] if persons else []


def places_of(found: Iterable[DictRow]) -> dict[str, Place]:
    """The places of those of the themes that are linked to a person or have another name, by theme."""
    return {row["theme"]: Place(row["place"], row["account"]) for row in found}


def of_themes(connection: Connection, themes: Iterable[str]) -> dict[str, str]:
    """The persons of those of the themes that are linked, by theme."""
    found = connection.execute(QUERIES["find_links"], {"themes": list(themes)})
    return {row["account"]: row["person"] for row in found}


def copy_applied(connection: Connection, ways: Iterable[tuple[str, str, list[str]]]) -> None:
    """Add these events to the ledger of a theme where they are in that of another: (from, to, ids of events)."""
    for source, destination, events in ways:
        parameters = {"source": source, "destination": destination, "events": events}
        connection.execute(QUERIES["copy_applied"], parameters)


def changed(connection: Connection, known: str) -> tuple[str, dict[str, str]] | None:
    """The version of the links, and the person of each account; None while `known` is the version.

    An old name of a theme counts as an account of the new one. Of more than LINKS_MAX links, the oldest.
    """
    rows = connection.execute(QUERIES["read_links"], {"known": known, "limit": LINKS_MAX}).fetchall()
    version = str(rows[0]["version"])
    return None if version == known else (version, {row["account"]: row["person"] for row in rows if row["account"]})


def listed(connection: Connection, limit: int, person: str | None = None) -> list[Link]:
    """Up to `limit` links, of one person if it is named, those of a person together."""
    rows = connection.execute(QUERIES[form_of(connection, "list_links")], {"person": person, "limit": limit})
    return [Link(**row) for row in rows]


def person_of(connection: Connection, theme: str) -> str:
    """The theme that the rows of a theme are stored in: its person or its new name, or itself when it has neither."""
    found = connection.execute(QUERIES["find_places"], {"themes": [theme]})
    return places_of(found).get(theme, Place(theme, "")).theme


def themes_of(connection: Connection, theme: str) -> tuple[str, ...]:
    """All themes that may have rows of a theme, which may be an account or an old name; the theme itself comes first.

    These are its person or new name, and the accounts and old names of that, whose rows may not have been moved yet.
    Whoever deletes what is stored of somebody deletes it in all of them.
    """
    return (theme, *sorted(around(connection, [theme])))


def held(connection: Connection, theme: str, account: str = "") -> Holding:
    """Count the rows of a theme, of one account if it is named."""
    row = connection.execute(QUERIES["count_account"], {"theme": theme, "account": account}).fetchone() or {}
    return Holding(**row)


def count(connection: Connection) -> int:
    """The number of links."""
    return int((connection.execute(QUERIES["count_links"]).fetchone() or {})["links"])


def link(connection: Connection, account: str, person: str) -> int:
    """Link an account that has no person; see `join`."""
    return join(
        connection, account, person, (QUERIES["add_link"], {"account": account, "person": person}), mark=account
    )


def join(connection: Connection, source: str, destination: str, noting: Statement, *, mark: str = "") -> int:
    """Store the events of a theme under another one from now on, in the caller's transaction; `noting` notes that.

    Waits for the transactions of all agents that store events now. What the events of `source` have done is copied:
    those that come again, and late ones, find it under `destination`. Entries and facts, which later events change, are
    moved, up to ROWS_AT_ONCE_MAX of them; returns how many. `moves.move` moves the turns afterwards.
    """
    connection.execute(QUERIES["lock_links"])
    admit(connection, [source, destination])
    connection.execute(QUERIES["copy_erasures_to_names"], {"source": source})
    connection.execute(*noting)
    moves.copy_records(connection, source, destination)
    connection.execute(QUERIES["merge_pruned"], {"source": source, "destination": destination})
    return moves.move_at_once(connection, source, destination, mark=mark)


def take(connection: Connection, account: str, person: str) -> bool | None:
    """Link as another database did, in the caller's transaction; returns whether it is new here.

    None when the account is a theme of its own here: it has rows, or another person. An operator may have separated it.
    """
    connection.execute(QUERIES["lock_links"])
    if known := of_themes(connection, [account]).get(account):
        return False if known == person else None
    if in_use(connection, account):
        return None
    link(connection, account, person)
    return True


def in_use(connection: Connection, theme: str) -> bool:
    """Whether rows are stored in a theme, or earlier versions of its entries."""
    return bool((connection.execute(QUERIES["theme_in_use"], {"theme": theme}).fetchone() or {})["held"])


def unlink(connection: Connection, account: str) -> int:
    """Undo a link and move what is left of the account's rows back, in the caller's transaction; returns how many.

    No event is stored meanwhile: have `moves.move` move the turns before. With the last account of a person all its
    rows are moved.
    """
    connection.execute(QUERIES["lock_links"])
    row = connection.execute(QUERIES["delete_link"], {"account": account}).fetchone()
    if row is None:
        return 0
    person = row["person"]
    moves.copy_records(connection, person, account)
    connection.execute(QUERIES["copy_pruned"], {"source": person, "destination": account})
    moves.copy_erasures(connection, person, account)
    of_account = account if listed(connection, 1, person) else ""
    return sum(iter(lambda: moves.move(connection, person, account, account=of_account), 0))


def is_linked(connection: Connection, account: str, person: str) -> bool:
    """Whether an account is linked to a person. No link changes until the end of the transaction: call it first."""
    connection.execute(QUERIES["share_links"])
    return of_themes(connection, [account]).get(account) == person


def move_unmoved(connection: Connection, limit: int) -> int:
    """Move some rows of up to `limit` accounts that still have rows of their own; returns how many, as `moves.move`."""
    if not moves.may_move(connection):
        return 0
    # No link ends meanwhile.
    connection.execute(QUERIES["share_links"])
    accounts = connection.execute(QUERIES[form_of(connection, "unmoved_links")], {"limit": limit}).fetchall()
    return sum(moves.move(connection, row["account"], row["person"], mark=row["account"]) for row in accounts)
