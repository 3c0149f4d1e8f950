"""What to do when a server refuses a connection, by the words of its refusal."""

from __future__ import annotations

import re
from pathlib import Path

from ..store.schema.preflight import REFUSED, UNREACHABLE, refused
from .check import in_psql, quoted

# How a problem of connecting outside of the pool begins.
CONNECTING = (UNREACHABLE, REFUSED)


def of_home(problem: str, home: Path) -> str:
    """The remedy for a problem of agents, which connect with the address in the home's `.env`."""
    address = f"HERMES_PGVECTOR_DSN in {home / '.env'}"
    found = remedy(problem, address, f"{address}, which running agents take up")
    # Statements are pasted whole.
    return found if found.endswith(";") else f"{found}; until then events wait in the spool"


def remedy(problem: str, address: str, password: str) -> str:
    """The remedy for a problem of connecting, as the server or the driver words it in English.

    `address` is the place of the connection string, and `password` that of its password.
    """
    if limited := re.search(r'too many connections for (role|database) "(.+)"', problem):
        return in_psql(f"alter {limited[1]} {quoted(limited[2])} connection limit -1")
    if barred := re.search(r'role "(.+)" is not permitted to log in', problem):
        return in_psql(f"alter role {quoted(barred[1])} login")
    if barred := re.search(r'permission denied for database "(.+)"', problem):
        return in_psql(f"grant connect on database {quoted(barred[1])} to ROLE")
    if re.search('database ".+" does not exist', problem):
        return f"correct the database in {address}, or create it and run: hermes-pgvector migrate"
    if re.search("database system is|not yet accepting connections", problem):
        return "wait until the server has started; its log says why when it does not"
    if re.search(r"too many clients|connection slots are reserved", problem):
        return "raise max_connections of the server, lower pool_max, or put a pooler such as PgBouncer in between"
    if re.search(r"password authentication failed|no password supplied|PAM|LDAP|SCRAM", problem):
        return f"write the right password into {password}"
    if re.search(r"no encryption|SSL off|does not support SSL|certificate", problem):
        return f"correct sslmode and sslrootcert of {address}, or the server's TLS and pg_hba.conf"
    if re.search("invalid .* value|invalid port|invalid connection option", problem):
        return f"correct {address}"
    if "could not translate host name" in problem:
        return f"correct the host in {address}, or its entry in the DNS"
    if "no pg_hba.conf entry" in problem:
        return f"correct {address}, or let pg_hba.conf of the server accept it"
    return f"correct {address}" if refused(problem) else f"start Postgres or correct {address}"
