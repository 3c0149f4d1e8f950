"""The result of a check, as `doctor` prints it, and remedies that can be pasted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found, and what to do about it; empty when nothing is."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def failed(name: str, problem: str) -> Check:
    """A check that could not be made. The problem may end with the command of an administrator that mends it."""
    found, _, command = problem.partition("; run: ")
    remedy = f"{command}; if that changes nothing, restore from a dump what is not there"
    return Check(name, "problem", found, remedy if command else "run doctor again")


def in_psql(*statements: str) -> str:
    """A remedy for an administrator: statements that can be pasted into psql, each on its own."""
    return f"as an administrator, in psql: {'; '.join(statements)};"


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def place_of_setting(source: str, role: str, database: str, otherwise: str = "system") -> str:
    """What to alter where a setting has this `pg_settings.source`."""
    at_role, at_database = f"role {quoted(role)}", f"database {quoted(database)}"
    places = {"database": at_database, "user": at_role, "database user": f"{at_role} in {at_database}"}
    return places.get(source, otherwise)
