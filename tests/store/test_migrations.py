"""The migrations on a real Postgres: the same by psql and by `migrate`, safe when many run at once."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from manuals import blocks
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hermes_memory_pgvector.errors import DatabaseUnavailable, SchemaNotApplied, SettingsError
from hermes_memory_pgvector.store.probe import probe
from hermes_memory_pgvector.store.schema import migrations, verification

pytestmark = pytest.mark.each_version

FOLDER = Path(migrations.__file__).resolve().parents[3] / "migrations"
FILES = sorted(FOLDER.glob("*.sql"))


def rows(dsn: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement, parameters or None).fetchall()


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def psql(server: Any, dsn: str, file: Path, dimensions: int | None = None) -> None:
    if server.bin is None:
        pytest.skip("psql of the tested server is not at hand")
    options = f"-c hermes_pgvector.dimensions={dimensions}" if dimensions else ""
    subprocess.run(
        [server.bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", file],
        check=True, capture_output=True, text=True, timeout=60, env={**os.environ, "PGOPTIONS": options},
    )  # fmt: skip


def structure(server: Any, dsn: str) -> str:
    if server.bin is None:
        pytest.skip("pg_dump of the tested server is not at hand")
    dumped = subprocess.run(
        [server.bin / "pg_dump", "-s", "-d", dsn], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    # Newer releases frame a dump with a random word.
    return "\n".join(line for line in dumped.splitlines() if not line.startswith(("\\restrict", "\\unrestrict")))


@pytest.fixture(scope="module")
def role(server: Any) -> Iterator[Callable[..., str]]:
    """Create login roles. They can only be dropped after the databases of the tests, hence the wider scope."""
    made: list[str] = []

    def make(*options: str) -> str:
        made.append(f"hermes_test_{uuid.uuid4().hex[:12]}")
        run(server.dsn, f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'for-tests' {' '.join(options)}")
        return made[-1]

    yield make
    for name in made:
        run(server.dsn, f"DROP ROLE {name}")


def as_role(dsn: str, name: str) -> str:
    return make_conninfo(dsn, user=name, password="for-tests")


# --- what is applied


def test_the_constant_for_bare_copies_is_the_version_of_the_newest_file() -> None:
    versions = [migration.version for migration in migrations.migration_files()]
    assert versions == list(range(1, verification.LATEST + 1))


def test_migrate_applies_every_file_once_and_verify_reports_the_state(empty_database: str) -> None:
    assert migrations.migrate(empty_database, dimensions=384) == [file.stem for file in FILES]
    assert migrations.migrate(empty_database, dimensions=384) == []
    run(empty_database, "INSERT INTO hermes_pgvector_settings VALUES ('embedding_model', 'some-model')")
    with psycopg.connect(empty_database) as connection:
        assert verification.verify(connection) == verification.SchemaState(384, "some-model", verification.LATEST)
        assert migrations.pending(connection) == []


def test_vectors_have_768_numbers_by_default(empty_database: str) -> None:
    migrations.migrate(empty_database)
    with psycopg.connect(empty_database) as connection:
        assert verification.verify(connection) == verification.SchemaState(768, None, verification.LATEST)


def test_a_dsn_may_be_a_url(server: Any, empty_database: str) -> None:
    parts = conninfo_to_dict(empty_database)
    url = f"postgresql:///{parts.pop('dbname')}?" + "&".join(f"{key}={value}" for key, value in parts.items())
    assert migrations.migrate(url)


@pytest.mark.parametrize("dimensions", [None, 768, 384])
def test_psql_and_migrate_give_the_same_schema_and_ledger(
    server: Any, make_database: Callable[..., str], dimensions: int | None
) -> None:
    by_psql, by_migrate = make_database(dimensions=None), make_database(dimensions=None)
    for file in FILES:
        psql(server, by_psql, file, dimensions)
    migrations.migrate(by_migrate, dimensions=dimensions)
    assert structure(server, by_psql) == structure(server, by_migrate)

    ledger = "SELECT version, name, checksum FROM hermes_pgvector_migrations ORDER BY version"
    assert {checksum for _, _, checksum in rows(by_psql, ledger)} == {None}
    assert migrations.migrate(by_psql) == []
    assert rows(by_psql, ledger) == rows(by_migrate, ledger)


def test_migrate_goes_on_where_psql_stopped(server: Any, empty_database: str) -> None:
    psql(server, empty_database, FILES[0])
    with psycopg.connect(empty_database) as connection:
        assert migrations.pending(connection) == [file.stem for file in FILES[1:]]
    assert migrations.migrate(empty_database) == [file.stem for file in FILES[1:]]


def test_a_second_run_of_a_file_by_psql_fails_and_changes_nothing(server: Any, database: str) -> None:
    run(database, "INSERT INTO conversations (role, content) VALUES ('user', 'kept')")
    before = structure(server, database)
    for file in FILES:
        with pytest.raises(subprocess.CalledProcessError):
            psql(server, database, file)
    assert structure(server, database) == before
    assert rows(database, "SELECT content FROM conversations") == [("kept",)]


@pytest.mark.parametrize("applied", [1, 8, len(FILES)])
def test_the_manual_upgrades_a_database_by_psql(
    server: Any, make_database: Callable[..., str], applied: int, tmp_path: Path
) -> None:
    upgraded, fresh = make_database(dimensions=None), make_database(dimensions=384)
    for file in FILES[:applied]:
        psql(server, upgraded, file, 384)
    (commands,) = (block for block in blocks("docs/schema.md", "sh") if "SELECT max(name)" in block)
    typed = commands.replace("postgresql://admin@db.example/memory", shlex.quote(upgraded))
    path, options = f"{server.bin}:{os.environ['PATH']}", "-c hermes_pgvector.dimensions=384"
    environment = {**os.environ, "PATH": path, "PGOPTIONS": options}
    subprocess.run(["sh", "-c", typed], check=True, cwd=FOLDER.parent, timeout=120, env=environment)
    assert migrations.migrate(upgraded) == []
    assert structure(server, upgraded) == structure(server, fresh)


@pytest.mark.parametrize("dimensions", [0, 4001, -1])
def test_impossible_dimensions_are_refused_before_anything_is_done(empty_database: str, dimensions: int) -> None:
    with pytest.raises(SettingsError, match=str(dimensions)):
        migrations.migrate(empty_database, dimensions=dimensions)
    assert rows(empty_database, "SELECT to_regclass('hermes_pgvector_migrations')") == [(None,)]


@pytest.mark.parametrize("dimensions", [1, 3072, 4000])
def test_rows_with_the_longest_vectors_fit(make_database: Callable[..., str], dimensions: int) -> None:
    dsn = make_database(dimensions=None)
    migrations.migrate(dsn, dimensions=dimensions)
    text = " ".join(uuid.uuid4().hex for _ in range(3000))
    run(
        dsn,
        "INSERT INTO conversations (role, content, session_id, embedding, search) "
        f"SELECT 'user', '{text}', repeat('s', 200), array_fill(0.5, ARRAY[{dimensions}])::vector, "
        f"to_tsvector('{text}')",
    )
    assert rows(dsn, "SELECT vector_dims(embedding) FROM conversations") == [(dimensions,)]


def test_the_vectors_of_real_rows_stay_out_of_toast(make_database: Callable[..., str]) -> None:
    dsn = make_database(dimensions=768)
    columns = rows(
        dsn,
        "SELECT attrelid::regclass::text, attstorage FROM pg_attribute WHERE attname = 'embedding' "
        "AND attrelid IN ('conversations'::regclass, 'memory_entries'::regclass)",
    )
    assert {storage for _, storage in columns} == {"p"}


def test_everything_lands_in_the_first_schema_of_the_search_path(empty_database: str) -> None:
    database = conninfo_to_dict(empty_database)["dbname"]
    run(empty_database, "CREATE SCHEMA memory", f"ALTER DATABASE {database} SET search_path = memory, public")
    migrations.migrate(empty_database)
    assert rows(empty_database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    with psycopg.connect(empty_database) as connection:
        assert verification.verify(connection).dimensions == 768


# --- many at once, edited files, concurrent builds


def test_eight_migrations_at_once_apply_every_file_once(empty_database: str) -> None:
    program = (
        "import sys; from hermes_memory_pgvector.store.schema import migrations; print(migrations.migrate(sys.argv[1]))"
    )
    running = [
        subprocess.Popen([sys.executable, "-P", "-c", program, empty_database], text=True, cwd="/",
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]  # fmt: skip
    results = [(*process.communicate(timeout=120), process.returncode) for process in running]
    assert [code for _, _, code in results] == [0] * 8, results
    assert sorted(out.strip() for out, _, _ in results) == sorted([str([file.stem for file in FILES])] + ["[]"] * 7)


def test_waiting_for_another_migration_is_bounded(empty_database: str) -> None:
    said: list[str] = []
    with psycopg.connect(empty_database, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [migrations.ADVISORY_LOCK])
        with pytest.raises(DatabaseUnavailable, match="another migration"):
            migrations.migrate(empty_database, lock_wait_s=0.3, progress=said.append)
    assert said == ["waiting for another migration of this database"]
    assert migrations.migrate(empty_database)


@pytest.fixture
def copied_files(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_an_edited_file_is_refused_by_name(empty_database: str, copied_files: Path) -> None:
    migrations.migrate(empty_database, folder=copied_files)
    with (copied_files / FILES[1].name).open("a") as file:
        file.write("\n-- an afterthought\n")
    with pytest.raises(SchemaNotApplied, match=FILES[1].name):
        migrations.migrate(empty_database, folder=copied_files)


def test_other_line_ends_are_not_an_edit(empty_database: str, copied_files: Path) -> None:
    migrations.migrate(empty_database, folder=copied_files)
    for file in FILES:
        (copied_files / file.name).write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert migrations.migrate(empty_database, folder=copied_files) == []


def test_each_file_is_one_transaction() -> None:
    for migration in migrations.migration_files():
        assert (migration.statements[0], migration.statements[-1]) == ("BEGIN;", "COMMIT;"), migration.name


def test_a_failing_file_changes_nothing_and_its_error_names_it(empty_database: str, copied_files: Path) -> None:
    bad = f"{verification.LATEST + 1:03}_bad"
    text = "BEGIN; CREATE TABLE half_done (id int); SELECT no_such_function(); COMMIT;"
    (copied_files / f"{bad}.sql").write_text(text)
    with pytest.raises(SchemaNotApplied, match=f"{bad}.*no_such_function"):
        migrations.migrate(empty_database, folder=copied_files)
    assert rows(empty_database, "SELECT to_regclass('half_done'), to_regclass('conversations') IS NOT NULL") == [
        (None, True)
    ]


def test_a_concurrent_build_replaces_an_invalid_left_over(server: Any, empty_database: str, copied_files: Path) -> None:
    migrations.migrate(empty_database, folder=copied_files)
    version, name = verification.LATEST + 1, f"{verification.LATEST + 1:03}_by_role"
    run(empty_database, "INSERT INTO conversations (role, content) VALUES ('user', 'a'), ('user', 'b')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(empty_database, "CREATE UNIQUE INDEX CONCURRENTLY conversations_by_role ON conversations (role)")
    file = copied_files / f"{name}.sql"
    file.write_text(
        "-- Built while agents run; see CONCURRENTLY in the manual.\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS conversations_by_role ON conversations (role);\n"
        f"INSERT INTO hermes_pgvector_migrations (version, name) VALUES ({version}, '{name}');\n"
    )
    assert migrations.migrate(empty_database, folder=copied_files) == [name]
    valid = "SELECT indisvalid, indisunique FROM pg_index WHERE indexrelid = 'conversations_by_role'::regclass"
    assert rows(empty_database, valid) == [(True, False)]
    assert rows(
        empty_database, "SELECT checksum IS NOT NULL FROM hermes_pgvector_migrations WHERE version = %s", version
    )


# --- roles


def test_a_runtime_role_can_use_every_table_and_create_none(empty_database: str, role: Callable[..., str]) -> None:
    name = role()
    migrations.migrate(empty_database, runtime_role=name, dimensions=3)
    dsn = as_role(empty_database, name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert verification.verify(connection).dimensions == 3
        connection.execute("INSERT INTO memory_entries (target, content) VALUES ('user', 'x')")
        connection.execute("INSERT INTO conversations (role, content, embedding) VALUES ('user', 'x', '[1,2,3]')")
        connection.execute("INSERT INTO facts (kind, target, content, embedding) VALUES ('C', 'x', 'y', '[1,2,3]')")
        for pieces, whole in (
            ("memory_entry_pieces", "memory_entries"),
            ("conversation_pieces", "conversations"),
            ("fact_pieces", "facts"),
        ):
            connection.execute(
                sql.SQL("INSERT INTO {} SELECT 'default', id, 0, '[1,2,3]' FROM {}").format(
                    sql.Identifier(pieces), sql.Identifier(whole)
                )
            )
        connection.execute("INSERT INTO memory_events VALUES ('default', gen_random_uuid())")
        connection.execute("INSERT INTO memory_tombstones VALUES ('default', 'h', 'user', content_key('x'), now())")
        connection.execute(
            "INSERT INTO memory_withdrawals VALUES ('default', 's', 'user', content_key('x'), now(), 0, '{s}')"
        )
        connection.execute("INSERT INTO memory_agents (agent_identity) VALUES ('default')")
        connection.execute("INSERT INTO memory_agent_edges (agent_identity) VALUES ('default')")
        connection.execute("INSERT INTO memory_words VALUES ('default', 'turns', 'x', 1)")
        connection.execute("INSERT INTO memory_person_links VALUES ('default', 'dm-person-0123456789abcdef')")
        connection.execute("INSERT INTO memory_erasures VALUES ('default', content_key('x'), 'theme')")
        connection.execute("INSERT INTO memory_pruned_turns VALUES ('default', 's', content_key('x'), 1)")
        connection.execute("INSERT INTO memory_renames VALUES ('old', 'new')")
        connection.execute("INSERT INTO fact_scopes VALUES ('default', 'roof')")
        connection.execute("INSERT INTO hermes_pgvector_leases VALUES ('a', 'b', now())")
        narrow = ("memory_history", "hermes_pgvector_settings")
        for table in (sql.Identifier(name) for name in verification.TABLES if name not in narrow):
            column = "name" if "hermes" in table.as_string() else "agent_identity"
            update = sql.SQL("UPDATE {} SET {c} = {c} RETURNING 1").format(table, c=sql.Identifier(column))
            assert connection.execute(update).fetchall() == [(1,)]
            assert connection.execute(sql.SQL("DELETE FROM {} RETURNING 1").format(table)).fetchall() == [(1,)]
        for forbidden in (
            "CREATE TABLE mine (id int)",
            "DROP TABLE conversations",
            "DELETE FROM hermes_pgvector_migrations",
            "DELETE FROM memory_history",
            "UPDATE memory_history SET content = ''",
            "TRUNCATE memory_history",
            "INSERT INTO hermes_pgvector_settings VALUES ('a', 'b')",
            "UPDATE hermes_pgvector_settings SET value = 'mine'",
            "DELETE FROM hermes_pgvector_settings",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden)


def test_a_role_that_may_insert_entries_and_no_more_can_insert_them(
    empty_database: str, role: Callable[..., str]
) -> None:
    name = role()
    migrations.migrate(empty_database)
    run(empty_database, f"GRANT INSERT ON memory_entries TO {name}")
    run(as_role(empty_database, name), "INSERT INTO memory_entries (target, content) VALUES ('user', 'x')")
    assert rows(empty_database, "SELECT content FROM memory_entries") == [("x",)]


def test_a_runtime_role_that_does_not_exist_is_named(empty_database: str) -> None:
    with pytest.raises(SettingsError, match="nobody_here"):
        migrations.migrate(empty_database, runtime_role="nobody_here")


@not_on_citus.bare_database
def test_the_error_for_an_admin_without_superuser_names_what_to_ask_for(
    empty_database: str, role: Callable[..., str]
) -> None:
    name = role()
    with pytest.raises(SchemaNotApplied, match="GRANT CREATE ON SCHEMA public TO ADMIN") as refused:
        migrations.migrate(as_role(empty_database, name))
    told = str(refused.value)
    assert told.index("run as an administrator: hermes-pgvector migrate --dsn") < told.index("GRANT")
    run(empty_database, f"GRANT CREATE, USAGE ON SCHEMA public TO {name}")
    with pytest.raises(SchemaNotApplied, match="CREATE EXTENSION vector"):
        migrations.migrate(as_role(empty_database, name))
    run(empty_database, "CREATE EXTENSION vector")
    assert migrations.migrate(as_role(empty_database, name)) == [file.stem for file in FILES]


@not_on_citus.bare_database
def test_an_old_pgvector_is_refused_with_the_remedy(empty_database: str) -> None:
    try:
        run(empty_database, "CREATE EXTENSION vector VERSION '0.7.4'")
    except psycopg.Error:
        run(
            empty_database,
            "CREATE EXTENSION vector",
            "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'",
        )
    with pytest.raises(SchemaNotApplied, match=r"0\.7\.4.*ALTER EXTENSION vector UPDATE"):
        migrations.migrate(empty_database)


def test_an_upgrade_is_not_made_beside_the_tables(empty_database: str, copied_files: Path) -> None:
    """A schema with the name of the administrator, which Postgres looks into first, may have come since."""
    last = sorted(copied_files.iterdir())[-1]
    last.unlink()
    migrations.migrate(empty_database, folder=copied_files)
    user = conninfo_to_dict(empty_database)["user"]
    run(empty_database, f'CREATE SCHEMA "{user}"')
    with pytest.raises(SchemaNotApplied, match="the memory is in schema public, but") as refused:
        migrations.migrate(empty_database)
    remedy = re.search(r"ALTER ROLE [^;]+", str(refused.value))
    assert remedy
    run(empty_database, remedy[0])
    assert migrations.migrate(empty_database) == [last.stem]
    made = "SELECT DISTINCT pronamespace::regnamespace::text FROM pg_proc WHERE proname ~ '^(prune_)?memory_'"
    assert rows(empty_database, made) == [("public",)]


@not_on_citus.bare_database
def test_an_extension_outside_the_search_path_is_named(empty_database: str) -> None:
    run(empty_database, "CREATE SCHEMA extensions", "CREATE EXTENSION vector SCHEMA extensions")
    with pytest.raises(SchemaNotApplied, match="search_path = public, extensions"):
        migrations.migrate(empty_database)
    database = conninfo_to_dict(empty_database)["dbname"]
    run(empty_database, f"ALTER DATABASE {database} SET search_path = public, extensions")
    assert migrations.migrate(empty_database)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE facts (mine int)",
        "CREATE TABLE conversations (id int, title text)",
        "CREATE VIEW memory_history AS SELECT 1 AS mine",
    ],
)
def test_nothing_is_made_beside_tables_of_somebody_else_with_our_names(empty_database: str, made: str) -> None:
    run(empty_database, made)
    _, kind, name, *_ = made.split()
    for refused in (migrations.migrate, lambda dsn: probe(dsn, 3)):
        with pytest.raises(SettingsError, match=rf"schema 'public' .*another project .*: {name}; use a"):
            refused(empty_database)
    assert rows(empty_database, "SELECT to_regclass('hermes_pgvector_migrations')") == [(None,)]
    run(empty_database, f"DROP {kind} {name}")
    assert migrations.migrate(empty_database) == [file.stem for file in FILES]


def test_an_upgrade_is_refused_before_a_table_of_somebody_else_stops_it(
    empty_database: str, copied_files: Path
) -> None:
    for file in sorted(copied_files.iterdir())[9:]:
        file.unlink()
    migrations.migrate(empty_database, folder=copied_files)
    run(empty_database, "CREATE TABLE facts (mine int)")
    with pytest.raises(SettingsError, match=r"another project .*: facts;"):
        migrations.migrate(empty_database)
    assert rows(empty_database, "SELECT max(version) FROM hermes_pgvector_migrations") == [(9,)]


@not_on_citus.bare_database
def test_the_manual_lists_everything_that_migrate_makes(empty_database: str) -> None:
    ours = """
        SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT proname FROM pg_proc AS p WHERE pronamespace = 'public'::regnamespace
           AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = p.oid AND deptype = 'e')"""
    migrations.migrate(empty_database)
    assert rows(empty_database, ours)
    run(empty_database, *from_the_manual("DROP"))
    assert rows(empty_database, ours) == []


def from_the_manual(word: str) -> list[str]:
    """The statements of the one block of SQL in docs/operations.md that has this word."""
    manual = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    (block,) = (found for found in re.findall(r"^```sql\n(.*?)^```", manual, re.DOTALL | re.MULTILINE) if word in found)
    return block.split(";")[:-1]


def test_the_manual_takes_all_vectors_away_and_nothing_else(database: str) -> None:
    vector = "array_fill(0.1, array[384])::vector::halfvec"
    run(
        database,
        "insert into memory_entries (agent_identity, target, content, embedding) "
        f"values ('ops', 'memory', 'a', {vector})",
        "insert into conversations (agent_identity, session_id, role, content, embedding) "
        f"values ('ops', 's', 'user', 'b', {vector})",
        f"insert into conversation_pieces select agent_identity, id, 0, {vector} from conversations",
        f"insert into facts (agent_identity, kind, target, content, embedding) values ('ops', 'C', 'c', 'd', {vector})",
        f"insert into fact_pieces select agent_identity, id, 0, {vector} from facts",
        "insert into hermes_pgvector_settings (name, value) values ('embedding_model', 'old')",
    )
    run(database, *from_the_manual("SET embedding = NULL"))
    for table in ("memory_entries", "conversations", "facts"):
        assert rows(database, f"select count(*) from {table} where embedding is null") == [(1,)]
    for table in ("conversation_pieces", "fact_pieces"):
        assert rows(database, f"select count(*) from {table}") == [(0,)]
    assert rows(database, "select count(*) from hermes_pgvector_settings where name = 'embedding_model'") == [(0,)]
    assert rows(database, "select count(*) from memory_history") == [(0,)]


# --- verify and its errors


def test_verify_of_an_empty_database_names_the_command(empty_database: str) -> None:
    with (
        psycopg.connect(empty_database, autocommit=True) as connection,
        pytest.raises(SchemaNotApplied, match=r"hermes-pgvector migrate --dsn .* --runtime-role "),
    ):
        verification.verify(connection)


def test_verify_names_the_migrations_that_an_older_schema_lacks(database: str) -> None:
    run(database, f"DELETE FROM hermes_pgvector_migrations WHERE version = {verification.LATEST}")
    with (
        psycopg.connect(database) as connection,
        pytest.raises(SchemaNotApplied, match=rf"lacks \[{verification.LATEST}\].*migrate --dsn .* --runtime-role"),
    ):
        verification.verify(connection)


def test_verify_accepts_a_newer_schema(database: str) -> None:
    run(database, f"INSERT INTO hermes_pgvector_migrations VALUES ({verification.LATEST + 1}, 'of_tomorrow')")
    with psycopg.connect(database) as connection:
        assert verification.verify(connection).version == verification.LATEST + 1
        assert migrations.pending(connection) == []


def test_verify_names_the_command_that_grants_a_role_its_rights(database: str, role: Callable[..., str]) -> None:
    name = role()
    with (
        psycopg.connect(as_role(database, name)) as connection,
        pytest.raises(SchemaNotApplied, match=f"--runtime-role {name}"),
    ):
        verification.verify(connection)


def test_no_error_shows_a_password() -> None:
    for dsn in ("postgresql://u:s3cret@127.0.0.1:1/db", "host=127.0.0.1 port=1 password=s3cret", "s3cret"):
        with pytest.raises((DatabaseUnavailable, SettingsError)) as caught:
            migrations.migrate(dsn)
        assert "s3cret" not in str(caught.value)


def test_a_bare_copy_of_the_package_says_where_the_files_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, database: str
) -> None:
    monkeypatch.setattr(migrations, "__file__", str(tmp_path / "pgvector" / "store" / "schema" / "migrations.py"))
    assert migrations.migrate(database) == []  # the files of the package that is installed here
    monkeypatch.setattr(migrations, "LATEST", verification.LATEST + 1)
    with pytest.raises(SchemaNotApplied, match="pip install"):
        migrations.migrate(database)
    with psycopg.connect(database) as connection:
        assert verification.verify(connection).version == verification.LATEST
