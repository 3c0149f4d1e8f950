"""`backup` and `restore` on a real embedded server."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector

from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.store.embedded import dump as store_dump
from hermes_memory_pgvector.store.embedded import identity
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available

pytestmark = pytest.mark.skipif(not available(), reason="the extra [embedded] is not installed")


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServer]:
    """The server of a home, in a folder that every account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="hpb", dir="/tmp"))
    folder.chmod(0o755)
    monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(folder / "server"))
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_DIMENSIONS", "384")
    server = EmbeddedServer(tmp_path, str(folder / "server"))
    yield server
    with contextlib.suppress(DatabaseUnavailable):
        server.stop(mode="immediate")
    shutil.rmtree(folder)


def test_a_backup_brings_back_what_was_there(embedded: EmbeddedServer, tmp_path: Path) -> None:
    def run(*arguments: str) -> Outcome:
        return hermes_pgvector("--home", str(tmp_path), *arguments)

    def remember(text: str) -> None:
        with psycopg.connect(embedded.dsn) as connection:
            connection.execute("insert into memory_entries (target, content) values ('memory', %s)", (text,))

    def entries() -> list[str]:
        with psycopg.connect(embedded.dsn) as connection:
            rows = connection.execute("select content from memory_entries order by id").fetchall()
        return [content for (content,) in rows]

    assert "no memory yet" in run("backup", str(tmp_path / "none.dump")).err
    assert run("server", "start").code == 0
    identity.note(tmp_path / "pgvector", embedded.paths.data)
    remember("before")
    dump = tmp_path / "memory.dump"
    assert run("backup", str(dump)).code == 0
    assert dump.stat().st_mode & 0o777 == 0o600
    assert "exists" in run("backup", str(dump)).err
    assert f"{tmp_path} is a folder; give the path of a file in it" in run("backup", str(tmp_path)).err
    nowhere = run("backup", str(tmp_path / "nowhere" / "memory.dump"))
    assert (nowhere.code, f"there is no folder {tmp_path / 'nowhere'}; make it, or" in nowhere.err) == (2, True)
    remember("after")

    damaged = tmp_path / "damaged.dump"
    for content in (b"no dump", dump.read_bytes()[: dump.stat().st_size * 2 // 3]):
        damaged.write_bytes(content)
        refused = run("restore", str(damaged), "--yes")
        assert (refused.code, "for: hermes-pgvector " in refused.err) == (1, True)
        assert entries() == ["before", "after"]

    # An agent that works, with an open transaction.
    with psycopg.connect(embedded.dsn) as agent:
        agent.execute("select from memory_entries for update")
        done = run("restore", str(dump), "--yes", "--json")
        assert done.code == 0, done.err
        with pytest.raises(psycopg.OperationalError):
            agent.execute("select 1")
    assert done.document["entries"] == 1
    assert entries() == ["before"]
    with psycopg.connect(embedded.dsn) as connection:
        names = connection.execute("select datname from pg_database where datname like 'hermes%'").fetchall()
    assert names == [("hermes",)]

    embedded.stop()
    shutil.rmtree(embedded.paths.state)
    assert run("restore", str(dump)).code == 0, "nothing is there that a question could be about"
    assert entries() == ["before"]
    assert identity.replaced(tmp_path / "pgvector", embedded.paths.data) == ""


def test_agents_can_use_what_was_restored_by_an_interrupted_command(
    embedded: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hermes_pgvector("--home", str(tmp_path), "server", "start").code == 0
    dump = tmp_path / "memory.dump"
    assert hermes_pgvector("--home", str(tmp_path), "backup", str(dump)).code == 0
    swap = store_dump._swap

    def interrupted(administrator: psycopg.Connection) -> None:
        swap(administrator)
        raise KeyboardInterrupt

    monkeypatch.setattr(store_dump, "_swap", interrupted)
    ended = hermes_pgvector("--home", str(tmp_path), "restore", str(dump), "--yes")
    assert (ended.code, "interrupted; the database is that of before, or already" in ended.err) == (130, True)
    with psycopg.connect(embedded.agent_dsn) as agent:
        assert agent.execute("select count(*) from memory_entries").fetchall() == [(0,)]
        assert agent.execute("select datname from pg_database where datname like 'hermes%'").fetchall() == [("hermes",)]


def test_a_restore_leaves_another_one_alone(embedded: EmbeddedServer, tmp_path: Path) -> None:
    assert hermes_pgvector("--home", str(tmp_path), "server", "start").code == 0
    dump = tmp_path / "memory.dump"
    assert hermes_pgvector("--home", str(tmp_path), "backup", str(dump)).code == 0
    seen: list[Outcome] = []

    def complete(_: str) -> None:
        seen.append(hermes_pgvector("--home", str(tmp_path), "restore", str(dump), "--yes"))

    store_dump.restore(embedded, dump, 60, complete)
    assert (seen[0].code, "another restore of this database is running" in seen[0].err) == (1, True), seen[0].shown


def test_a_backup_for_which_there_is_no_room_says_how_much_it_needs(
    embedded: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hermes_pgvector("--home", str(tmp_path), "server", "start").code == 0
    usage = shutil.disk_usage(tmp_path)._replace(free=3 << 20)
    monkeypatch.setattr(store_dump.shutil, "disk_usage", lambda _: usage)
    done = hermes_pgvector("--home", str(tmp_path), "backup", str(tmp_path / "memory.dump"))
    needed = embedded.status().size_bytes >> 20
    told = f"{tmp_path} has 3 MiB free and the dump may need {needed} MiB; free some space"
    assert (done.code, done.err) == (1, f"hermes-pgvector: {told}\n")


def test_a_database_of_another_server_is_left_to_its_own_tools(database: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_PGVECTOR_DSN", database)
        done = hermes_pgvector("--home", str(tmp_path), "backup", str(tmp_path / "x.dump"))
    assert done.code == 1
    assert "use pg_dump" in done.err
