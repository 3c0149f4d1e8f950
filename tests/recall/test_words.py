"""Recall by words alone: what it finds, what it knows of common words, and how much it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest

from hermes_memory_pgvector.model import RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.recall.word_search import bm25
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import retrieval, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Connection, Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import WORDS_MAX
from hermes_memory_pgvector.store.retrieval import Key, WordCandidates
from hermes_memory_pgvector.text import tokenizer
from hermes_memory_pgvector.text.theme_names import RESERVED_PATTERN
from hermes_memory_pgvector.write.maintenance import Maintenance

pytestmark = pytest.mark.each_version

DATA = Path(__file__).parent.parent / "data"
CANDIDATES = 200
ROWS = 3000
PERSON = "dm-telegram-0123456789abcdef"


@pytest.fixture
def opened(database: str, tmp_path: Path) -> Iterator[Database]:
    opened = Database(Settings(dsn=database), tmp_path)
    yield opened
    opened.close()


def accept(database: Database, texts: list[str], theme: str = "ops") -> None:
    prepared = []
    for number, text in enumerate(texts):
        event = TurnTaken(theme=theme, home="home", session_id=str(number), user=text, assistant="")
        prepared.append(prepare(event))
    with database.transaction(20, 60) as connection:
        rows.apply(connection, prepared)


@pytest.mark.parametrize("small", [True, False], ids=["read whole", "too large to be read whole"])
@pytest.mark.parametrize(("name", "least"), [("cjk", 0.98), ("identifiers", 0.95)])
def test_words_alone_find_the_evidence(opened: Database, name: str, least: float, small: bool) -> None:
    data = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    documents = {document["text"]: document["id"] for document in data["documents"]}
    accept(opened, list(documents))
    recaller = Recaller(opened, lambda: "by words only", Settings(word_candidates_max=2000 if small else 100))
    shares, missed = [], []
    for question in data["questions"]:
        recall = recaller.recall(
            "turns", RecallRequest(query=question["text"], scope=Scope("ops", ("ops",)), limit=5, budget_s=20)
        )
        found = {documents[hit.content] for hit in recall.hits}
        shares.append(len(found & set(question["evidence"])) / len(question["evidence"]))
        if shares[-1] < 1:
            missed.append(question["text"])
    assert len(documents) >= 90
    assert len(shares) >= 60
    assert sum(shares) / len(shares) >= least, missed


def few_of(
    connection: Connection, scope: Scope, query: str, *, rows: int, candidates: int = CANDIDATES
) -> WordCandidates:
    """The turns of a large scope among which the best are."""
    words = tokenizer.query(query, WORDS_MAX)
    return retrieval.word_candidates(connection, "turns", scope, words, rows=rows, candidates=candidates)


def held(
    connection: Connection, scope: Scope, query: str, *, rows: int, candidates: int = CANDIDATES
) -> dict[Key, float]:
    """The score of each turn that holds a word of the query."""
    few = few_of(connection, scope, query, rows=rows, candidates=candidates)
    found = bm25(few, 10_000, total=few.total, expected=few.expected)
    return dict(zip(found.keys, found.scores.sum(axis=1).tolist(), strict=True))


def scope_of(*themes: str, **more: Any) -> Scope:
    return Scope(themes[0], themes, **more)


@pytest.fixture
def filled(database: str, opened: Database) -> Database:
    """A theme of 3,000 rows: every row holds kelp, every second lamp, every third frog, every 300th zx81, one yarn.

    Another theme holds zx81 in each of its rows; a reserved theme holds plum, and nobody else does.
    """
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            """insert into conversations (agent_identity, session_id, role, content, ts, search)
               select theme, 's' || n %% 10, 'user', n || content, now() - make_interval(secs => %(rows)s - n),
                      strip(to_tsvector('english', content))
               from generate_series(1, %(rows)s) as n cross join lateral (values
                 ('ops', 'kelp' || case when n %% 2 = 0 then ' lamp' else '' end
                   || case when n %% 3 = 0 then ' frog' else '' end || case when n %% 300 = 0 then ' zx81' else '' end
                   || case when n = 1 then ' yarn' else '' end),
                 ('lab', 'zx81 drum'),
                 (%(person)s, 'plum')) as v (theme, content)""",
            {"rows": ROWS, "person": PERSON},
        )
        connection.execute("analyze conversations")
    return opened


def count_all(database: Database, rows_min: int = 1000) -> int:
    counted = 0
    with database.transaction(20, 60) as connection:
        while upkeep.count_words(connection, rows_min, RESERVED_PATTERN):
            counted += 1
            assert counted < 20
    return counted


def known(database: Database, theme: str) -> dict[str, int]:
    with database.connection(20) as connection:
        found = connection.execute("select word, rows from memory_words where agent_identity = %s", [theme])
        return {row["word"]: row["rows"] for row in found}


def test_the_common_words_of_a_large_theme_are_counted_from_a_sample(filled: Database) -> None:
    assert count_all(filled) == 4
    words = known(filled, "ops")
    assert words[""] == ROWS
    assert words["kelp"] == ROWS
    assert words["lamp"] == pytest.approx(ROWS / 2, rel=0.15)
    assert words["frog"] == pytest.approx(ROWS / 3, rel=0.15)
    assert set(words) == {"", "kelp", "lamp", "frog"}


@pytest.mark.parametrize("scope", [scope_of("ops"), Scope("ops", None)], ids=["a theme", "all"])
@pytest.mark.parametrize("holders", [0, 3])
def test_a_rare_word_is_found_beside_a_common_one_that_few_of_the_newest_rows_hold_before_words_are_counted(
    filled: Database, scope: Scope, holders: int
) -> None:
    newest, candidates = 160, 600
    accept(filled, [f"harbour {number} {'kelp' * (number < holders)}" for number in reversed(range(newest))])
    with filled.connection(20) as connection:
        few = few_of(connection, scope, "yarn kelp", rows=ROWS + newest, candidates=candidates)
    assert max(few.held.sum(axis=1)) == 2
    assert len(few.keys) <= candidates
    expected = dict(zip(few.words, few.expected.tolist(), strict=True))
    assert expected["yarn"] == 1
    assert expected["kelp"] >= ROWS


def test_a_theme_is_counted_again_when_it_has_grown_by_a_fifth(filled: Database, database: str) -> None:
    count_all(filled)
    assert count_all(filled) == 0
    with psycopg.connect(database, autocommit=True) as connection:
        grow = (
            "insert into conversations (agent_identity, role, content, search) "
            "select 'ops', 'user', 'drum', 'drum'::tsvector from generate_series(1, %s)"
        )
        connection.execute(grow, [ROWS // 6])
        assert count_all(filled) == 0
        connection.execute(grow, [ROWS // 6])
    assert count_all(filled) == 1
    assert known(filled, "ops")["drum"] == pytest.approx(ROWS / 3, rel=0.2)


def test_what_is_known_of_a_theme_goes_with_its_rows(filled: Database, database: str) -> None:
    count_all(filled)
    assert "plum" in known(filled, PERSON)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from conversations where agent_identity = %s", [PERSON])
    count_all(filled)
    assert known(filled, PERSON) == {}


def test_no_theme_learns_of_the_words_of_another(filled: Database) -> None:
    count_all(filled)
    assert "plum" not in known(filled, "")
    assert "plum" not in known(filled, "ops")
    assert "drum" not in known(filled, "ops")
    with filled.connection(20) as connection:
        before = held(connection, scope_of("ops"), "zx81 lamp", rows=ROWS)
        connection.execute("delete from memory_words where agent_identity <> 'ops'")
        assert held(connection, scope_of("ops"), "zx81 lamp", rows=ROWS) == before


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("scope", [scope_of("ops"), scope_of("ops", "nowhere")], ids=["one theme", "two themes"])
def test_a_scarce_word_outweighs_common_ones_however_old_its_rows_are(
    filled: Database, scope: Scope, counted: bool
) -> None:
    if counted:
        count_all(filled)
    with filled.connection(20) as connection:
        for word, query in (("yarn", "kelp lamp yarn"), ("zx81", "zx81 kelp")):
            holding = connection.execute(
                "select id from conversations where agent_identity = 'ops' and search @@ %s::tsquery", [word]
            ).fetchall()
            found = held(connection, scope, query, rows=ROWS)
            best = sorted(found, key=found.__getitem__, reverse=True)[: len(holding)]
            assert holding
            assert set(best) == {("ops", row["id"]) for row in holding}


def test_scores_of_a_large_theme_are_those_of_reading_it_whole(filled: Database) -> None:
    count_all(filled)
    with filled.connection(20) as connection:
        for query, holding in (("zx81 lamp frog", 10), ("yarn kelp", 1), ("zx81 yarn", 11)):
            whole = held(connection, scope_of("ops"), query, rows=ROWS, candidates=ROWS)
            few = held(connection, scope_of("ops"), query, rows=ROWS)
            best = sorted(whole, key=whole.__getitem__, reverse=True)[:holding]
            assert all(key in few for key in best)
            assert all(few[key] == pytest.approx(whole[key], rel=0.3) for key in best)


@not_on_citus.plans
def test_a_word_that_is_scarce_here_and_common_elsewhere_reads_few_rows(filled: Database) -> None:
    count_all(filled)
    with filled.connection(20) as connection:
        assert reads(connection, scope_of("ops"), "zx81") <= CANDIDATES


PASTED = "yarn " + " ".join(f"number{n}" for n in range(63))


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(
    "scope",
    [
        scope_of("ops"),
        scope_of("ops", "lab"),
        scope_of("ops", without_session="s3"),
        Scope("ops", None),
    ],
    ids=["one theme", "two themes", "without a session", "all"],
)
@not_on_citus.plans
def test_a_question_reads_a_bounded_number_of_rows(filled: Database, scope: Scope, counted: bool) -> None:
    if counted:
        count_all(filled)
    with filled.connection(20) as connection:
        for query in ("kelp", "kelp lamp frog", "zx81 kelp lamp", "drum lamp", PASTED):
            found = held(connection, scope, query, rows=ROWS)
            assert len(found) <= 1.5 * CANDIDATES
            assert reads(connection, scope, query) <= 2 * CANDIDATES


def counting(database: Database, **changed: Any) -> None:
    """What the writer of one process does after rows were stored."""
    maintenance = Maintenance(database, Settings(word_candidates_max=1000, **changed), share=1.0)
    maintenance.rows_changed()
    while maintenance.step():
        pass


def test_the_words_of_hidden_themes_do_not_count_for_all(filled: Database) -> None:
    counting(filled, bench_themes=["l?b"])
    assert known(filled, "lab")["drum"] == ROWS
    assert known(filled, "")[""] == ROWS
    assert "drum" not in known(filled, "")


def test_one_process_of_a_fleet_counts(filled: Database) -> None:
    counting(filled)
    assert known(filled, "ops")["kelp"] == ROWS
    with filled.connection(20) as connection:
        connection.execute("delete from memory_words")
    counting(filled)
    assert known(filled, "ops") == {}


@pytest.mark.parametrize("whole", [True, False])
@not_on_citus.plans
def test_a_long_text_is_unpacked_once_however_many_words_are_asked_for(opened: Database, whole: bool) -> None:
    scope = Scope("ops", ("ops",))
    texts = [" ".join(f"w{row}x{n}" for n in range(3000)) for row in range(30)]
    with opened.connection(20) as connection:
        connection.execute(
            "insert into conversations (agent_identity, role, content, search) "
            "select 'ops', 'user', text, to_tsvector('english', text) from unnest(%s::text[]) as text", [texts],
        )  # fmt: skip

        def blocks(query: str) -> int:
            def ask(asked: Connection) -> object:
                if whole:
                    return retrieval.scan(asked, "turns", scope, tokenizer.query(query, WORDS_MAX), None, 100)
                return few_of(asked, scope, query, rows=30, candidates=400)

            plan = explained(connection, ask)
            return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

        assert blocks(" ".join(f"w{n}x7" for n in range(60))) < 3 * blocks("w0x7 w1x7")


@not_on_citus.plans
def test_hits_are_fetched_by_their_keys_also_in_a_table_that_was_never_analysed(opened: Database) -> None:
    with opened.connection(20) as connection:
        connection.execute("alter table conversations set (autovacuum_enabled = off)")
        connection.execute(
            "insert into conversations (agent_identity, id, role, content, ts) overriding system value "
            "select 'ops', n, 'user', 'kelp', now() - n * interval '1 min' from generate_series(1, 30000) as n"
        )
        keys = [("ops", 1000 * n) for n in range(1, 21)]
        plan = explained(connection, lambda asked: retrieval.fetch(asked, "turns", keys))
        assert plan["Actual Rows"] == len(keys)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 6 * len(keys)


def reads(connection: Connection, scope: Scope, query: str) -> int:
    """Rows of the conversations that the plan of this question touches."""

    def total(node: dict[str, Any]) -> int:
        ours = node.get("Relation Name") == "conversations"
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] if ours else 0
        return int(own) + sum(total(child) for child in node.get("Plans", []))

    return total(explained(connection, lambda asked: few_of(asked, scope, query, rows=ROWS)))


def explained(connection: Connection, ask: Callable[[Connection], object]) -> dict[str, Any]:
    """The plan of the one statement that `ask` runs on the connection that it gets, as it went."""

    class Explaining:
        @contextmanager
        def cursor(self, **_: Any) -> Iterator[Explaining]:
            yield self

        def execute(self, statement: Any, parameters: Any) -> Explaining:
            connection.execute("set local enable_seqscan = off")
            row = connection.execute("explain (analyze, buffers, format json) " + statement, parameters).fetchone()
            plans.append(row["QUERY PLAN"][0]["Plan"] if row else {})
            return self

        def fetchall(self) -> list[tuple[Any, ...]]:
            return []

    plans: list[dict[str, Any]] = []
    with connection.transaction():
        ask(Explaining())  # type: ignore[arg-type]
    return plans[0]
