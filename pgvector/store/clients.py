"""The processes that use a database now: those of this release by their leases, older ones by their connections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .queries import QUERIES
from .schema.preflight import Connection
from .schema.verification import APPLICATION

PLACES_MAX = 10


class Client(NamedTuple):
    """The live processes of a home: its label, the embedding model that its settings name, if they do, and how many."""

    home: str
    model: str
    processes: int


class OldConnection(NamedTuple):
    """A connection of a process of an earlier release: of which role, and from where."""

    role: str
    host: str


def live(connection: Connection) -> list[Client]:
    """The homes with processes of this release."""
    holders = [json.loads(row["holder"]) for row in connection.execute(QUERIES["live_clients"])]
    found = Counter((str(holder["home"]), str(holder["model"])) for holder in holders)
    return [Client(*each, number) for each, number in sorted(found.items())]


def older(connection: Connection) -> list[OldConnection]:
    """The connections of earlier releases, which are open now; an idle process has none."""
    number = _number(APPLICATION)
    rows = connection.execute(QUERIES["connected_clients"])
    return [OldConnection(row["role"], row["host"]) for row in rows if _number(row["name"]) < number]


def listed(found: Sequence[OldConnection]) -> str:
    """One sentence about these connections: how many there are, and from where."""
    places = sorted({f"{each.role} from {each.host or 'this machine'}" for each in found})
    number = f"{len(found)} connection{'s' if len(found) > 1 else ''}"
    return f"{number} of earlier releases ({', '.join(places[:PLACES_MAX])})"


def _number(application: str) -> int:
    number = application.rpartition("/")[2]
    return int(number) if number.isdecimal() else 0
