"""What release 2.0.0 left on disk and in Postgres is used whole; `data/README.md` says how the files were made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder
from hermes_memory_pgvector.embedding.factory import bundled_available
from hermes_memory_pgvector.files import mark_name
from hermes_memory_pgvector.model import Add, RecallRequest, TurnTaken
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.schema.migrations import migrate, migration_files
from hermes_memory_pgvector.store.schema.verification import LATEST

DATA = Path(__file__).parent / "data"
ALICE = Identity(gateway_session_key="agent:main:whatsapp:dm:4917055512", platform="whatsapp", user_id="4917055512")
# What 2.0.0 calls Alice by the key in the home.
ALICE_THEME = "dm-whatsapp-170a52817341f012"
UNKNOWN_THEME, DAMAGED = "61be0298b9204fcd805dcaf90c1fb51c", "damaged-0123-1-0"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A copy of the home of 2.0.0, private as that release made it."""
    shutil.copytree(DATA / "home-2.0.0", tmp_path / "home")
    for path in (tmp_path / "home").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return tmp_path / "home"


def test_a_home_of_2_0_0_is_taken_over(home: Path, database: str) -> None:
    runtime = Runtime(Settings(dsn=database, embed_on_write=False, batch_linger_s=0, allowed_themes=["ops"]), home)
    try:
        assert len(list(runtime.home.spool.glob("[!.]*"))) == 2
        runtime.writer.wake()
        assert runtime.writer.flush(20, orphans=True)
        counters = runtime.writer.counters
        # Two turns and an entry of a closed process; a turn, a delegation and the end of a session of a killed one.
        assert (counters.adopted, counters.applied, counters.set_aside, counters.pending) == (7, 6, 1, 0)
        assert counters.balanced

        torn = [event_id for event_id in runtime.dead_letters.ids() if event_id not in (UNKNOWN_THEME, DAMAGED)]
        assert len(torn) == 1
        letter = runtime.dead_letters.find(UNKNOWN_THEME[:8])
        assert letter.reason == "the theme is not in allowed_themes"
        assert isinstance(letter.event, TurnTaken)
        assert (letter.event.theme, letter.event.user) == ("opps", "Which pump is broken?")
        damaged = runtime.dead_letters.read(DAMAGED)
        assert damaged is not None
        assert (damaged.reason, damaged.raw, damaged.event) == (
            "the record in the spool is damaged", "\x00torn\xff", None
        )  # fmt: skip

        assert mark_name("s-private") in runtime.context.off_record
        party = f"memory-{mark_name('The surprise party is on Friday.')}"
        assert [path.name for path in (runtime.home.state / "unrecorded").iterdir()] == [party]
        runtime.files.reconcile("ops", "s")
        assert runtime.writer.flush(10)
        assert runtime.home.id == (DATA / "home-2.0.0/pgvector/home_id").read_text()
        assert runtime.context.person_key.saved() == "5e" * 32
        assert runtime.context.theme(ALICE, None) == ALICE_THEME
    finally:
        runtime.close(5)
    assert list(runtime.home.spool.glob("[!.]*")) == []
    with psycopg.connect(database) as connection:
        turns = {row[0] for row in connection.execute("select content from conversations where role = 'user'")}
        entries = [row[0] for row in connection.execute("select content from memory_entries")]
    assert turns == {
        "Where are the tulip bulbs stored?",
        "Who feeds the carp?",
        "When does the ferry leave?",
        "What is for lunch?",
        "count the beehives",
    }
    assert entries == ["The greenhouse gate code is 4711."]


def test_a_database_of_2_0_0_is_used_as_it_is(
    tmp_path: Path, make_database: Callable[..., str], endpoint: Endpoint
) -> None:
    dsn = make_database(dimensions=None)
    endpoint.dimensions = 8
    for file in migration_files()[:8]:
        (tmp_path / f"{file.name}.sql").write_text(file.text, encoding="utf-8")
    migrate(dsn, dimensions=8, folder=tmp_path)
    with psycopg.connect(dsn) as connection:
        ours = connection.execute(
            "select version, name, checksum from hermes_pgvector_migrations order by 1"
        ).fetchall()
        connection.execute("set session_replication_role = replica")
        connection.execute("truncate hermes_pgvector_migrations, hermes_pgvector_settings")
        connection.execute((DATA / "database-2.0.0.sql").read_text().encode())
        theirs = connection.execute(
            "select version, name, checksum from hermes_pgvector_migrations order by 1"
        ).fetchall()
    assert theirs == ours
    assert LATEST == 18
    settings = Settings(dsn=dsn, embed_url=endpoint.url, embed_model="test", batch_linger_s=0)
    assert migrate(dsn, dimensions=8) == [file.name for file in migration_files()[8:]]
    runtime = Runtime(settings, tmp_path / "home")
    try:
        assert runtime.wait_ready(10)
        scope = runtime.scope("ops", "current", "")
        turns = runtime.recall("turns", RecallRequest(query="seeds for the meadow", scope=scope, limit=5, budget_s=5))
        assert turns.hits[0].content == "Which seeds did we order for the meadow?"
        assert all("secret" not in hit.content for hit in turns.hits)
        entries = runtime.recall("entries", RecallRequest(query="winter diesel", scope=scope, limit=5, budget_s=5))
        assert entries.hits[0].content == "The tractor needs winter diesel."
    finally:
        runtime.close(5)


@pytest.mark.skipif(not bundled_available(), reason="the bundled model is not installed")
@pytest.mark.parametrize(("held", "used"), [("multilingual-e5-small", "multilingual-e5-small"), (None, "minilm-e5")])
def test_a_database_goes_on_with_the_bundled_model_that_filled_it(
    home: Path, make_database: Callable[..., str], held: str | None, used: str
) -> None:
    dsn, text = make_database(dimensions=384), "The tractor needs winter diesel."
    with psycopg.connect(dsn) as connection:
        if held:
            connection.execute("insert into hermes_pgvector_settings values ('embedding_model', %s)", [held])
            vector = LocalEmbedder(held).embed_passages([text], 60)[0]
            connection.execute(
                "insert into memory_entries (agent_identity, target, content, embedding) values ('ops', %s, %s, %s)",
                ["user", text, str(vector)],
            )
    runtime = Runtime(Settings(dsn=dsn, batch_linger_s=0), home)
    try:
        assert runtime.wait_ready(10)
        wait_for(lambda: not isinstance(runtime.compatibility.usable(), str))
        assert runtime.accept(Add(theme="ops", target="user", content="The ferry leaves from the northern pier."))
        assert runtime.writer.flush(60)
        wait_for(lambda: None not in vectors(dsn))
        scope = runtime.scope("ops", "current", "")
        request = RecallRequest(query="fuel for cold months", scope=scope, limit=2, budget_s=60)
        found = runtime.recall("entries", request)
        assert not found.degraded
        assert found.hits[0].content == (text if held else "The ferry leaves from the northern pier.")
        assert found.hits[0].similarity is not None
    finally:
        runtime.close(5)
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select value from hermes_pgvector_settings where name = 'embedding_model'").fetchone()
    assert row == (used,)


def vectors(dsn: str) -> list[str | None]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select embedding::text from memory_entries")]
