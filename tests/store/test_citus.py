"""The statements of the store on a Citus cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import citus
import not_on_citus
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from servers import Server

from hermes_memory_pgvector.errors import SchemaNotApplied
from hermes_memory_pgvector.model import Add, Event, Remove, Replace
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import diagnosis, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.connection.distributed import ON_CLUSTER, REFUSED_ON_CLUSTER, noted
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import TAGGED
from hermes_memory_pgvector.store.schema import rights
from hermes_memory_pgvector.store.schema.distribution import DISTRIBUTED, EVERYWHERE, distribute
from hermes_memory_pgvector.store.schema.migrations import migrate, migration_files

pytestmark = not_on_citus.two_servers

Connection = psycopg.Connection[tuple[Any, ...]]

# What Citus does not plan: see docs/scale.md.
REFUSED = {name: set(citus.VARIANTS) for name in REFUSED_ON_CLUSTER}
# Statements that one node answers, with as many commands as it takes.
ONE_NODE = {
    "add_turns": 5, "add_entry": 2, "add_tombstone": 0, "delete_entry": 1, "log_event": 1, "withdraw_turn": 1,
    "list_entries": 1, "list_sessions": 1, "add_fact": 1, "add_delegation": 3, "count_answers": 1, "find_erasures": 0,
    **{f"{name}_{kind}": 1 for kind in ("entries", "turns", "facts") for name in (
        "fetch", "relate", "scan", "embed", "word", "add_pieces", "coded_vectors")},
    **{f"nearest_{kind}_exact": 1 for kind in ("entries", "turns", "facts")},
    **{f"nearest_pieces_{kind}_exact": 1 for kind in ("entries", "turns", "facts")},
    **{f"word_candidates_{kind}{ON_CLUSTER}": 1 for kind in ("entries", "turns", "facts")},
    "around_turns": 1,
    **{f"{name}{ON_CLUSTER}": 1 for name in ("find_entry", "entries_of_file", "detach_entry")},
    "entries_containing": 1, "delete_entry_of_home": 1, "delete_entry_of_other_themes": 1,
}  # fmt: skip


def test_a_database_without_citus_is_refused_with_what_to_do(database: str) -> None:
    with pytest.raises(SchemaNotApplied, match="has no Citus; on each node install it"):
        distribute(database, lambda _line: None)


@pytest.fixture(scope="module")
def coordinator() -> Iterator[str]:
    """The coordinator of a cluster."""
    try:
        with citus.cluster() as found:
            yield found
    except citus.NoCluster as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def distributed(coordinator: str) -> Iterator[str]:
    """A distributed database with a row of each kind."""
    with citus.database(coordinator) as dsn:
        migrate(dsn, dimensions=384)
        assert set(distribute(dsn, lambda _line: None)) > set(DISTRIBUTED)
        assert distribute(dsn, lambda _line: None) == []
        yield dsn


@pytest.fixture(scope="module")
def nodes(distributed: str) -> Iterator[Connection]:
    """A connection to it that reports each command to a node."""
    with psycopg.connect(distributed, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("set citus.log_remote_commands = on")
        connection.execute("set client_min_messages = notice")
        yield connection


@pytest.fixture(scope="module")
def types(server: Server) -> Iterator[Connection]:
    """A connection to the same schema without Citus."""
    with psycopg.connect(server.dsn_of(server.template(384)), autocommit=True) as connection:
        yield connection


def form_on_cluster(name: str) -> bool:
    """Whether a cluster runs this form of a statement."""
    plain = name.removesuffix(TAGGED)
    return plain.endswith(ON_CLUSTER) or f"{plain}{ON_CLUSTER}" not in citus.STATEMENTS


def questions(types: Connection, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The values with which a statement is tried, by their name."""
    values = citus.parameters(types, name)
    for variant, others in citus.VARIANTS.items():
        changed = {key: value for key, value in others.items() if key in values}
        # By key, a statement is asked for one theme at a time.
        by_key = "theme" in values and (
            "ids" in values or "sample" in values or "scan" in name or "word_candidates" in name
        )
        unlimited = variant == "all themes" and "%(themes)s::text[] is null" not in citus.STATEMENTS[name]
        if (not others or changed) and not ("themes" in changed and (by_key or unlimited)):
            yield variant, values | changed


def test_each_statement_runs_on_a_cluster(nodes: Connection, types: Connection) -> None:
    wrong = [
        found
        for name in citus.STATEMENTS
        if form_on_cluster(name)
        for variant, values in questions(types, name)
        if (found := flaw(nodes, name, variant, values))
    ]
    assert not wrong, "\n".join(wrong)


def flaw(nodes: Connection, name: str, variant: str, values: dict[str, Any]) -> str:
    """Run a statement; returns what is wrong when it does not run, or on more nodes than it should."""
    refused = ""
    try:
        with sent(nodes) as commands, nodes.transaction(force_rollback=True):
            nodes.execute(citus.STATEMENTS[name].encode(), values)
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.InternalError_, psycopg.errors.SyntaxError) as error:
        refused = str(error)
    except psycopg.errors.IntegrityError:
        pass  # the values of the test may be refused, as by another server
    if bool(refused) != (variant in REFUSED.get(name, ())):
        return f"{name}, {variant}: {refused or 'it runs'}"
    if name in ONE_NODE and variant == "one theme":
        servers = {where for where, _ in commands}
        if len(servers) > 1 or len(commands) > ONE_NODE[name]:
            return f"{name}: {len(commands)} commands to {len(servers)} nodes: {commands}"
    return ""


_COMMAND = re.compile(r"issuing\s+(with|select|insert|update|delete)\b", re.IGNORECASE)
_OF_CITUS = re.compile(r"assign_distributed_transaction_id|citus_internal|worker_", re.IGNORECASE)


@contextmanager
def sent(connection: psycopg.Connection[Any]) -> Iterator[list[tuple[str, str]]]:
    """The commands that are sent to nodes in the block, as (node, command)."""
    commands: list[tuple[str, str]] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        said, where = notice.message_primary or "", notice.message_detail or ""
        if _COMMAND.match(said) and not _OF_CITUS.search(said):
            commands.append((where.partition(" connectionId")[0], said))

    connection.add_notice_handler(note)
    yield commands
    connection.remove_notice_handler(note)


def test_a_change_of_an_entry_asks_the_nodes_of_the_themes_that_have_it(distributed: str, tmp_path: Path) -> None:
    themes, home = [f"theme-{place}" for place in range(30)], "f" * 32
    at = iter(datetime(2026, 1, 2, second=second % 60, minute=second // 60, tzinfo=UTC) for second in range(1000))

    def common(theme: str) -> dict[str, Any]:
        return {"theme": theme, "home": home, "at": next(at), "target": "memory"}

    database = Database(Settings(dsn=distributed), tmp_path)
    with database.connection(10) as connection:
        database.verify(connection)
        connection.execute("set citus.log_remote_commands = on")
        connection.execute("set client_min_messages = notice")

        def shards(event: Event) -> int:
            """How many shards of the entries a change asks."""
            with sent(connection) as commands, connection.transaction():
                assert rows.apply(connection, [prepare(event)]) == 1
            return len({shard for _, command in commands for shard in re.findall(r"memory_entries_(\d+)", command)})

        assert {shards(Add(**common(theme), content=f"note of {theme}")) for theme in themes} == {1}
        assert {shards(Add(**common(theme), content=f"file of {theme}", from_file=True)) for theme in themes} == {1}
        assert {
            shards(Replace(**common(theme), content=f"new of {theme}", previous=f"note of {theme}")) for theme in themes
        } == {1}
        assert {shards(Remove(**common(theme), previous=f"new of {theme}")) for theme in themes} == {1}
        gone = [shards(Remove(**common(theme), previous=f"file of {theme}", from_file=True)) for theme in themes[:10]]
        assert set(gone) == {1}
        # One that is stored in another theme: the shards of both.
        assert {shards(Remove(**common(themes[0]), previous=f"file of {theme}")) for theme in themes[10:]} <= {1, 2}
        # An entry with its note, and a removal with its tombstone: stored on node and coordinator, or on neither.
        told: list[str] = []
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for event in (
            Add(**common(themes[0]), content="noted"),
            Replace(**common(themes[0]), content="noted again", previous="noted"),
            Remove(**common(themes[0]), previous="noted again"),
            Remove(**common(themes[1]), previous="never there"),
        ):
            told.clear()
            assert shards(event) <= 1
            assert any("PREPARE TRANSACTION" in command for command in told), event
        left = connection.execute("select count(*) as left from memory_entries where home = %s", [home]).fetchone()
        noted = connection.execute("select count(*) as left from memory_entry_homes where home = %s", [home]).fetchone()
        assert left == noted == {"left": 0}
    database.close()


def test_a_memory_is_distributed_with_its_rows_and_upgraded_afterwards(coordinator: str, tmp_path: Path) -> None:
    package = migration_files()
    for migration in package:
        (tmp_path / f"{migration.name}.sql").write_text(migration.text)
    with citus.database(coordinator) as dsn:
        migrate(dsn, dimensions=384)
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "insert into memory_entries (agent_identity, target, content, embedding)"
                " select 'theme-' || n %% 7, 'memory', 'entry ' || n, %s::halfvec from generate_series(1, 50) as n",
                [citus.VECTOR],
            )
            connection.execute(
                "insert into memory_entry_pieces select agent_identity, id, 0, embedding from memory_entries"
            )
            rows = "select agent_identity, id, content, embedding::text from memory_entries order by id"
            before = connection.execute(rows).fetchall()
        distribute(dsn, lambda _line: None)
        number, name = len(package) + 1, f"{len(package) + 1:03}_later"
        (tmp_path / f"{name}.sql").write_text(
            "BEGIN;\n-- A column; and an index.\nALTER TABLE memory_entries ADD COLUMN later text DEFAULT 'a;b';\n"
            "CREATE INDEX memory_entries_later ON memory_entries (agent_identity, later);\n"
            "CREATE OR REPLACE FUNCTION forget_memory_trial(theme text, trial text) RETURNS SETOF bigint\n"
            "LANGUAGE sql SECURITY DEFINER\n"
            "AS $$ DELETE FROM memory_history WHERE agent_identity = $1 AND content = $2 RETURNING id $$;\n"
            "ALTER FUNCTION forget_memory_trial SET search_path = public, pg_temp;\n"
            f"INSERT INTO hermes_pgvector_migrations (version, name) VALUES ({number}, '{name}');\n"
            "COMMIT;\n"
        )
        assert migrate(dsn, folder=tmp_path) == [name]
        assert distribute(dsn, lambda _line: None) == []
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert connection.execute(rows).fetchall() == before
            assert connection.execute("select count(*) from memory_entries where later = 'a;b'").fetchone() == (50,)
            connection.execute(
                "select isolate_tenant_to_new_shard('conversations', 'theme-1', 'CASCADE',"
                " shard_transfer_mode => 'block_writes')"
            )
            deleted = connection.execute("delete from memory_entries where agent_identity = 'theme-1' returning id")
            assert connection.execute("select count(*) from memory_entry_pieces").fetchone() == (50 - deleted.rowcount,)
            connection.execute("select forget_memory_trial('theme-1', 'entry 1')")
            assert connection.execute("select count(*) from memory_history").fetchone() == (deleted.rowcount - 1,)


def test_a_distribution_that_was_interrupted_leaves_rows_on_their_nodes_only(coordinator: str) -> None:
    def interrupt(line: str) -> None:
        if EVERYWHERE in line:
            raise KeyboardInterrupt

    with citus.database(coordinator) as dsn:
        migrate(dsn, dimensions=384)
        with psycopg.connect(dsn) as connection:
            connection.execute("insert into conversations (agent_identity, role, content) values ('ops', 'user', 'a')")
        with pytest.raises(KeyboardInterrupt):
            distribute(dsn, interrupt)
        assert distribute(dsn, lambda _line: None) == [EVERYWHERE]
        with psycopg.connect(dsn) as connection:
            on_coordinator = connection.execute(
                "select name from unnest(%s::text[]) as name where pg_relation_size(name::regclass) > 0",
                [[*DISTRIBUTED, EVERYWHERE]],
            ).fetchall()
            assert connection.execute("select content from conversations").fetchall() == [("a",)]
        assert on_coordinator == []


def test_the_role_of_agents_needs_no_more_rights_on_a_cluster(distributed: str, tmp_path: Path) -> None:
    role = f"agent_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(distributed, autocommit=True) as owner:
        owner.execute(f"create role {role} login".encode())
        try:
            migrate(distributed, runtime_role=role)
            database = Database(Settings(dsn=make_conninfo(distributed, user=role)), tmp_path)
            with database.connection(10) as verified:
                assert database.verify(verified).distributed
                assert diagnosis.failing_statements(verified) == {}
                for prune in (upkeep.prune_events, upkeep.prune_history, upkeep.prune_facts):
                    prune(verified, 1)
                upkeep.prune_expired(verified)
            database.close()
            with psycopg.connect(make_conninfo(distributed, user=role), prepare_threshold=None) as connection:
                assert not rights.held(connection).missing
                connection.execute(
                    "insert into memory_entries (agent_identity, target, content) values ('ops', 'memory', 'a')"
                )
                told = {"how": "replaced", "session_id": "s", "gone_at": f"{citus.NOW}", "replaced_by": "b'\nc"}
                with noted(connection, told):
                    connection.execute("delete from memory_entries where agent_identity = 'ops'")
                past = connection.execute(
                    "select how, session_id, gone_at, replaced_by from memory_history where agent_identity = 'ops'"
                ).fetchall()
                assert past == [("replaced", "s", citus.NOW, "b'\nc")]
                connection.rollback()
        finally:
            owner.execute(f"drop owned by {role}; drop role {role}".encode())
