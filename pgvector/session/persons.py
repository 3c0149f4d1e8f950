"""What other processes change for this one: the persons that accounts are linked to, and what was erased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from ..model import Scope

if TYPE_CHECKING:
    from ..store.connection.database import Connection


class Persons:
    """The links of the database as last read: recalls read the rows of all accounts of a person.

    Safe for any thread; without `refresh` nobody is linked.
    """

    def __init__(self) -> None:
        self._version = ""
        # The person of an account, and the accounts of a person. Replaced as one, so that readers need no lock.
        self._known: tuple[dict[str, str], dict[str, tuple[str, ...]]] = {}, {}

    def themes(self, theme: str) -> tuple[str, ...]:
        """The themes with the rows of the person of a theme, the one that is written to first; `theme` if it has none.

        The accounts follow the person: a process of an earlier release still writes to them.
        """
        persons, accounts = self._known
        person = persons.get(theme, theme)
        return (person, *accounts.get(person, ()))

    def scope(self, scope: Scope) -> Scope:
        """The scope with all themes of its person in place of its own one."""
        own, themes = self.themes(scope.own), scope.themes
        if themes is not None and scope.own in themes:
            themes = tuple(dict.fromkeys((*own, *(theme for theme in themes if theme != scope.own))))
        return replace(scope, own=own[0], themes=themes)

    def refresh(self, connection: Connection) -> None:
        """Read the links if they have changed."""
        from ..store import person_links

        found = person_links.changed(connection, self._version)
        if found is None:
            return
        version, persons = found
        accounts: dict[str, tuple[str, ...]] = {}
        for account, person in persons.items():
            accounts[person] = (*accounts.get(person, ()), account)
        self._known, self._version = (persons, accounts), version


class Changes:
    """Follows what other processes change: the links of persons, and erasures, after which caches are emptied.

    Each of `empty` empties a cache, which may hold texts that were erased.
    """

    def __init__(self, persons: Persons, *empty: Callable[[], None]) -> None:
        self._persons, self._empty = persons, empty
        self._erased: datetime | None = None

    def refresh(self, connection: Connection) -> None:
        """Read what has changed."""
        from ..store.erasure import marks

        self._persons.refresh(connection)
        last = marks.last(connection)
        if last is not None and last != self._erased:
            for empty in self._empty:
                empty()
        self._erased = last
