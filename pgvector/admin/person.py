"""person: link the accounts of one person on several platforms, separate them, and list the links.

Who the accounts belong to is asked for and never an argument, which a shell would keep. The database gets their themes.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..errors import BadArgument, Refused
from ..runtime import Runtime
from ..settings import load
from ..store import moves, person_links
from ..store.connection.database import Connection
from ..store.person_links import LINKS_MAX, Holding
from ..store.queries import KINDS, Kind
from ..text.sanitize import safe_line
from ..text.theme_names import reserved
from .accounts import PERSON, asked
from .console import Cell, Console, counted, local_time, rows_table
from .database import ready

T = TypeVar("T")

LISTED_MAX = 1000
CONSENT = "add --yes, and write the accounts to the standard input"


def show(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """Print the links, by theme. Returns 0."""
    with ready(load(home), home, console) as runtime, runtime.database.connection() as connection:
        links = person_links.listed(connection, LISTED_MAX)
    console.data({"links": [asdict(link) for link in links]})
    if not links:
        console.show("no accounts are linked")
        return 0
    rows: list[dict[str, Cell]] = [
        {
            "Person": link.person,
            "Not moved": link.entries + link.turns + link.facts,
            "Since": local_time(link.linked_at),
            "Account": safe_line(link.account, 60),
        }
        for link in links
    ]
    console.show(rows_table(rows))
    if any(row["Not moved"] for row in rows):
        console.say("rows that are not moved come from an agent of an earlier release; to move: person link, again")
    return 0


def link(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Link accounts after a preview, and move their rows to the theme of the person. Returns 1 when nothing was done.

    Accounts that are linked already bring their person; the rows that are still theirs are moved. Raises BadArgument,
    and Refused when the accounts belong to two persons.
    """
    console.check_consent(args, CONSENT)
    with ready(load(home), home, console) as runtime:
        accounts = asked(runtime, home, console, args.profile)
        with runtime.database.connection() as connection:
            known = person_links.of_themes(connection, accounts)
            held = [person_links.held(connection, account) for account in accounts]
            room = LINKS_MAX - person_links.count(connection)
        persons = sorted(set(known.values()))
        if len(persons) > 1:
            raise Refused(
                f"the accounts belong to {len(persons)} persons: {', '.join(persons)}; unlink one of them first"
            )
        if not persons and len(accounts) < 2:
            raise BadArgument("one account alone cannot be linked; name two or more")
        if len(accounts) - len(known) > room:
            raise Refused(f"there are {LINKS_MAX - room:,} links, and {LINKS_MAX:,} are the most")
        person = persons[0] if persons else PERSON + secrets.token_hex(8)
        _preview(console, accounts, held, known)
        console.say(f"the rows and all later ones become those of {person}")
        if not console.agreed(args, "Are these the accounts of one person?"):
            return 1
        moved = {
            account: _change(runtime, partial(person_links.link, account=account, person=person))
            for account in accounts
            if account not in known
        }
        for account in accounts:
            moved[account] = moved.get(account, 0) + _move(runtime, account, person, mark=account)
    console.data({"person": person, "accounts": accounts, "moved": moved})
    console.show(f"linked as {person}; moved {counted(sum(moved.values()), 'row')}")
    console.say(f"running agents read the person's rows within {runtime.settings.heal_interval_s:g} s")
    return 0


def unlink(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Separate accounts from their person after a preview. Returns 1 when nothing was done.

    The rows that came from an account go back to it, and with the last account all that is left. Raises BadArgument
    for an account that is not linked.
    """
    console.check_consent(args, CONSENT)
    with ready(load(home), home, console) as runtime:
        accounts = asked(runtime, home, console, args.profile)
        with runtime.database.connection() as connection:
            known = person_links.of_themes(connection, accounts)
            if missing := [account for account in accounts if account not in known]:
                raise BadArgument(f"not linked: {', '.join(missing)}; see: hermes-pgvector person list")
            held = [person_links.held(connection, known[account], account) for account in accounts]
        _preview(console, accounts, held, known)
        console.say("the rows that came from these accounts go back to them")
        if not console.agreed(args, "Separate them?"):
            return 1
        moved = {account: _separate(runtime, account, known[account]) for account in accounts}
    console.data({"accounts": accounts, "moved": moved})
    console.show(f"separated {counted(len(accounts), 'account')}; moved {counted(sum(moved.values()), 'row')}")
    console.say(f"running agents stop reading the person's rows within {runtime.settings.heal_interval_s:g} s")
    return 0


def _separate(runtime: Runtime, account: str, person: str) -> int:
    """Move the turns of an account back, and end its link, which moves the rest: later events would not find it.

    A command that was interrupted can be repeated.
    """
    moved = _move(runtime, person, account, account=account)
    return moved + _change(runtime, partial(person_links.unlink, account=account))


def _change(runtime: Runtime, change: Callable[[Connection], T]) -> T:
    with runtime.database.transaction() as connection:
        return change(connection)


def _move(runtime: Runtime, source: str, destination: str, *, account: str = "", mark: str = "") -> int:
    """Move rows in batches, each in a transaction of its own; a command that was interrupted goes on where it was.

    It ends when another command separates the account from the person.
    """
    linked, person = (mark, destination) if mark else (account, source)

    def batch(connection: Connection) -> int:
        if not person_links.is_linked(connection, linked, person):
            return 0
        kinds: Collection[Kind] = tuple(KINDS) if mark else ("turns",)
        return moves.move(connection, source, destination, account=account, mark=mark, kinds=kinds)

    return sum(iter(lambda: _change(runtime, batch), 0))


def _preview(console: Console, accounts: list[str], held: list[Holding], known: dict[str, str]) -> None:
    """Show what each account holds, and say what may be wrong with its name. `known` are their persons."""
    rows: list[dict[str, Cell]] = [
        {
            "Entries": holding.entries,
            "Turns": holding.turns,
            "Facts": holding.facts,
            "Newest": local_time(holding.at),
            "Linked to": known.get(name, ""),
            "Account": safe_line(name, 60),
        }
        for name, holding in zip(accounts, held, strict=True)
    ]
    console.show(rows_table(rows))
    for name, holding in zip(accounts, held, strict=True):
        if not (holding.rows or name in known):
            console.say(f"{safe_line(name, 60)} has no rows: is the id right, and the profile (--profile)?")
        elif not reserved(name):
            console.say(f"{safe_line(name, 60)} is the theme of all agents of that profile, on every host")
