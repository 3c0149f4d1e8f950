"""Encodings: a memory is made in UTF8 alone, and read and written in UTF8 whatever the environment says."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.schema import migrations
from hermes_memory_pgvector.store.schema.preflight import connect

OTHERS = ("SQL_ASCII", "LATIN1")
TEXT = "naïve café, 橋, 🙂"

pytestmark = pytest.mark.not_on_citus("databases of a cluster are made by `citus`, in UTF8")


@pytest.fixture
def encoded(server: Any) -> Iterator[Callable[[str], str]]:
    """Makes a bare database with an encoding; returns its DSN."""
    with ExitStack() as stack:

        def make(encoding: str) -> str:
            name = f"hermes_test_{uuid.uuid4().hex[:16]}"
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute(
                    f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE_PROVIDER libc LOCALE 'C'"
                )
            stack.callback(server.drop, name)
            return str(server.dsn_of(name))

        yield make


@pytest.mark.parametrize("encoding", OTHERS)
def test_a_memory_is_not_made_where_it_could_not_hold_all_texts(encoded: Callable[[str], str], encoding: str) -> None:
    dsn = encoded(encoding)
    with pytest.raises(SettingsError, match=f"encoding {encoding}.*CREATE DATABASE .* ENCODING 'UTF8'"):
        migrations.migrate(dsn)
    with connect(dsn) as connection:
        assert connection.execute("select to_regclass('conversations') as made").fetchone() == {"made": None}


def test_setup_asks_no_administrator_to_mend_an_encoding(encoded: Callable[[str], str], tmp_path: Path) -> None:
    outcome = hermes_pgvector("--home", str(tmp_path), "setup", "--dsn", encoded("LATIN1"))
    assert outcome.code == 1
    assert "ENCODING 'UTF8'" in outcome.shown
    assert "ADMIN_DSN" not in outcome.shown


def test_a_memory_of_an_earlier_release_in_another_encoding_goes_on_and_doctor_names_it(
    encoded: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = encoded("LATIN1")
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "check_server", lambda _: None)
        migrations.migrate(dsn, dimensions=384)
    assert migrations.migrate(dsn) == []
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", dsn)
    found = hermes_pgvector("--home", str(tmp_path), "--json", "doctor").document["checks"]
    [check] = [check for check in found if check["name"] == "encoding"]
    assert check["verdict"] == "problem"
    assert "LATIN1" in check["found"]


@pytest.mark.parametrize("encoding", OTHERS)
def test_the_encoding_that_clients_use_otherwise_changes_nothing(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    turn = TurnTaken(
        id=uuid.uuid4().hex, theme="t", home="a" * 32, session_id="s", at=datetime.now(UTC), user=TEXT, assistant=TEXT
    )
    store = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    try:
        store.prepare(lambda: 384)
        with store.transaction(5, 5) as connection:
            rows.apply(connection, [prepare(turn)])
            assert [row["content"] for row in connection.execute("select content from conversations")] == [TEXT, TEXT]
    finally:
        store.close()
    assert migrations.migrate(database) == []
