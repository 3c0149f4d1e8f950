"""A lease has one holder at a time, and nobody waits for it."""

from __future__ import annotations

from pathlib import Path

from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.upkeep import Lease


def test_nobody_waits_for_a_transaction_that_has_claimed_a_lease(database: str, tmp_path: Path) -> None:
    opened = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    first, second = Lease("words", 60.0), Lease("words", 60.0)
    try:
        with opened.transaction(5.0, 5.0) as working, opened.transaction(5.0, 1.0) as other:
            assert first.claim(working)
            assert not second.claim(other)
            assert Lease("prune", 60.0).claim(other)
        with opened.connection(5.0) as connection:
            assert not second.claim(connection)
            first.release(connection)
            assert second.claim(connection)
            assert not first.claim(connection)
    finally:
        opened.close()


def test_a_holder_renews_its_lease_beside_a_transaction_that_was_refused(database: str, tmp_path: Path) -> None:
    opened = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    holder, refused = Lease("words", 60.0), Lease("words", 60.0)
    try:
        with opened.connection(5.0) as connection:
            assert holder.claim(connection)
        with opened.transaction(5.0, 5.0) as other:
            assert not refused.claim(other)
            with opened.transaction(5.0, 1.0) as working:
                assert holder.claim(working)
                holder.release(working)
    finally:
        opened.close()
