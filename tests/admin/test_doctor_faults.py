"""Faults that `doctor` names exactly: red before, the printed remedy pasted into psql or a shell, green after."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, LiteralString

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from faultrig.standby import standby_of
from logins import give_rights
from loopback import Endpoint
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import Server
from spools import die, make
from waiting import wait_for

from hermes_memory_pgvector.admin.configuration import change_env_file, write_config
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import TurnTaken, now
from hermes_memory_pgvector.outbox.codec import encode
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.store.schema.migrations import migrate, migration_files
from hermes_memory_pgvector.store.schema.preflight import ADMINISTRATOR

# Nothing may tidy up behind the test.
EVENTS = (
    "alter table memory_events set (autovacuum_enabled = off);"
    "insert into memory_events (event_id, agent_identity) select gen_random_uuid(), 't' from generate_series(1, {});"
)
LOCKS = ("memory_entries in exclusive", "memory_events in access exclusive", "conversations in access exclusive")
SAID = "What is the number of the machine in the hall?"


@dataclass
class Scene:
    """A home of an agent with a role of its own, in which everything is well."""

    home: Path
    server: Server
    administrator: str
    role: str
    endpoint: Endpoint
    fixture: Callable[[str], Any]
    stack: ExitStack = field(default_factory=ExitStack)

    def use(self, dsn: str) -> None:
        """Write the connection string of the agents into `.env`."""
        change_env_file(self.home / ".env", {"HERMES_PGVECTOR_DSN": dsn})

    def agents_dsn(self, **changes: str) -> str:
        return make_conninfo(self.administrator, user=self.role, **changes)

    def sql(self, statements: str) -> None:
        """Paste into psql, as its user does: line by line, each statement by itself."""
        psql = shutil.which("psql", path=str(self.server.bin) if self.server.bin else None)
        assert psql
        pasted = subprocess.run(
            [psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", self.administrator], input=statements, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert pasted.returncode == 0, (statements, pasted.stderr)

    def command(self, *arguments: str) -> Outcome:
        try:
            return hermes_pgvector("--home", str(self.home), "--json", *arguments)
        finally:
            os.environ.pop("HERMES_PGVECTOR_DSN", None)  # of `.env`, which the command has read

    def bad(self) -> dict[str, list[dict[str, str]]]:
        """What `doctor` names that is not well, by name; its exit code says whether it is a problem."""
        done = self.command("doctor")
        found: dict[str, list[dict[str, str]]] = {}
        for check in done.document["checks"]:
            if check["verdict"] != "ok":
                found.setdefault(check["name"], []).append(check)
        assert done.code == int(any(check["verdict"] == "problem" for named in found.values() for check in named))
        return found

    def paste(self, remedy: str) -> None:
        """Run what is printed, in psql or in a shell; only placeholders in capitals are filled in."""
        if statements := re.fullmatch(r"as an administrator, in psql: (.*)", remedy):
            self.sql(statements[1])
            return
        command = re.search(r"(?:^|: )(hermes-pgvector [^;]+)", remedy)
        assert command, remedy
        line = command[1].replace(ADMINISTRATOR, shlex.quote(self.administrator))
        line = re.sub(r"\bROLE\b", self.role, line)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", line], env={"PATH": path, "HERMES_HOME": str(self.home)}, capture_output=True, text=True,
            check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stderr)


@pytest.fixture
def scene(
    server: Server, role: str, make_database: Callable[..., str], endpoint: Endpoint, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Scene]:  # fmt: skip
    made = Scene(tmp_path, server, make_database(), role, endpoint, request.getfixturevalue)
    give_rights(made.administrator, role)
    made.sql(f"alter role {role} set synchronous_commit = on")
    (tmp_path / "config.yaml").write_text("memory:\n  provider: pgvector\n")
    made.use(made.agents_dsn())
    write_config(tmp_path, {"embed_url": endpoint.url, "embed_model": "words"})
    assert made.command("install").code == 0
    with made.stack:
        yield made


def vectors_of_another_length(scene: Scene) -> None:
    scene.sql("insert into hermes_pgvector_settings (name, value) values ('embedding_model', 'words')")
    scene.endpoint.dimensions = 200


def a_locked_table(scene: Scene, lock: LiteralString) -> None:
    left = scene.stack.enter_context(psycopg.connect(scene.administrator, application_name="a tool"))
    left.execute(f"lock table {lock} mode")
    # The server ends this connection, whose end is an error.
    scene.stack.callback(left.close)


def an_older_schema(scene: Scene) -> None:
    folder = scene.home / "released"
    folder.mkdir()
    for migration in migration_files()[:-1]:
        (folder / f"{migration.name}.sql").write_text(migration.text)
    scene.administrator = scene.fixture("make_database")(None)
    migrate(scene.administrator, dimensions=384, folder=folder)
    scene.sql(f"grant all on all tables in schema public to {scene.role}")
    scene.use(scene.agents_dsn())


def an_administrator(scene: Scene) -> None:
    scene.use(scene.administrator)


def another_password(scene: Scene) -> None:
    scene.fixture("strict")
    scene.use(scene.agents_dsn(password="wrong"))


def a_dead_letter(scene: Scene) -> None:
    event = TurnTaken(theme="ops", user=SAID, assistant="It is machine 7.", session_id="s")
    assert DeadLetters(Home(scene.home).state).keep(event.id, "a reason that is mended", encode(event).decode())


def an_old_event(scene: Scene) -> None:
    spool = make(Home(scene.home).spool)
    assert spool.append(TurnTaken(theme="ops", user=SAID, assistant="Seven.", at=now() - timedelta(minutes=20)))
    die(spool)


@dataclass(frozen=True)
class Fault:
    """How a fault is seeded, the check that names it, its words, and other checks that show its effects.

    Without `mend` the remedy is pasted; else it is what a person does whom the remedy tells to do so.
    """

    seed: str | Callable[[Scene], None]
    name: str
    said: str
    effects: tuple[str, ...] = ()
    mend: Callable[[Scene], None] | None = None
    told: str = ""


FAULTS: dict[str, Fault] = {
    "read-only database": Fault(
        'alter database "{database}" set default_transaction_read_only = on', "writes", "transactions are read-only"
    ),
    "read-only role": Fault(
        "alter role {role} set default_transaction_read_only = on", "writes", "transactions are read-only"
    ),
    "index that was not finished": Fault(
        "update pg_index set indisvalid = false where indexrelid = 'conversations_words'::regclass",
        "indexes", "not usable: conversations_words$",
    ),
    "missing index": Fault("drop index conversations_session", "indexes", "^missing: conversations_session$"),
    "missing trigger": Fault(
        "drop trigger memory_entries_history on memory_entries", "triggers", "^missing: memory_entries_history$"
    ),
    "disabled triggers": Fault(
        "alter table memory_entries disable trigger user", "triggers", "^memory_entries.* is disabled"
    ),
    "trigger of somebody else, which refuses writes": Fault(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;"
        "create trigger refuse before insert on memory_entries for each row execute function refuse()",
        "triggers", "^refuse on memory_entries is not one of the memory's",
    ),
    "missing right on a table": Fault(
        "revoke insert on conversations from {role}", "role", "lacks insert on conversations$", ("statements",)
    ),
    "missing right on a sequence": Fault(
        "revoke all on sequence facts_id_seq from {role}", "role", "lacks usage on facts_id_seq$"
    ),
    "schema of an earlier release": Fault(an_older_schema, "schema", r"lacks \[\d+\]$"),
    "pgvector in another schema": Fault(
        "create schema extensions; grant usage on schema extensions to {role};"
        "alter extension vector set schema extensions",
        "search_path", "is in extensions, which is not on the search_path", ("statements",),
    ),
    "schema of pgvector that the role may not use": Fault(
        "create schema extensions; alter extension vector set schema extensions;"
        "alter role {role} set search_path = public, extensions",
        "search_path", "may not use what is in schema extensions", ("statements",),
    ),
    "memory that is not on the search path": Fault(
        "alter role {role} set search_path = elsewhere", "search_path", "is in public, which is not on the search_path"
    ),
    "superuser as the agents' role": Fault(
        an_administrator, "role", "postgres is a superuser", ("durability",),
        lambda scene: scene.use(scene.agents_dsn()), "put it into HERMES_PGVECTOR_DSN",
    ),
    "commits that a crash loses": Fault(
        "alter role {role} set synchronous_commit = off", "durability", "^synchronous_commit is off"
    ),
    "connection limit of the role": Fault(
        "alter role {role} connection limit 0", "database", "too many connections for role"
    ),
    "role that may not log in": Fault("alter role {role} nologin", "database", "is not permitted to log in"),
    "wrong password": Fault(
        another_password, "database", "password authentication failed",
        mend=lambda scene: scene.use(scene.agents_dsn(password="right")),
        told="write the right password into HERMES_PGVECTOR_DSN in .*/.env",
    ),
    "embedder that is down": Fault(
        lambda scene: scene.endpoint.close(), "embedder", "^words: ", mend=lambda scene: scene.endpoint.reopen(),
        told="^start it",
    ),
    "embedder with a rate limit": Fault(
        lambda scene: setattr(scene.endpoint, "status", 429), "embedder", "answered 429: it takes no more requests",
        mend=lambda scene: setattr(scene.endpoint, "status", 200), told="^wait, or raise its rate limit",
    ),
    "rows of another model": Fault(
        "insert into hermes_pgvector_settings (name, value) values ('embedding_model', 'it''s $another')",
        "model", "the database holds vectors of it's .another, this home uses words",
    ),
    "vectors of another length": Fault(
        vectors_of_another_length, "model", "200 dimensions, the database holds vectors of 384",
        mend=lambda scene: setattr(scene.endpoint, "dimensions", 384), told="^set embed_url and embed_model",
    ),
    "dead letter": Fault(a_dead_letter, "dead letters", "^1 event: a reason that is mended$"),
    "event of an ended process": Fault(an_old_event, "spool", "^1 event waiting .* oldest 20 minutes ago"),
    "rows without a vector": Fault(
        "insert into conversations (agent_identity, session_id, role, content) values ('t', 's', 'user', 'a machine')",
        "rows", "1 have no vector",
    ),
    "more dead rows than live ones": Fault(
        EVENTS.format(10_001) + "delete from memory_events; analyze memory_events; select pg_stat_force_next_flush()",
        "bloat", "^more dead rows than live ones: memory_events$",
    ),
    "no statistics": Fault(
        EVENTS.format(20_000),
        "statistics", "no statistics of memory_events:",
    ),
    **{
        f"forgotten lock of {lock} mode": Fault(
            partial(a_locked_table, lock=lock), "locks",
            rf"^process \d+ of the server \(a tool\) has locked {lock.split()[0]}; end it",
            effects=("rows",) if "conversations" in lock else (),
        )
        for lock in LOCKS
    },
    "plugin that is not linked": Fault(
        lambda scene: scene.command("install", "--remove"), "plugin", "so the host cannot load the plugin"
    ),
    "hook of the gateway that is missing": Fault(
        lambda scene: (scene.home / "hooks" / "pgvector").unlink(), "gateway hook", "may have no memory"
    ),
}  # fmt: skip


NOT_ON_CITUS = {
    "missing trigger": not_on_citus.triggers,
    "disabled triggers": not_on_citus.triggers,
    "trigger of somebody else, which refuses writes": not_on_citus.triggers,
    "more dead rows than live ones": not_on_citus.workers,
    "no statistics": not_on_citus.workers,
    "read-only database": not_on_citus.effects,
    "read-only role": not_on_citus.effects,
    "superuser as the agents' role": not_on_citus.effects,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=NOT_ON_CITUS.get(name, ())) for name in FAULTS])
def test_a_fault_is_named_and_its_remedy_mends_it(scene: Scene, name: str) -> None:
    fault = FAULTS[name]
    if isinstance(fault.seed, str):
        database = conninfo_to_dict(scene.administrator)["dbname"]
        scene.sql(fault.seed.format(role=scene.role, database=database))
    else:
        fault.seed(scene)
    found = scene.bad()
    assert set(found) == {fault.name, *fault.effects}, found
    for check in found[fault.name]:
        assert re.search(fault.said, check["found"]), check
        assert re.search(fault.told, check["remedy"]), check
        if fault.mend is None or "hermes-pgvector" in check["remedy"]:
            scene.paste(check["remedy"])
    if fault.mend is not None:
        fault.mend(scene)
    assert scene.bad() == {}


def test_nothing_is_wrong_where_nothing_is(scene: Scene) -> None:
    assert scene.bad() == {}


def test_a_table_that_a_restore_has_left_out_is_named_by_doctor_and_by_its_remedy(scene: Scene) -> None:
    scene.sql("alter table facts rename to lost")
    found = scene.bad()
    assert set(found) == {"rows", "statements"}
    for (check,) in found.values():
        assert check["found"] == 'the database lacks a part of the memory: relation "facts" does not exist'
        assert "hermes-pgvector migrate" in check["remedy"]
        assert check["remedy"].endswith("; if that changes nothing, restore from a dump what is not there")
    refused = scene.command("migrate", "--dsn", scene.administrator, "--runtime-role", scene.role)
    assert (refused.code, "has no table facts; restore it from a dump" in refused.err) == (1, True), refused
    scene.sql("alter table lost rename to facts")
    assert scene.bad() == {}


@pytest.fixture
def standby(server: Server) -> Iterator[str]:
    if server.bin is None:
        pytest.skip("the server is not ours to copy")
    try:
        with standby_of(server) as node:
            yield str(node.folder)
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")


@pytest.mark.slow
def test_a_standby_that_may_lag_and_one_that_is_used_by_mistake(scene: Scene, standby: str) -> None:
    found = scene.bad()
    assert set(found) == {"durability"}
    assert "1 standby may lag" in found["durability"][0]["found"]
    scene.paste(found["durability"][0]["remedy"])
    wait_for(lambda: scene.bad() == {})
    scene.use(scene.agents_dsn(host=standby))
    wait_for(lambda: set(scene.bad()) == {"writes"})
    (check,) = scene.bad()["writes"]
    assert "this server is a standby" in check["found"]
    assert "list all hosts in the address and add target_session_attrs=read-write" in check["remedy"]
    primary = str(conninfo_to_dict(scene.administrator)["host"])
    scene.use(scene.agents_dsn(host=f"{standby},{primary}", target_session_attrs="read-write"))
    assert scene.bad() == {}
