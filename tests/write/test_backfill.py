from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import not_on_citus
import psycopg
import pytest
from loopback import vector
from waiting import wait_for

from hermes_memory_pgvector import background
from hermes_memory_pgvector.embedding.protocol import Embedder
from hermes_memory_pgvector.errors import EmbedderMismatch, EmbedderUnavailable, PgvectorError
from hermes_memory_pgvector.model import Add, Event, Scope, Vector
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import retrieval, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.write import backfill, maintenance
from hermes_memory_pgvector.write.backfill import Backfill
from hermes_memory_pgvector.write.embedding_queue import REQUESTS_MAX, EmbeddingQueue
from hermes_memory_pgvector.write.maintenance import Maintenance

LACKING = "select count(*) filter (where embedding is null), count(*) filter (where search is null) from "


class Words:
    """An embedder whose vectors point where the words of a text do; it refuses the word `poison`."""

    model, dimensions = "words", 384

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.away = False

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        self.requests.append(list(texts))
        if self.away:
            raise EmbedderUnavailable("the endpoint is away")
        if any("poison" in text for text in texts):
            raise EmbedderMismatch("the endpoint refuses a text")
        return [vector(text) for text in texts]

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        return vector(text)

    def close(self) -> None:
        pass


class Hanging(Words):
    """Answers no request while it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.released.set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.released.clear()
        try:
            yield
        finally:
            self.released.set()

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        vectors = super().embed_passages(texts, timeout_s)
        self.released.wait(30)
        return vectors


class Filling:
    """What the writer thread does between its batches, on rows that it found to lack something."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.queue = EmbeddingQueue(settings, lambda: None)
        self.vectors = Backfill(database, self.queue, settings)
        self.words = Maintenance(database, settings, share=1.0)
        self.run_soon()

    def run_soon(self) -> None:
        self.vectors.run_soon()
        self.words.run_soon()

    def step(self, embedder: Embedder | None) -> bool:
        try:
            return self.vectors.step(embedder) | self.words.step()
        except PgvectorError as error:
            self.vectors.back_off(str(error))
            return False

    def stop(self) -> None:
        self.vectors.stop()


class Ward:
    """A database with rows that lack vectors or words."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.settings = Settings(dsn=dsn, heal_interval_s=3600)  # type: ignore[arg-type]
        self.database = Database(self.settings, folder)

    def backfill(self) -> Filling:
        return Filling(self.database, self.settings)

    def run(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def insert(self, *contents: str, session: str = "s") -> None:
        """Put in turns as an operator would with psql: without a vector, without words."""
        for content in contents:
            self.run(
                "insert into conversations (agent_identity, session_id, role, content) values ('ops', %s, 'user', %s)",
                session, content,
            )  # fmt: skip

    def lacking(self, table: str = "conversations") -> tuple[int, int]:
        """How many rows have no vector, and how many have no words."""
        (found,) = self.run(LACKING + table)
        return found  # type: ignore[no-any-return]


@pytest.fixture
def ward(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    monkeypatch.setattr(background, "IDLE_S_MAX", 0.05)
    ward = Ward(database, tmp_path)
    yield ward
    ward.database.close()


def work(filling: Filling, embedder: Embedder | None, done: Callable[[], bool], seconds: float = 20.0) -> None:
    """Step as the writer thread does until it is done."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "rows still lack something"
        if not filling.step(embedder):
            time.sleep(0.01)


def idle(filling: Filling, embedder: Embedder | None, steps: int = 10) -> None:
    for _ in range(steps):
        filling.step(embedder)
        time.sleep(0.01)


# --- what is filled in


def test_a_row_put_in_by_psql_gets_its_vector_and_its_words(ward: Ward) -> None:
    ward.insert("The backups run in Graz", "第二行")
    ward.run("insert into memory_entries (target, content) values ('user', 'likes db-prod-03')")
    filling, embedder = ward.backfill(), Words()
    work(filling, embedder, lambda: ward.lacking() == (0, 0) == ward.lacking("memory_entries"))
    assert ward.run("select content from conversations where search @@ to_tsquery('english', 'backup')") == [
        ("The backups run in Graz",)
    ]
    assert ward.run("select count(*) from memory_entries where search @@ to_tsquery('english', 'dbprod03')") == [(1,)]
    (same,) = ward.run("select 1 - (embedding <=> %s::halfvec) from memory_entries", str(vector("likes db-prod-03")))
    assert same[0] == pytest.approx(1, abs=1e-3)
    assert filling.vectors.rows_done == 3


def test_words_are_added_without_an_embedder_too(ward: Ward) -> None:
    ward.insert(*(f"row {number}" for number in range(2 * maintenance.ROWS_MAX + 3)))
    ward.run("insert into memory_entries (target, content) values ('user', 'an entry')")
    work(ward.backfill(), None, lambda: ward.lacking()[1] == 0 == ward.lacking("memory_entries")[1])
    assert ward.lacking()[0] == 2 * maintenance.ROWS_MAX + 3


def test_a_row_that_has_a_vector_gets_its_words_and_keeps_the_vector(ward: Ward) -> None:
    ward.insert("kelp")
    ward.run("update conversations set embedding = %s::halfvec", str(vector("something else")))
    before = ward.run("select embedding::text from conversations")
    embedder = Words()
    work(ward.backfill(), embedder, lambda: ward.lacking() == (0, 0))
    assert ward.run("select embedding::text from conversations") == before
    assert embedder.requests == []


def test_a_row_without_a_vector_keeps_the_words_it_has(ward: Ward) -> None:
    event: Event = Add(theme="ops", target="memory", content="kelp")
    with ward.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepare(event)])
    (before,) = ward.run("select search::text from memory_entries")
    ward.run("update memory_entries set search = search || to_tsvector('english', 'mark')")
    work(ward.backfill(), Words(), lambda: ward.lacking("memory_entries") == (0, 0))
    (after,) = ward.run("select search::text from memory_entries")
    assert "mark" in after[0], "words that are there stay"
    assert before[0].split(":")[0] in after[0]


def test_a_turn_is_embedded_with_the_text_it_answers(ward: Ward) -> None:
    for number, content in enumerate(("where is the lamp", "behind the kelp")):
        ward.run(
            "insert into conversations (agent_identity, session_id, role, content, ts) "
            "values ('ops', 's', 'user', %s, now() + %s * interval '1 second')",
            content, number,
        )  # fmt: skip
    ward.insert("behind the kelp", session="other")
    embedder = Words()
    work(ward.backfill(), embedder, lambda: ward.lacking() == (0, 0))
    assert sorted(text for texts in embedder.requests for text in texts) == [
        "behind the kelp", "where is the lamp", "where is the lamp\nbehind the kelp",
    ]  # fmt: skip


def test_a_vector_that_another_process_stored_meanwhile_stays(ward: Ward) -> None:
    ward.insert("kelp")
    with ward.database.connection(10) as connection:
        found = upkeep.unembedded(connection, 10)
        ward.run("update conversations set embedding = %s::halfvec", str(vector("lamp")))
        assert upkeep.embed(connection, found, [[vector("kelp")]]) == 0
    assert ward.run("select embedding <=> %s::halfvec < 0.01 from conversations", str(vector("lamp"))) == [(True,)]


def test_entries_come_first_then_the_newest_and_the_limit_and_the_skipped_hold(ward: Ward) -> None:
    ward.insert("a", "b", "c")
    ward.run("insert into memory_entries (target, content) values ('user', 'x'), ('memory', 'y')")
    with ward.database.connection(10) as connection:
        found = upkeep.unembedded(connection, 4)
        assert [(row.kind, row.passage.content) for row in found] == [
            ("entries", "y"), ("entries", "x"), ("turns", "c"), ("turns", "b"),
        ]  # fmt: skip
        skip = [(found[0].kind, found[0].id), (found[2].kind, found[2].id)]
        assert [row.passage.content for row in upkeep.unembedded(connection, 9, skip)] == ["x", "b", "a"]


# --- failures


def test_a_row_that_the_embedder_refuses_is_skipped(ward: Ward, caplog: pytest.LogCaptureFixture) -> None:
    for content in ("one", "two poison", "three", "four poison", *(f"row {number}" for number in range(30))):
        ward.insert(content, session=content)
    filling, embedder = ward.backfill(), Words()
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        work(filling, embedder, lambda: ward.lacking() == (2, 0))
        before = len(embedder.requests)
        idle(filling, embedder)
    assert ward.run("select content from conversations where embedding is null order by id") == [
        ("two poison",), ("four poison",),
    ]  # fmt: skip
    assert caplog.text.count("gets no vector") == 2
    assert "poison" not in caplog.text
    assert len(embedder.requests) <= before + 3, "it is not requested again and again"


def test_rows_wait_for_an_embedder_that_is_away(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "RETRY_S", 0.05)
    ward.insert("one", "two")
    filling, embedder = ward.backfill(), Words()
    embedder.away = True
    work(filling, embedder, lambda: len(embedder.requests) >= 2)
    assert ward.lacking()[0] == 2
    embedder.away = False
    work(filling, embedder, lambda: ward.lacking() == (0, 0))


# --- many processes


def test_a_lease_has_one_holder_until_it_expires(ward: Ward) -> None:
    with ward.database.connection(10) as connection:
        assert upkeep.claim(connection, "heal", "a", 60)
        assert not upkeep.claim(connection, "heal", "b", 60)
        assert upkeep.claim(connection, "heal", "a", 60), "its holder renews it"
        assert upkeep.claim(connection, "other", "b", 60), "another lease is another lease"
        connection.execute("update hermes_pgvector_leases set expires_at = now() - interval '1 second'")
        assert upkeep.claim(connection, "heal", "b", 60)
        assert not upkeep.claim(connection, "heal", "a", 60)


def test_one_of_two_processes_requests_the_vectors(ward: Ward) -> None:
    ward.insert(*(f"row {number}" for number in range(20)))
    first, second, busy, quiet = ward.backfill(), ward.backfill(), Hanging(), Words()
    with busy.hanging():
        work(first, busy, lambda: bool(busy.requests))
        idle(second, quiet)
        assert quiet.requests == []
        assert ward.lacking()[0] == 20
        # The first one dies; its lease runs out.
        ward.run("update hermes_pgvector_leases set expires_at = now() - interval '1 second'")
        second.run_soon()
        work(second, quiet, lambda: ward.lacking() == (0, 0))


def test_a_process_whose_embedder_fails_leaves_the_rows_to_another(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    ward.insert(*(f"row {number}" for number in range(20)))
    first, second, broken, good = ward.backfill(), ward.backfill(), Words(), Words()
    broken.away = True
    work(first, broken, lambda: bool(first.vectors.problem))
    work(second, good, lambda: ward.lacking() == (0, 0))
    monkeypatch.setattr(first.vectors, "_next_at", 0.0)
    work(first, broken, lambda: not first.vectors.problem)
    assert not first.vectors.wanted, "it has nothing to complain about any more"


def test_rows_with_the_same_text_share_the_vector_that_is_late(ward: Ward) -> None:
    ward.insert("the same", session="one")
    ward.insert("the same", session="other")
    queue, embedder = EmbeddingQueue(ward.settings, lambda: None), Words()
    texts = ["the same", "forgotten"]
    late = dict(zip([("words", text) for text in texts], queue.submit(embedder, texts), strict=True))
    filling = ward.backfill()
    filling.vectors = Backfill(ward.database, queue, ward.settings, late)
    filling.run_soon()
    work(filling, embedder, lambda: ward.lacking() == (0, 0))
    work(filling, embedder, lambda: not filling.vectors.wanted)
    assert sum(map(len, embedder.requests)) == 2
    assert not late, "what no row lacks any more is not kept"


def test_no_step_is_due_while_the_queue_is_full(ward: Ward) -> None:
    ward.insert(*(f"row {number} {'x' * 500}" for number in range(40)))
    filling, embedder = ward.backfill(), Hanging()
    with embedder.hanging():
        idle(filling, embedder, 40)
        assert filling.queue.room <= 0
        assert filling.vectors.pause_s > 60
    work(filling, embedder, lambda: ward.lacking() == (0, 0))


def test_a_failure_drops_no_vectors_that_are_on_their_way(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    class HalfAway(Hanging):
        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            if "failing" in texts and not self.released.is_set():
                self.requests.append(list(texts))
                raise EmbedderUnavailable("the endpoint is away")
            return super().embed_passages(texts, timeout_s)

    monkeypatch.setattr(backfill, "RETRY_S", 0.05)
    ward.settings = ward.settings.model_copy(update={"embed_batch_max": 1})
    ward.insert("failing", session="one")
    ward.insert("slow", session="other")
    filling, embedder = ward.backfill(), HalfAway()
    with embedder.hanging():
        work(filling, embedder, lambda: bool(filling.vectors.problem) and ["slow"] in embedder.requests)
        assert filling.vectors.busy
    work(filling, embedder, lambda: ward.lacking() == (0, 0))
    assert embedder.requests.count(["slow"]) == 1


def test_the_lease_lasts_as_long_as_the_requests_for_a_long_row(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Words):
        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            time.sleep(1.0)
            return super().embed_passages(texts, timeout_s)

    monkeypatch.setattr(backfill, "LEASE_S", 2.0)
    ward.settings = ward.settings.model_copy(update={"embed_piece_chars": 300, "embed_batch_max": 1})
    ward.insert(LONG)
    first, second, slow, quiet = ward.backfill(), ward.backfill(), Slow(), Words()
    work(first, slow, lambda: bool(slow.requests))

    def both_done() -> bool:
        second.run_soon()
        second.step(quiet)
        return ward.lacking() == (0, 0)

    work(first, slow, both_done)
    assert quiet.requests == []
    assert len(slow.requests) / REQUESTS_MAX > backfill.LEASE_S


@not_on_citus.row_locks
def test_processes_share_the_adding_of_words(ward: Ward) -> None:
    ward.insert(*(f"row {number}" for number in range(6)))
    with ward.database.transaction(10, 20) as one, ward.database.transaction(10, 20) as two:
        assert upkeep.add_words(one, 4) == 4
        assert upkeep.add_words(two, 4) == 2
        assert upkeep.add_words(two, 4) == 0
    assert ward.lacking()[1] == 0


def test_words_are_added_by_one_process_at_a_time_and_by_another_after_it(ward: Ward) -> None:
    ward.insert(*(f"row {number}" for number in range(maintenance.ROWS_MAX + 6)))
    first, second = (Maintenance(ward.database, ward.settings, share=1.0) for _ in range(2))
    for process in (first, second):
        process.run_soon()
    assert first.step()
    assert not second.step()
    assert (first.rows_done, second.rows_done) == (maintenance.ROWS_MAX, 0)
    first.stop()

    def taken_over() -> bool:
        second.run_soon()
        return second.step()

    wait_for(taken_over)
    assert second.rows_done == 6
    assert ward.lacking()[1] == 0


def test_old_events_are_deleted_from_the_ledger_and_young_ones_are_not(ward: Ward) -> None:
    ward.run(
        "insert into memory_events (agent_identity, event_id, applied_at) "
        "select 'ops', gen_random_uuid(), now() - n * interval '1 day' from generate_series(1, 100) as n"
    )
    ward.run(
        "insert into memory_tombstones (agent_identity, home, target, content_key, at) "
        "select 'ops', 'h', 'memory', content_key(n::text), now() - n * interval '1 day' "
        "from generate_series(1, 100) as n"
    )
    ward.run(
        "insert into memory_withdrawals "
        "select 'ops', 's', 'user', content_key(n::text), now() - n * interval '1 day', 0, '{s}' "
        "from generate_series(1, 100) as n"
    )
    with ward.database.connection(10) as connection:
        assert upkeep.prune_events(connection, 90) == 11
        assert upkeep.prune_events(connection, 90) == 0
    assert ward.run("select count(*) from memory_events") == [(89,)]
    assert ward.run("select count(*) from memory_tombstones") == [(89,)]
    assert ward.run("select count(*) from memory_withdrawals") == [(89,)]


LONG = "\n".join(f"Line {number} of a long report about {topic}." for number in range(30) for topic in ("kelp", "sand"))


def chunks(ward: Ward) -> list[tuple[int, ...]]:
    return ward.run(
        "select row_id, count(*) from conversation_pieces where agent_identity = 'ops' group by 1 order by 1"
    )


def test_a_long_text_gets_a_vector_for_each_of_its_chunks(ward: Ward) -> None:
    ward.insert("short", LONG)
    ((long,),) = ward.run("select id from conversations where content <> 'short'")
    work(ward.backfill(), Words(), lambda: ward.lacking() == (0, 0))
    # The row itself has the vector of the first chunk.
    counted = 1 + len(ward.run("select piece from conversation_pieces"))
    assert chunks(ward) == [(long, counted - 1)]
    assert len(LONG) / ward.settings.embed_piece_chars <= counted <= 2 * len(LONG) / ward.settings.embed_piece_chars + 1
    ward.run("delete from conversations where id = %s", long)
    assert chunks(ward) == []


def test_a_row_of_many_chunks_has_all_of_them_or_none(ward: Ward) -> None:
    class Failing(Words):
        """Answers three requests."""

        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            self.away = len(self.requests) >= 3
            return super().embed_passages(texts, timeout_s)

    ward.settings = ward.settings.model_copy(update={"embed_piece_chars": 300, "embed_batch_max": 1})
    ward.insert(LONG)
    embedder = Failing()
    filling = ward.backfill()
    work(filling, embedder, lambda: len(embedder.requests) >= 4)
    idle(filling, embedder)
    assert (ward.lacking()[0], chunks(ward)) == (1, [])
    filling.run_soon()
    work(filling, Words(), lambda: ward.lacking() == (0, 0))
    assert chunks(ward) != []


def test_long_texts_are_stored_a_few_at_a_time(ward: Ward) -> None:
    ward.settings = ward.settings.model_copy(update={"embed_batch_max": 8})
    ward.insert(*(f"{number}. {LONG}" for number in range(6)), "short")
    filling, embedder, stored = ward.backfill(), Words(), [0]
    while ward.lacking() != (0, 0):
        if filling.step(embedder) and (counted := sum(count for _, count in chunks(ward))) > stored[-1]:
            stored.append(counted)
        time.sleep(0.01)
    assert max(after - before for before, after in pairwise(stored)) <= 8
    assert len(chunks(ward)) == 6


def test_a_row_that_is_deleted_meanwhile_leaves_no_chunks(ward: Ward) -> None:
    ward.insert(LONG)
    with ward.database.connection(5) as connection:
        found = upkeep.unembedded(connection, 10)
    ward.run("delete from conversations")
    with ward.database.transaction(5, 5) as connection:
        assert upkeep.embed(connection, found, [[vector("kelp")] * 4]) == 0
    assert chunks(ward) == []


def test_a_row_has_at_most_embed_pieces_max_chunks(ward: Ward) -> None:
    ward.settings = ward.settings.model_copy(update={"embed_pieces_max": 2})
    ward.insert(LONG)
    work(ward.backfill(), Words(), lambda: ward.lacking() == (0, 0))
    assert [count for _, count in chunks(ward)] == [2]


@pytest.mark.parametrize("way", ["exact", "of_all", "of_scope"])
def test_a_long_text_is_as_similar_as_the_most_similar_of_its_chunks(ward: Ward, way: retrieval.Way) -> None:
    class Windowed(Words):
        """Sees the beginning of a text only."""

        def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
            return super().embed_passages([text[:1200] for text in texts], timeout_s)

    ward.insert("gravel kelp", "gravel sand", LONG + "\n\n" + "walrus tusk ivory " * 20)
    ((long,),) = ward.run("select id from conversations where length(content) > 100")
    work(ward.backfill(), Windowed(), lambda: ward.lacking() == (0, 0))
    scope = Scope("ops", ("ops",))
    question = vector("walrus tusk ivory")
    with ward.database.transaction(5, 5) as connection:
        size = retrieval.count(connection, "turns", scope, 100)
        alone = retrieval.nearest(connection, "turns", scope, question, 10, way=way)
        found = retrieval.nearest(connection, "turns", scope, question, 10, way=way, pieces=size.pieces)
    assert size.pieces
    assert found["ops", long] > alone["ops", long] + 0.1
    assert next(iter(found)) == ("ops", long)
    assert len(found) == 3


def test_chunks_are_read_by_their_own_theme_only(ward: Ward) -> None:
    ward.insert(LONG)
    work(ward.backfill(), Words(), lambda: ward.lacking() == (0, 0))
    with ward.database.transaction(5, 5) as connection:
        for theme, session in (("other", ""), ("ops", "another")):
            scope = Scope(theme, (theme,), session)
            for way in get_args(retrieval.Way):
                assert retrieval.nearest(connection, "turns", scope, vector("kelp"), 10, way=way, pieces=True) == {}
