from __future__ import annotations

import math
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Endpoint, vector
from psycopg.conninfo import conninfo_to_dict
from servers import DistributedServer, Server

from hermes_memory_pgvector.embedding.compatibility import CALIBRATION_WAIT_S_MIN, EmbedderCompatibility
from hermes_memory_pgvector.embedding.protocol import Embedder
from hermes_memory_pgvector.errors import DatabaseUnavailable, EmbedderUnavailable
from hermes_memory_pgvector.model import WORDS_ONLY, Add, Event, Recall, RecallRequest, Scope, TurnTaken, Vector
from hermes_memory_pgvector.recall import vector_search
from hermes_memory_pgvector.recall.deadline import Deadline
from hermes_memory_pgvector.recall.prefetch import Prefetch
from hermes_memory_pgvector.recall.recaller import QUERY_CHARS_MAX, SEARCH_LIMIT, Recaller
from hermes_memory_pgvector.recall.vector_search import GRAPH_SETTINGS
from hermes_memory_pgvector.recall.word_search import IDF_POWER
from hermes_memory_pgvector.session.scopes import readable
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import retrieval, rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import QUERIES, Kind, for_words
from hermes_memory_pgvector.store.retrieval import Size, Way
from hermes_memory_pgvector.text.theme_names import reserved
from hermes_memory_pgvector.tools import answers

# Words that the English dictionary leaves as they are.
WORDS = ["kelp", "lamp", "frog", "bolt", "drum", "plum", "tusk", "yarn"]
PERSON, ROOM = "dm-telegram-0123456789abcdef", "group-slack-fedcba9876543210"
THEMES = ["ops", "billing", PERSON, ROOM]
OPS = Scope("ops", ("ops",))


class Words:
    """An embedder whose vectors point where the words of a text do."""

    model, dimensions = "words", 384

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        return [vector(text) for text in texts]

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        self.asked.append(text)
        if self.fails:
            raise EmbedderUnavailable("the endpoint is away")
        return vector(text)

    def close(self) -> None:
        pass


class Memory:
    """A database, the recaller on it, and what tests put in and ask."""

    def __init__(self, dsn: str, folder: Path, embedder: Embedder | str, **changed: Any) -> None:
        self.settings = Settings(dsn=dsn, **changed)
        self.dsn, self.embedder = dsn, embedder
        self.database = Database(self.settings, folder)
        self.recaller = Recaller(self.database, lambda: self.embedder, self.settings)

    def add(self, *events: Event, embedded: bool = True) -> None:
        prepared = list(map(prepare, events))
        for passage in (passage for event in prepared for passage in event.passages):
            passage.vector = vector(passage.context + passage.content) if embedded else None
        with self.database.transaction(20, 60) as connection:
            rows.apply(connection, prepared)

    def clear(self) -> None:
        self.run("truncate conversations, memory_entries, memory_events cascade")

    def run(self, statement: str, *parameters: Any) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters or None)

    def ask(self, query: str, scope: Scope = OPS, kind: Kind = "turns", limit: int = 10, **more: Any) -> Recall:
        request = RecallRequest(query=query, scope=scope, limit=limit, budget_s=more.pop("budget_s", 20.0), **more)
        return self.recaller.recall(kind, request)

    def ask_each(self, query: str, budget_s: float) -> list[Recall]:
        request = RecallRequest(query=query, scope=OPS, limit=10, budget_s=budget_s)
        return self.recaller.recall_each(("entries", "turns"), request)

    def found(self, query: str, scope: Scope = OPS, kind: Kind = "turns", **more: Any) -> list[str]:
        recall = self.ask(query, scope, kind, **more)
        assert recall.degraded == ()
        return [hit.content for hit in recall.hits]


@pytest.fixture
def make(database: str, tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    made: list[Memory] = []

    def start(embedder: Embedder | str | None = None, dsn: str = database, **changed: Any) -> Memory:
        made.append(Memory(dsn, tmp_path, embedder or Words(), **changed))
        return made[-1]

    yield start
    for memory in made:
        memory.database.close()


@pytest.fixture
def memory(make: Callable[..., Memory]) -> Memory:
    return make()


def turn(user: str, assistant: str = "", theme: str = "ops", session: str = "s") -> TurnTaken:
    return TurnTaken(theme=theme, session_id=session, user=user, assistant=assistant)


def entry(content: str, theme: str = "ops", **more: Any) -> Add:
    return Add(theme=theme, home="home", target=more.pop("target", "memory"), content=content, **more)


def in_time(call: Callable[[], Recall], seconds: float = 30.0) -> Recall:
    """The answer of a call that may hang, and then fails the test instead of stopping it."""
    answer: list[Recall] = []
    thread = threading.Thread(target=lambda: answer.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert answer, f"no answer within {seconds} s"
    return answer[0]


# --- who sees what

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
corpora = st.lists(st.tuples(st.sampled_from(THEMES), st.sampled_from("st"), texts), max_size=20)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpora, texts, st.sampled_from(THEMES), st.sampled_from(["current", "session", "all", *THEMES[:2]]))
def test_no_hit_is_ever_outside_the_scope(
    make: Callable[..., Memory], corpus: list[tuple[str, str, str]], query: str, own: str, name: str
) -> None:
    whole, graph, words = make(), make(exact_rows_max=0), make("by words only")
    try:
        whole.clear()
        whole.add(*(turn(text, theme=theme, session=session) for theme, session, text in corpus))
        whole.add(*(entry(text, theme) for theme, _, text in corpus))
        themes = readable(own, name, Settings(cross_theme_recall="all"))
        scope = Scope(own, themes, ("s",) if name == "session" else ())

        def visible(theme: str) -> bool:
            return theme in themes if themes is not None else theme == own or not reserved(theme)

        wanted = set(query.split())
        for memory in (whole, graph, words):
            found = memory.ask(query, scope, limit=50).hits
            assert all(visible(hit.theme) for hit in found)
            assert name != "session" or all(hit.session_id == "s" for hit in found)
            assert all(visible(hit.theme) for hit in memory.ask(query, scope, "entries", limit=50).hits)
            # And what is inside and holds a word of the question is found.
            expected = Counter(
                text for theme, session, text in corpus
                if visible(theme) and (name != "session" or session == "s") and wanted & set(text.split())
            )  # fmt: skip
            assert not expected - sum((Counter({hit.content: hit.said}) for hit in found), Counter())
    finally:
        for memory in (whole, graph, words):
            memory.database.close()


# The second question shares no word with any row, so vector search answers it alone.
def test_rows_of_times_that_python_does_not_have_are_found(memory: Memory, database: str) -> None:
    memory.add(turn("kelp now"), entry("kelp now"))
    with psycopg.connect(database, autocommit=True) as connection:
        for when, at in {"late": "infinity", "early": "-infinity", "old": "0044-03-15 BC"}.items():
            connection.execute(
                "insert into conversations (agent_identity, session_id, role, content, ts, search) "
                "values ('ops', 's', 'user', %(what)s, %(at)s, 'kelp')", {"what": f"kelp {when}", "at": at},
            )  # fmt: skip
            connection.execute(
                "insert into memory_entries (agent_identity, home, target, content, updated_at, search) "
                "values ('ops', 'home', 'memory', %(what)s, %(at)s, 'kelp')", {"what": f"kelp {when}", "at": at},
            )  # fmt: skip
    for kind in ("turns", "entries"):
        found = memory.ask("kelp", Scope("ops", ("ops",)), kind, context=1)
        assert found.degraded == ()
        assert answers.of_recall(found, query="kelp", scope="current", chars_max=9000)["count"] == 4


@pytest.mark.parametrize("query", ["kelp", "zebra"])
def test_scopes_see_what_they_say(memory: Memory, query: str) -> None:
    for theme in THEMES:
        memory.add(turn(f"kelp of {theme}", theme=theme), turn(f"kelp of {theme} later", theme=theme, session="t"))
        memory.add(entry(f"kelp of {theme}", theme))

    def themes(scope: Scope, kind: Kind = "turns") -> set[str]:
        return {hit.theme for hit in memory.ask(query, scope, kind, limit=50).hits}

    for kind in ("turns", "entries"):
        assert themes(Scope("ops", ("ops",)), kind) == {"ops"}
        assert themes(Scope("ops", ("billing",)), kind) == {"billing"}
        assert themes(Scope("ops", ("ops", "billing")), kind) == {"ops", "billing"}
        assert themes(Scope("ops", ()), kind) == set()
        assert themes(Scope("ops", None), kind) == {"ops", "billing"}
        assert themes(Scope(PERSON, None), kind) == {"ops", "billing", PERSON}
        assert themes(Scope(ROOM, None), kind) == {"ops", "billing", ROOM}
    session = memory.ask(query, Scope("ops", ("ops",), ("t",)), limit=50).hits
    assert [(hit.session_id, hit.content) for hit in session] == [("t", "kelp of ops later")]


def test_a_target_narrows_entries(memory: Memory) -> None:
    memory.add(entry("kelp for work"), entry("kelp for me", target="user"))
    assert len(memory.found("kelp", kind="entries")) == 2
    assert memory.found("kelp", Scope("ops", ("ops",), target="user"), "entries") == ["kelp for me"]
    assert [hit.target for hit in memory.ask("kelp", Scope("ops", ("ops",), target="memory"), "entries").hits] == [
        "memory"
    ]


def test_a_neighbour_of_a_hit_stays_in_its_theme_and_session(memory: Memory) -> None:
    memory.add(turn("kelp", "lamp"), turn("frog", theme="billing"), turn("bolt", session="t"), turn("drum", "plum"))
    hits = memory.ask("kelp", Scope("ops", ("ops",), ("s",)), limit=50).hits
    assert {(hit.theme, hit.session_id) for hit in hits} == {("ops", "s")}


# --- both searches against the same done by hand


def corpus(chance: random.Random, count: int = 60) -> list[TurnTaken]:
    return [
        turn(" ".join(chance.choices(WORDS, k=chance.randint(1, 6))), theme=chance.choice(THEMES[:2]), session=str(n))
        for n in range(count)
    ]


def bm25(query: str, stored: dict[str, str], row_count: int) -> dict[str, float]:
    wanted = set(query.split())
    matching = {key: set(text.split()) for key, text in stored.items() if wanted & set(text.split())}
    holders = {word: sum(word in words for words in matching.values()) for word in wanted}
    idf = {
        word: math.log(1 + (max(row_count, count) - count + 0.5) / (count + 0.5)) ** IDF_POWER
        for word, count in holders.items()
    }
    # Short rows are all as long.
    return {key: sum(idf[word] for word in wanted & words) for key, words in matching.items()}


@pytest.mark.parametrize("seed", range(5))
def test_word_search_is_bm25(memory: Memory, seed: int) -> None:
    chance = random.Random(seed)
    events = corpus(chance)
    memory.add(*events)
    stored = {event.session_id: event.user for event in events if event.theme == "ops"}
    query = " ".join(chance.sample(WORDS, 3))
    hits = memory.ask(query, limit=100).hits
    expected = bm25(query, stored, len(stored))
    found = {hit.session_id: hit.words for hit in hits if hit.words}
    assert found == pytest.approx({session: expected[session] for session in found})
    assert {stored[session] for session in found} == {stored[session] for session in expected}
    for hit in hits:
        assert set(hit.matched) == set(query.split()) & set(hit.content.split())


def test_a_question_of_very_many_words_is_answered_by_all_of_them(memory: Memory) -> None:
    words = [f"qu{first}{second}x" for first in "bcdfghjk" for second in "bcdfghjk"]
    memory.add(*(turn(word, session=word) for word in words), turn("plum", session="other"))
    recall = memory.ask(" ".join(words), limit=50)
    assert recall.explanation.words == 64
    assert all(hit.matched == (hit.content,) for hit in recall.hits if hit.words)


@pytest.mark.parametrize("word", ["o'brien", "kelp''s", "c:\\temp\\x", "'quoted'", "a&b|!c", "%d7", "x:*", "100%"])
def test_signs_in_a_word_are_no_syntax(memory: Memory, word: str) -> None:
    memory.add(turn(f"see {word} there", session="s"), turn("nothing of it", session="t"))
    best, *_ = memory.ask(word).hits
    assert best.session_id == "s"
    assert best.words > 0


@pytest.mark.parametrize("kind", ["turns", "entries"])
def test_a_question_scores_like_a_statement_with_the_same_words(memory: Memory, kind: Kind) -> None:
    asking, telling = "is the kelp lamp brown?", "the kelp lamp is brown"
    memory.add(turn(asking, session="a"), turn(telling, session="b"), entry(asking), entry(telling))
    first, second = memory.ask("the brown kelp lamp", kind=kind).hits
    assert {first.content, second.content} == {telling, asking}
    assert first.score == pytest.approx(second.score)


def test_the_first_hits_are_those_of_a_longer_list_with_many_questions_among_them(memory: Memory) -> None:
    memory.add(
        *(turn(f"the brown kelp lamp number{n} frog?", session=f"q{n}") for n in range(40)),
        *(turn(f"the brown kelp lamp number{n} frog stands here", session=f"a{n}") for n in range(15)),
        *(turn("Is the brown kelp lamp a frog?", session=f"s{n}") for n in range(30)),
    )
    longest = memory.ask("the brown kelp lamp frog", limit=60).hits
    assert [hit.score for hit in longest] == sorted((hit.score for hit in longest), reverse=True)
    for limit in (1, 5, 10, 20):
        hits = memory.ask("the brown kelp lamp frog", limit=limit).hits
        assert [hit.id for hit in hits] == [hit.id for hit in longest[:limit]]


def test_a_row_of_another_theme_with_the_same_id_is_another_row(memory: Memory) -> None:
    memory.run(
        "insert into conversations (agent_identity, id, session_id, role, content, search) overriding system value "
        "select theme, 7, 's', 'user', theme || ' kelp', to_tsvector('english', 'kelp') "
        "from unnest(%s::text[]) as theme", ["ops", "billing", "lab"],
    )  # fmt: skip
    for scope in (Scope("ops", ("ops", "billing")), Scope("ops", None)):
        hits = memory.ask("kelp", scope).hits
        themes = scope.themes or ("ops", "billing", "lab")
        assert {(hit.theme, hit.content) for hit in hits} == {(theme, f"{theme} kelp") for theme in themes}


@pytest.mark.parametrize(("kind", "table"), [("turns", "conversations"), ("entries", "memory_entries")])
def test_a_row_that_was_changed_or_deleted_since_it_was_recalled_is_told_as_it_is_now(
    memory: Memory, kind: Kind, table: str
) -> None:
    memory.add(*(event for word in ("kelp", "lamp", "frog") for event in (turn(f"the {word}"), entry(f"the {word}"))))
    assert set(memory.found("kelp", kind=kind)) == {"the kelp", "the lamp", "the frog"}
    memory.run(f"update {table} set content = 'something else' where content = 'the kelp'")
    memory.run(f"delete from {table} where content = 'the lamp'")
    assert set(memory.found("kelp", kind=kind)) == {"something else", "the frog"}
    memory.run(f"vacuum full freeze {table}")
    assert set(memory.found("kelp", kind=kind)) == {"something else", "the frog"}


def test_a_turn_and_an_entry_of_one_transaction_with_the_same_id_are_told_apart(memory: Memory) -> None:
    memory.run(
        "with turn as (insert into conversations (agent_identity, id, session_id, role, content, search) "
        "overriding system value select 'ops', 7, 's', 'user', 'a turn of kelp', to_tsvector('english', 'kelp')) "
        "insert into memory_entries (agent_identity, id, target, content, search) overriding system value "
        "select 'ops', 7, 'memory', 'an entry of kelp', to_tsvector('english', 'kelp')"
    )
    for _ in range(2):
        assert [hit.content for hit in memory.ask("kelp").hits] == ["a turn of kelp"]
        assert [hit.content for hit in memory.ask("kelp", kind="entries").hits] == ["an entry of kelp"]


def test_a_view_in_place_of_the_table_is_searched_all_the_same(memory: Memory) -> None:
    memory.add(turn("the kelp"))
    memory.run("alter table conversations rename to kept")
    memory.run("create view conversations as select * from kept")
    assert memory.found("kelp") == memory.found("kelp") == ["the kelp"]


def test_times_are_in_utc_wherever_the_server_is(memory: Memory, database: str) -> None:
    memory.run(f"alter database \"{conninfo_to_dict(database)['dbname']}\" set timezone to 'Asia/Kolkata'")
    memory.add(replace(turn("the kelp"), at=datetime(2026, 3, 1, 22, 30, tzinfo=UTC)))
    (hit,) = memory.ask("kelp").hits
    assert (hit.at.isoformat(), hit.at.tzinfo) == ("2026-03-01T22:30:00+00:00", UTC)


def test_a_row_that_changes_while_it_is_recalled_is_told_as_it_is_then(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add(turn("the kelp"))
    fetch = retrieval.fetch

    def late(*asked: Any) -> Any:
        memory.run("update conversations set content = 'something else'")
        return fetch(*asked)

    monkeypatch.setattr(retrieval, "fetch", late)
    assert memory.found("kelp") == ["something else"]
    monkeypatch.setattr(retrieval, "fetch", fetch)
    memory.run("update conversations set content = 'a third thing'")
    assert memory.found("kelp") == memory.found("kelp") == ["a third thing"]


def test_a_scope_that_has_grown_since_it_was_counted_is_searched_as_a_large_one(make: Callable[..., Memory]) -> None:
    memory = make(word_candidates_max=100)
    memory.add(*(turn("plum", session=str(n)) for n in range(50)))
    assert memory.ask("kelp").explanation.rows == 50
    memory.add(*(turn("plum", session=str(n)) for n in range(50, 150)), turn("kelp", session="new"))
    recall = memory.ask("kelp")
    assert recall.hits[0].session_id == "new"
    assert recall.explanation.near == SEARCH_LIMIT
    assert recall.explanation.rows == memory.ask("kelp").explanation.rows == 151
    assert recall.degraded == ()


def test_a_theme_with_a_long_text_is_asked_again_and_again(memory: Memory) -> None:
    memory.add(turn("the kelp", session="s"), turn("the lamp", session="t"))
    memory.run(
        "insert into conversation_pieces select agent_identity, id, 1, embedding from conversations "
        "where session_id = 's'"
    )
    for _ in range(4):
        assert memory.found("kelp") == ["the kelp", "the lamp"]


@pytest.mark.parametrize(
    "change",
    [
        "alter table conversations alter column session_id type varchar",
        "alter table conversations add column mood text",
        "drop index conversations_timeline",
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
        "and datname = current_database()",
    ],
)
def test_what_happens_to_the_tables_or_the_session_between_two_questions_takes_nothing(
    memory: Memory, change: str
) -> None:
    memory.add(turn("the kelp", session="s"), turn("the lamp", session="t"))
    for _ in range(3):
        assert memory.found("kelp") == ["the kelp", "the lamp"]
    memory.run(change)
    for _ in range(3):
        assert memory.found("kelp") == ["the kelp", "the lamp"]


def test_a_small_scope_that_cannot_be_read_whole_in_time_is_searched_as_a_large_one(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = re.sub(r"^ *where\b", "where pg_sleep(5) is not null and", QUERIES["scan_turns"], flags=re.MULTILINE)
    monkeypatch.setitem(QUERIES, "scan_turns", slow)
    for_words.cache_clear()
    memory.add(turn("the kelp", session="s"), turn("the lamp", session="t"))
    started = time.monotonic()
    try:
        recall = memory.ask("kelp", budget_s=2.0)
    finally:
        for_words.cache_clear()
    assert 0.1 < time.monotonic() - started < 4
    assert recall.hits[0].content == "the kelp"
    assert recall.hits[0].words > 0
    assert recall.explanation.plan == "exact"
    assert recall.degraded == ()


@pytest.mark.parametrize(("exact_rows_max", "hurries"), [(0, True), (1000, False)], ids=["large", "small"])
def test_who_waits_long_for_a_connection_is_answered_by_words_in_a_large_scope(
    make: Callable[..., Memory], exact_rows_max: int, hurries: bool
) -> None:
    memory = make(exact_rows_max=exact_rows_max, pool_max=2)
    memory.add(turn("the kelp", session="s"), turn("the lamp", session="t"))
    assert memory.ask("kelp").degraded == ()
    with memory.database.line.admitted(0), memory.database.line.admitted(0):
        answer: list[Recall] = []
        asker = threading.Thread(target=lambda: answer.append(memory.ask("kelp", budget_s=3.0)))
        asker.start()
        asker.join(1.3)
    asker.join(20)
    assert [hit.content for hit in answer[0].hits][:1] == ["the kelp"]
    assert [reason.startswith(WORDS_ONLY) for reason in answer[0].degraded] == [True] * hurries


def test_both_kinds_are_searched_in_one_transaction(memory: Memory) -> None:
    memory.add(turn("the kelp"), entry("kelp soup"))
    began = []
    transaction = memory.database.transaction

    def counted(*asked: Any, **more: Any) -> Any:
        began.append(asked)
        return transaction(*asked, **more)

    memory.database.transaction = counted  # type: ignore[method-assign]
    entries, turns = memory.ask_each("kelp", budget_s=20.0)
    assert ([hit.content for hit in entries.hits], [hit.content for hit in turns.hits]) == (["kelp soup"], ["the kelp"])
    assert len(began) == 1


@pytest.mark.parametrize("first_s", [0.0, 0.7], ids=["soon", "late"])
def test_the_answer_of_the_first_kind_stays_when_there_is_no_time_for_the_second(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, first_s: float
) -> None:
    memory.add(turn("the kelp"), entry("kelp soup"))
    for name in ("entries", "turns"):
        seconds = first_s if name == "entries" else 5
        for statement in (f"scan_{name}", f"word_candidates_{name}", f"nearest_{name}_exact"):
            slow = re.sub(r"(?m)^ *where\b", f"where pg_sleep({seconds}) is not null and", QUERIES[statement], count=1)
            monkeypatch.setitem(QUERIES, statement, slow)
    for_words.cache_clear()
    started = time.monotonic()
    try:
        entries, turns = memory.ask_each("kelp", budget_s=2.0)
    finally:
        for_words.cache_clear()
    assert time.monotonic() - started < 4
    assert [hit.content for hit in entries.hits] == ["kelp soup"]
    assert entries.degraded == ()
    assert turns.degraded


def test_a_long_text_that_is_stored_while_its_scope_is_searched_is_no_error(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(session: str) -> None:
        memory.add(turn("kelp lamp", session=session))
        memory.run(
            "insert into conversation_pieces select agent_identity, id, 1, embedding from conversations "
            "where session_id = %s", session,
        )  # fmt: skip

    search = vector_search.search

    def later(*asked: Any, **more: Any) -> vector_search.Nearest:
        add("meanwhile")
        return search(*asked, **more)

    add("before")
    monkeypatch.setattr(vector_search, "search", later)
    assert [hit.session_id for hit in memory.ask("kelp").hits] == ["before"]


def test_what_is_said_behind_a_line_of_signs_is_the_same(memory: Memory) -> None:
    memory.add(turn("kelp and lamp", session="s"), turn("= " * 80 + "kelp and lamp", session="t"))
    (hit,) = memory.ask("kelp").hits
    assert hit.said == 2


@pytest.mark.parametrize("asked", [{}, {"role": "assistant"}, {"since": datetime(2020, 1, 1, tzinfo=UTC)}])
def test_reading_a_scope_whole_finds_what_the_searches_find(make: Callable[..., Memory], asked: dict[str, Any]) -> None:
    whole, searches = make(), make(word_candidates_max=100, exact_rows_max=0)
    chance = random.Random(5)
    # So few that the newest rows which word search reads are all of them, and more than are read whole.
    whole.add(*(turn(e.user, e.user[::-1], theme="ops", session=str(chance.randrange(9))) for e in corpus(chance, 12)))
    # Each third row has the vectors of the two rows behind it as pieces.
    whole.run(
        "insert into conversation_pieces select agent_identity, c.id, o.id - c.id, o.embedding from conversations c "
        "join conversations o using (agent_identity) where o.id between c.id + 1 and c.id + 2 and c.id % 3 = 0"
    )
    for query in ("kelp lamp", "frog", "bolt drum tusk yarn", "nothing"):
        first, second = (memory.ask(query, Scope("ops", ("ops",), **asked), limit=50) for memory in (whole, searches))
        assert first.explanation.plan == "exact"
        assert second.explanation.plan == "graph index"
        assert [(hit.id, hit.matched) for hit in first.hits] == [(hit.id, hit.matched) for hit in second.hits]
        assert [hit.score for hit in first.hits] == pytest.approx([hit.score for hit in second.hits], abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", ["exact", "of_all", "of_scope"])
def test_vector_search_ranks_by_cosine(
    make: Callable[..., Memory], seed: int, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make(exact_rows_max=20_000 if way == "exact" else 0)
    events = corpus(random.Random(seed), 300)
    memory.add(*events)
    query = vector("kelp frog frog")
    monkeypatch.setitem(vector_search._ATTEMPTS, vector_search.EXACT, [("", way)])
    with memory.database.transaction(20, 20) as open_:
        size, due = Size(len(events)), Deadline(20)
        nearest = vector_search.search(
            open_, "turns", OPS, query, SEARCH_LIMIT, size=size, exact_rows_max=1000, deadline=due
        )
    cosines = [
        sum(a * b for a, b in zip(query, vector(event.user), strict=True)) for event in events if event.theme == "ops"
    ]
    best = sorted(cosines, reverse=True)[:SEARCH_LIMIT]
    assert list(nearest.found.values()) == pytest.approx(best, abs=2e-3)
    monkeypatch.undo()
    assert memory.ask("kelp frog frog").explanation.plan == ("exact" if way == "exact" else "graph index")


def test_the_graph_index_answers_what_the_exact_search_does(make: Callable[..., Memory]) -> None:
    exact, graph = make(), make(exact_rows_max=0)
    exact.add(*corpus(random.Random(1), 400))
    for scope in (OPS, Scope("ops", None), Scope("billing", ("billing",), ("17",))):
        first, second = (memory.ask("kelp lamp tusk", scope, limit=50) for memory in (exact, graph))
        # The farthest of the rows found sets the scale of the scores, and among equals that may be another one.
        assert [hit.score for hit in first.hits] == pytest.approx([hit.score for hit in second.hits], abs=2e-2)
        assert first.hits


def nearer_neighbours(memory: Memory, ours: int = 300, theirs: int = 3000) -> None:
    """Turns of `ops`, and more of another theme that are all nearer to the question `kelp`."""
    for theme, word, number in (("ops", "frog", ours), ("billing", "kelp", theirs)):
        memory.run(
            "insert into conversations (agent_identity, session_id, role, content, embedding) "
            "select %s, 's', 'user', 'row ' || n, (select array_agg((v + random() / 50)::real) "
            "from unnest(%s::float8[]) as v where n > 0)::vector::halfvec from generate_series(1, %s) as n",
            theme, vector(word), number,
        )  # fmt: skip


@pytest.fixture
def shortsighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph index gives up early, as it does by itself among some hundred thousand rows."""
    monkeypatch.setitem(GRAPH_SETTINGS, "hnsw__max_scan_tuples", "500")
    monkeypatch.setitem(GRAPH_SETTINGS, "hnsw__ef_search", "40")


@not_on_citus.shards
def test_where_the_graph_index_finds_too_few_all_rows_are_compared(
    make: Callable[..., Memory], shortsighted: None
) -> None:
    memory = make(exact_rows_max=100)
    nearer_neighbours(memory)
    recall = memory.ask("kelp")
    assert recall.explanation.plan == "exact, after the graph index"
    assert recall.explanation.near == SEARCH_LIMIT
    assert recall.degraded == ()


@not_on_citus.shards
def test_a_vector_search_that_found_too_few_in_its_time_says_so(
    make: Callable[..., Memory], shortsighted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make(exact_rows_max=100)
    nearer_neighbours(memory)
    slow = QUERIES["nearest_turns_exact"].replace("where", "where pg_sleep(1) is not null and", 1)
    monkeypatch.setitem(QUERIES, "nearest_turns_exact", slow)
    memory.add(turn("the lamp"))
    recall = memory.ask("kelp kelp kelp lamp", budget_s=3.0)
    assert "the lamp" in [hit.content for hit in recall.hits]
    assert recall.explanation.near < SEARCH_LIMIT
    assert f"of {SEARCH_LIMIT} rows in time" in recall.degraded[0]


def test_the_graph_index_sees_past_nearer_rows_of_other_themes(make: Callable[..., Memory]) -> None:
    assert int(GRAPH_SETTINGS["hnsw__max_scan_tuples"]) >= 400_000
    memory = make(exact_rows_max=100)
    nearer_neighbours(memory)
    assert memory.ask("kelp").explanation.near == SEARCH_LIMIT


def test_the_turns_of_one_session_can_be_left_out(make: Callable[..., Memory]) -> None:
    for memory in (make(), make(exact_rows_max=0), make("by words only")):
        memory.clear()
        memory.add(turn("kelp lamp frog", session="old"), *(turn("kelp", session="now") for _ in range(150)))
        hits = memory.ask("kelp", Scope("ops", ("ops",), without_session="now"), limit=5).hits
        assert [hit.session_id for hit in hits] == ["old"]


def test_the_turns_of_one_session_can_be_left_out_from_a_moment_on(make: Callable[..., Memory]) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    for memory in (make(), make(exact_rows_max=0), make("by words only")):
        memory.clear()
        said = {day: replace(turn(f"kelp {day}", session="now"), at=moment + timedelta(days=day)) for day in (-1, 0, 1)}
        memory.add(*said.values(), replace(turn("kelp elsewhere"), at=moment + timedelta(days=1)))
        for since, found in ((None, {"kelp elsewhere"}), (moment, {"kelp elsewhere", "kelp -1"})):
            scope = Scope("ops", ("ops",), without_session="now", without_since=since)
            assert {hit.content for hit in memory.ask("kelp", scope).hits} == found


def test_ambient_recall_finds_older_sessions_behind_a_long_running_one(memory: Memory, tmp_path: Path) -> None:
    prefetch = Prefetch(memory.settings, memory.recaller.recall_each, lambda: None, lambda: False, tmp_path)
    memory.add(turn("kelp lamp frog", session="old"), *(turn("kelp", session="now") for _ in range(150)), entry("kelp"))
    found = prefetch.before_turn("ops", "kelp", "now").hits
    assert {(hit.content, hit.session_id) for hit in found} == {("kelp", ""), ("kelp lamp frog", "old")}


def test_the_best_of_both_searches_comes_first_and_scores_are_in_order(memory: Memory) -> None:
    memory.add(*corpus(random.Random(2)), turn("zebra crossing kelp", session="wanted"))
    hits = memory.ask("zebra crossing kelp", limit=50).hits
    assert hits[0].session_id == "wanted"
    assert hits[0].similarity == pytest.approx(1, abs=2e-3)
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_the_same_question_gets_the_same_answer(memory: Memory) -> None:
    memory.add(*corpus(random.Random(3)))
    first = memory.ask("kelp lamp", limit=50).hits
    assert first
    assert all(memory.ask("kelp lamp", limit=50).hits == first for _ in range(3))


def test_an_answer_is_found_by_the_question_before_it(memory: Memory) -> None:
    memory.add(turn("where is the kelp lamp", "behind the frog"), *corpus(random.Random(4)))
    best = memory.ask("where is the lamp", limit=10).hits[0]
    assert best.content == "where is the kelp lamp"
    assert best.side
    assert best.side.content == "behind the frog"


def test_a_hit_carries_its_provenance(memory: Memory) -> None:
    first = TurnTaken(theme="ops", session_id="s1", user="kelp", assistant="", metadata={"platform": "cli"})
    memory.add(first, entry("kelp", target="user"))
    (hit,) = memory.ask("kelp").hits
    assert (hit.theme, hit.session_id, hit.role, hit.at, hit.target) == ("ops", "s1", "user", first.at, "")
    assert hit.metadata == {"platform": "cli"}
    (hit,) = memory.ask("kelp", kind="entries").hits
    assert (hit.theme, hit.session_id, hit.role, hit.target) == ("ops", "", "", "user")


# --- words


def test_words_are_ored(make: Callable[..., Memory]) -> None:
    memory = make("by words only")
    memory.add(*(turn(text, session=text) for text in ("the kelp is green", "the lamp is off", "nothing of it")))
    hits = memory.ask("did anybody put kelp beside a lamp or a zebra").hits
    assert {hit.content for hit in hits} == {"the kelp is green", "the lamp is off"}


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("数据库的备份每天凌晨三点在东京机房运行", "备份什么时候运行"),
        ("本番環境のデプロイは毎週火曜日に行います", "デプロイは何曜日"),
        ("데이터베이스 백업은 매일 새벽에 실행됩니다", "백업을 언제 실행하나요"),
    ],
)
def test_scripts_without_spaces_are_found_by_words(make: Callable[..., Memory], stored: str, query: str) -> None:
    memory = make("by words only")
    memory.add(
        turn(stored), turn("今日は天気がいいから散歩しましょう"), turn("今天的天气很好"), turn("오늘 날씨가 좋네요")
    )
    assert [hit.content for hit in memory.ask(query).hits][:1] == [stored]


def test_only_the_newest_rows_that_hold_a_common_word_are_ranked(make: Callable[..., Memory]) -> None:
    memory = make("by words only", word_candidates_max=100)
    memory.add(*(turn(f"kelp {number}", session=str(number)) for number in range(150)))
    found = [hit.content for hit in memory.ask("kelp", limit=500).hits]
    assert 20 < len(found) < 30
    assert sorted(found) == sorted(f"kelp {number}" for number in range(150 - len(found), 150))


def test_of_the_two_nearest_rows_the_one_that_says_a_change_is_first(memory: Memory) -> None:
    old, new = "The kelp list is updated once a year.", "The tariff is now read."
    memory.add(entry(old), entry("It rained."), entry(new, at=datetime.now(UTC) + timedelta(hours=1)))
    assert memory.found("How is the kelp list updated?", kind="entries") == [new, old, "It rained."]
    assert memory.found("How was the kelp list updated?", kind="entries") == [old, new, "It rained."]


def test_a_change_of_something_else_takes_no_place_in_a_small_scope(memory: Memory) -> None:
    old, new = "The kelp list is updated once a year.", "We have now sold the drum that was in the yard."
    memory.add(entry(old), entry(new, at=datetime.now(UTC) + timedelta(hours=1)))
    assert memory.found("How is the kelp list updated?", kind="entries") == [old, new]


@pytest.mark.parametrize("kind", ["turns", "entries"])
def test_a_rare_word_is_found_behind_newer_rows_with_a_common_one(make: Callable[..., Memory], kind: Kind) -> None:
    memory = make("by words only", word_candidates_max=100)
    texts = ["kelp of zx81", *(f"kelp {number}" for number in range(150))]
    memory.add(*(turn(text, session=text) if kind == "turns" else entry(text) for text in texts))
    recall = memory.ask("kelp zx81", kind=kind)
    assert recall.hits[0].content == "kelp of zx81"
    assert recall.hits[0].words > recall.hits[1].words


HOSTILE = [
    "it's O'Reilly's", '"quoted" \'quoted\' `quoted`', "back\\slash \\' \\\\ \\0", "a & b | !c <-> (d", "kelp:* | :A",
    "'; drop table conversations; --", "%s %(query)s %% %d", "$1 $$ $x$", "<script>", "\x00\x01\x7f", "\ud800 \udfff",
    "\u202e\u200b\ufeff", "kelp " * 200_000, "k" * 1_000_000, "漢" * 300_000, "é" * 100_000, "-" * 100_000,
    "1" * 100_000,
    "1.2.3.4:5432/a-b_c?d=e&f#g", "\n\n\t", "🙂🙂🙂", "and or the of",
]  # fmt: skip


@pytest.mark.parametrize("embedded", [True, False])
def test_a_hostile_question_is_just_a_question(make: Callable[..., Memory], embedded: bool) -> None:
    memory = make(Words() if embedded else "by words only")
    memory.add(turn("the kelp is green"))
    for query in HOSTILE:
        recall = memory.ask(query)
        assert set(recall.degraded) <= {"by words only"}, query[:40]
        assert all(0 <= hit.score <= 1 for hit in recall.hits), query[:40]
        assert memory.ask("kelp").hits, query[:40]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=()), max_size=60) | st.text("'\\&|!():*<->\"ab 漢é", max_size=30))
def test_any_text_can_be_asked_and_found_again(memory: Memory, query: str) -> None:
    recall = memory.ask(query)
    assert recall.degraded == ()
    assert all(0 <= hit.score <= 1 for hit in recall.hits)


def test_a_question_without_words_is_asked_by_meaning_alone(make: Callable[..., Memory]) -> None:
    memory = make()
    memory.add(turn("the kelp is green"))
    assert memory.found("?!") == ["the kelp is green"]
    assert make("by words only").ask("?!").hits == ()


# --- bounds


@pytest.mark.parametrize("limit", [1, 3, 500])
def test_the_limit_holds(memory: Memory, limit: int) -> None:
    memory.add(*(turn(f"kelp {number}") for number in range(20)))
    assert len(memory.ask("kelp", limit=limit).hits) == min(limit, 20)


def test_an_empty_memory_answers_nothing_and_is_not_degraded(memory: Memory) -> None:
    for kind in ("turns", "entries"):
        assert memory.ask("kelp", kind=kind).hits == ()
        assert memory.ask("kelp", kind=kind).degraded == ()


def test_many_threads_ask_at_once(memory: Memory) -> None:
    memory.add(*corpus(random.Random(5)))
    answers: list[Recall] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(memory.ask(WORDS[n % 8], limit=50)))  # type: ignore[misc]
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 16
    assert all(answer.hits and not answer.degraded for answer in answers)
    assert memory.database.pool_size() <= memory.settings.pool_max


def test_a_question_is_embedded_once_and_a_failure_is_not_kept(make: Callable[..., Memory]) -> None:
    embedder = Words()
    memory = make(embedder)
    memory.add(turn("kelp"))
    embedder.fails = True
    assert memory.ask("kelp").degraded
    embedder.fails = False
    for _ in range(3):
        assert memory.ask("kelp").degraded == ()
        assert memory.ask("kelp", kind="entries").degraded == ()
    assert embedder.asked == ["kelp", "kelp"]
    memory.embedder = "by words only: the model has changed"
    assert memory.ask("kelp").degraded == ("by words only: the model has changed",)


def test_a_long_question_is_cut_in_the_middle_before_it_is_embedded(make: Callable[..., Memory]) -> None:
    embedder = Words()
    memory = make(embedder)
    memory.add(turn("the kelp is green"))
    for middle in (2 * QUERY_CHARS_MAX, 3 * QUERY_CHARS_MAX):
        assert memory.ask("lamp? " + "x" * middle + " what colour is the kelp").hits[0].words > 0
    (asked,) = embedder.asked
    assert len(asked) == QUERY_CHARS_MAX
    assert asked.startswith("lamp? ")
    assert asked.endswith(" what colour is the kelp")


# --- the floor


def test_a_floor_that_could_not_be_measured_is_due_again_after_a_while(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Endpoint()) as endpoint:
        endpoint.status = 503
        chosen = Settings(dsn=memory.dsn, embed_url=endpoint.url, embed_model="m")
        compatibility = EmbedderCompatibility(chosen, tmp_path, memory.database)
        assert not compatibility.match(384)
        assert not compatibility.calibration_due()
        endpoint.status = 200
        later = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: later)
        for waited in (CALIBRATION_WAIT_S_MIN, 2 * CALIBRATION_WAIT_S_MIN):
            later += 3600
            if not compatibility.match(384):
                pytest.fail(str(compatibility.usable()))
            assert compatibility.calibration_due()
            assert not compatibility.calibration_due()
            endpoint.status = 503
            compatibility.calibrate()
            assert compatibility.floor is None
            later += waited - 1
            assert not compatibility.calibration_due()
            later += 1
            endpoint.status = 200
        later += 3600
        assert compatibility.calibration_due()
        compatibility.calibrate()
        assert compatibility.floor is not None
        later += 7200
        assert not compatibility.calibration_due()
        compatibility.close()


def test_no_floor_is_measured_where_one_is_chosen(memory: Memory, tmp_path: Path) -> None:
    with closing(Endpoint()) as endpoint:
        chosen = Settings(dsn=memory.dsn, embed_url=endpoint.url, embed_model="m", min_similarity=0.5)
        compatibility = EmbedderCompatibility(chosen, tmp_path, memory.database)
        assert compatibility.match(384)
        assert not compatibility.calibration_due()
        compatibility.close()


# --- worse, and saying so


def test_without_an_embedder_words_answer_and_the_reason_is_told(make: Callable[..., Memory]) -> None:
    memory = make("by words only: there is no model")
    memory.add(turn("the kelp is green"))
    recall = memory.ask("green kelp")
    assert [hit.content for hit in recall.hits] == ["the kelp is green"]
    assert recall.hits[0].similarity is None
    assert recall.degraded == ("by words only: there is no model",)
    assert recall.explanation.plan == "words only"


def test_an_embedder_that_fails_leaves_words_and_the_reason(make: Callable[..., Memory]) -> None:
    embedder = Words()
    embedder.fails = True
    memory = make(embedder)
    memory.add(turn("the kelp is green"))
    recall = memory.ask("kelp")
    assert len(recall.hits) == 1
    assert recall.degraded == ("by words only: the endpoint is away",)


def test_rows_without_vectors_are_found_by_words_and_that_is_told(memory: Memory) -> None:
    memory.add(turn("the kelp is green"), embedded=False)
    recall = memory.ask("kelp")
    assert len(recall.hits) == 1
    assert recall.degraded == ("no row of this scope has a vector yet",)
    memory.add(turn("frog"))
    assert memory.ask("kelp").degraded == ()


def test_a_row_of_zeros_put_in_by_hand_does_not_spoil_the_answer(memory: Memory) -> None:
    memory.add(turn("kelp"), turn("kelp lamp"), turn("frog"))
    before = {hit.content: hit.score for hit in memory.ask("kelp", limit=50).hits}
    memory.run(
        "insert into conversations (agent_identity, session_id, role, content, embedding) "
        "select 'ops', 'z', 'user', 'zeros', array_fill(0, array[384])::vector::halfvec"
    )
    hits = memory.ask("kelp", limit=50).hits
    assert {hit.content: hit.score for hit in hits} == pytest.approx(before)
    assert all(math.isfinite(hit.score) for hit in hits)
    assert all(hit.similarity is None or math.isfinite(hit.similarity) for hit in hits)


@pytest.mark.parametrize("kind", ["turns", "entries"])
def test_many_rows_of_zeros_do_not_hide_the_others(memory: Memory, kind: Kind) -> None:
    memory.add(turn("frog"), entry("frog"))
    table, columns = ("conversations", "session_id, role") if kind == "turns" else ("memory_entries", "home, target")
    memory.run(
        f"insert into {table} (agent_identity, {columns}, content, embedding) select 'ops', 'z', %s, 'zeros ' || n, "
        "array_fill(0, array[384])::vector::halfvec from generate_series(1, %s) as n",
        "user", SEARCH_LIMIT,
    )  # fmt: skip
    recall = memory.ask("kelp", kind=kind)
    assert [hit.content for hit in recall.hits] == ["frog"]
    assert recall.degraded == ()


def test_a_vector_of_another_length_degrades(make: Callable[..., Memory]) -> None:
    class Short(Words):
        def embed_query(self, text: str, timeout_s: float) -> Vector:
            return [1.0, 0.0]

    memory = make(Short())
    memory.add(turn("kelp"))
    assert memory.ask("kelp").degraded


def test_a_database_without_the_schema_degrades_and_names_the_command(
    make: Callable[..., Memory], empty_database: str
) -> None:
    recall = make(dsn=empty_database).ask("kelp")
    assert recall.hits == ()
    assert "hermes-pgvector migrate" in recall.degraded[0]


def test_a_database_that_is_not_there_degrades_in_time(make: Callable[..., Memory]) -> None:
    memory = make(dsn="postgresql://u:hunter2@127.0.0.1:1/none")
    started = time.monotonic()
    recall = in_time(lambda: memory.ask("kelp", budget_s=1.0))
    assert time.monotonic() - started < 5
    assert recall.hits == ()
    assert "does not answer" in recall.degraded[0]
    assert "127.0.0.1" not in recall.degraded[0], "a model has no business with the hosts of operators"
    assert "hunter2" not in recall.degraded[0]


# --- a Postgres that hangs


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Nobody else can read the tables."""
    with psycopg.connect(dsn) as connection:
        connection.execute("lock table conversations, memory_entries in access exclusive mode")
        yield


@contextmanager
def stopped(server: Any, dsn: str, *, postmaster: bool) -> Iterator[None]:
    """The processes that serve this database stand still; with `postmaster`, nobody can connect either."""
    if server.bin is None:
        pytest.skip("the processes of the tested server cannot be stopped")
    with psycopg.connect(dsn, autocommit=True) as connection:
        statement = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        pids = [pid for (pid,) in connection.execute(statement)]
    assert pids
    if postmaster:
        folder = Path(str(conninfo_to_dict(dsn)["host"]))
        pids.append(int((folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def within_budget(memory: Memory, kind: Kind = "turns", budget_s: float = 1.0) -> Recall:
    started = time.monotonic()
    recall = in_time(lambda: memory.ask("kelp", kind=kind, budget_s=budget_s))
    # Far more than the machine's moods, far less than any other time limit in the way.
    assert time.monotonic() - started < budget_s + 2
    return recall


@pytest.mark.parametrize("kind", ["turns", "entries"])
def test_a_locked_table_costs_no_more_than_the_budget(memory: Memory, kind: Kind, server: Server) -> None:
    memory.add(turn("kelp"), entry("kelp"))
    assert memory.ask("kelp", kind=kind).hits
    with locked(memory.dsn):
        recall = within_budget(memory, kind)
        assert recall.hits == ()
        # On a cluster the statement that opens a transaction waits, too.
        distributed = isinstance(server, DistributedServer)
        assert ("does not answer" if distributed else "did not finish in time") in recall.degraded[-1]
    assert memory.ask("kelp", kind=kind).hits


def test_a_server_that_stands_still_costs_no_more_than_the_budget(memory: Memory, server: Any) -> None:
    memory.add(turn("kelp"))
    assert memory.ask("kelp").hits
    with stopped(server, memory.dsn, postmaster=True):
        recall = within_budget(memory)
        assert recall.hits == ()
        assert "does not answer" in recall.degraded[-1]
    deadline = time.monotonic() + 30
    while not memory.ask("kelp").hits:
        assert time.monotonic() < deadline


def test_a_connection_that_stands_still_is_replaced_within_the_budget(memory: Memory, server: Any) -> None:
    memory.add(turn("kelp"))
    with stopped(server, memory.dsn, postmaster=False):
        recall = within_budget(memory, budget_s=3.0)
        assert len(recall.hits) == 1
        assert recall.degraded == ()


def test_a_server_that_stops_in_the_middle_of_a_transaction_is_given_up(memory: Memory, server: Any) -> None:
    memory.add(turn("kelp"))
    started = time.monotonic()

    def hang() -> Recall:
        try:
            with memory.database.transaction(5, 60, within_s=1.0) as connection:
                pid = connection.info.backend_pid
                os.kill(pid, signal.SIGSTOP)
                try:
                    connection.execute("select 1")
                finally:
                    os.kill(pid, signal.SIGCONT)
        except DatabaseUnavailable as error:
            return Recall((), (str(error),))
        return Recall()

    if server.bin is None:
        pytest.skip("the processes of the tested server cannot be stopped")
    assert "does not answer" in in_time(hang).degraded[0]
    assert time.monotonic() - started < 3
    assert memory.ask("kelp").hits
