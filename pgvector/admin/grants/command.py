"""grants: the themes that logins may see with row security, as the tables' owner."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...settings import load
from ...store import grants
from ...store.schema import verification
from ...store.schema.preflight import Connection, admin_connection
from ...text.sanitize import safe_line, visible
from ..console import ATTENTION, Console, local_time, rows_table
from ..database import administrators_dsn

GRANTS_MAX, NAME_CHARS_MAX = 10_000, 200
OFF = "row security is off, so all logins see all themes: hermes-pgvector migrate --row-security"


def show_all(home: Path, console: Console, args: argparse.Namespace) -> int:
    """`grants list`. Returns 0."""
    with _owner(home, console, args.dsn) as connection:
        found = grants.listed(connection, GRANTS_MAX, args.login)
    console.data(
        [{"login": g.login, "pattern": g.pattern, "admitted": g.admitted, "since": g.granted_at} for g in found]
    )
    rows = [
        {
            "login": safe_line(grant.login, NAME_CHARS_MAX),
            "since": local_time(grant.granted_at),
            "how": "met first" if grant.admitted else "granted",
            "themes": visible(grant.pattern),  # `safe_line` takes a lone `*` for a bullet
        }
        for grant in found
    ]
    console.show(rows_table(rows) if rows else "no login has a grant")
    return 0


def add(home: Path, console: Console, args: argparse.Namespace) -> int:
    """`grants add`. Returns 0."""
    pattern = grants.pattern_of(args.pattern)
    with _owner(home, console, args.dsn) as connection:
        new = grants.add(connection, args.login, pattern)
    console.data({"login": args.login, "pattern": pattern, "added": new})
    console.show(f"{args.login} may see {pattern}" if new else f"{args.login} has that grant already")
    return 0


def remove(home: Path, console: Console, args: argparse.Namespace) -> int:
    """`grants remove`. Returns 0, or ATTENTION when the login has no such grant."""
    pattern = grants.pattern_of(args.pattern)
    with _owner(home, console, args.dsn) as connection:
        gone = grants.remove(connection, args.login, pattern)
    console.data({"login": args.login, "pattern": pattern, "removed": gone})
    console.show(f"{args.login} has no grant of {pattern} any more" if gone else f"{args.login} has no such grant")
    return 0 if gone else ATTENTION


@contextmanager
def _owner(home: Path, console: Console, dsn: str) -> Iterator[Connection]:
    target, embedded = administrators_dsn(load(home), home, console, dsn)
    with admin_connection(target) as connection:
        if not verification.verify(connection, "hermes-pgvector server start" if embedded else "").row_security:
            console.say(OFF)
        yield connection
