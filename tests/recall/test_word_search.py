from __future__ import annotations

import psycopg
import pytest
from connected import connected
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Scope
from hermes_memory_pgvector.store import retrieval
from hermes_memory_pgvector.store.queries import WORDS_MAX
from hermes_memory_pgvector.text import tokenizer

pytestmark = pytest.mark.each_version

SAMPLES = "ab Z 0 19 é ß 数据 カ 한글 สวั हि 5e10 e db . - _ / : @ + # ' , \u0301 < & \\ * ? = 1.5 ½ 😀"
PIECES = st.sampled_from(SAMPLES.split(" "))
MESSY = st.lists(PIECES, min_size=1, max_size=30).map("".join)
PROSE = """The Backups of db-prod-03 failed with ECONNREFUSED at 10.0.3.7:5432; see /etc/nginx/nginx.conf, user_id 42,
maxRetryCount=5, foo.bar(), v1.2.3, anna.k@example.com, https://docs.example.com/a/b-c?x=1&y=2 and
550e8400-e29b-41d4-a716-446655440000. 数据库的密码政策 学校に行きました 안녕하세요 สวัสดีครับ हिन्दी"""


def lexemes(connection: psycopg.Connection, text: str) -> set[str]:
    row = connection.execute("SELECT tsvector_to_array(to_tsvector('english', %s))", (text,)).fetchone()
    assert row is not None
    return set(row[0])


QUESTIONS = """backup failing db-prod-03 db_prod_03 prod econnrefused 10.0.3.7 10.0.3.7:5432 nginx.conf user_id userId
/etc/nginx/nginx.conf maxRetryCount retries foo.bar v1.2.3 anna.k@example.com example.com docs.example.com
550e8400-e29b-41d4-a716-446655440000 密码 库 学校 안녕 ครับ हिन्दी"""


@pytest.mark.parametrize("question", QUESTIONS.split())
def test_a_question_finds_the_row(database: str, question: str) -> None:
    with psycopg.connect(database) as connection:
        asked = lexemes(connection, " ".join(tokenizer.query(question, WORDS_MAX)))
        assert asked
        row = lexemes(connection, tokenizer.document(PROSE))
        assert asked & row
        if not question[0].isalpha() or "-" in question or "." in question:
            assert asked <= row


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(text=MESSY)
def test_postgres_keeps_every_token_whole(database: str, text: str) -> None:
    document, question = tokenizer.document(text), " ".join(tokenizer.query(text, 10_000))
    with psycopg.connect(database) as connection:
        assert lexemes(connection, question) <= lexemes(connection, document)
        parsed = connection.execute("SELECT token FROM ts_parse('default', %s) WHERE tokid <> 12", (document,))
        assert {token for (token,) in parsed} == set(document.split())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(text=MESSY | st.lists(st.sampled_from(PROSE.split())).map(" ".join))
def test_words_have_the_same_terms_alone_as_together(database: str, text: str) -> None:
    words = tokenizer.query(text, WORDS_MAX)
    with psycopg.connect(database) as connection:
        alone = connection.execute(
            "SELECT querytree(plainto_tsquery('english', word)), numnode(plainto_tsquery('english', word)) "
            "FROM unnest(%s::text[]) AS word", [words],
        ).fetchall()  # fmt: skip
        assert all(nodes <= 1 for _, nodes in alone)
        assert {term[1:-1].replace("''", "'") for term, nodes in alone if nodes} == lexemes(connection, " ".join(words))


@pytest.mark.parametrize("candidates", [0, 100])
def test_of_words_with_the_same_term_the_first_is_searched_for_and_no_stop_word(database: str, candidates: int) -> None:
    scope = Scope("ops", ("ops",))
    words = tokenizer.query("the failing backups failed", WORDS_MAX)
    with connected(database) as connection:
        connection.execute(
            "insert into conversations (agent_identity, role, content, search) "
            "values ('ops', 'user', 'backup failed', to_tsvector('english', 'backup failed'))"
        )
        if candidates:
            few = retrieval.word_candidates(connection, "turns", scope, words, rows=1, candidates=candidates)
            held, kept = few.held, few.words
        else:
            scan = retrieval.scan(connection, "turns", scope, words, None, 10)
            held, kept = scan.held, scan.words
    assert held.tolist() == [[True, True]]
    assert kept == ["failing", "backups"]


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"word{i:x}" for i in range(30_000)),
        "".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(100_000)),
        "-".join(f"p{i}" for i in range(20_000)),
        "x" * 100_000,
        "\ufdfa" * 10_000,
    ],
)
def test_the_longest_row_fits_a_tsvector(database: str, text: str) -> None:
    with psycopg.connect(database) as connection:
        assert lexemes(connection, tokenizer.document(text))


ROWS = 60_000
# A word of all rows, words of 8 rows each, and as many of more rows as the planner has statistics of: it expects those
# that it does not know to be nearly as frequent.
STORED = f"""
insert into conversations (agent_identity, session_id, role, content, ts, search)
select 't', 's', 'user', 'x', timestamptz '2024-01-01' + n * interval '1 second',
       array_to_tsvector(
         array['all', 'rare' || n / 8] || array(select 'w' || (n * k * 79) % 1500 from generate_series(1, 9) as k))
from generate_series(0, {ROWS - 1}) as n"""
NEWEST = "select id from memory_rows_with_words('turns', %s::tsquery, null, '', '^$', 20, true)"
FETCHED = "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relname = 'conversations'"


@pytest.mark.slow
def test_the_newest_rows_with_a_word_are_found_without_reading_all(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(STORED.encode())
        connection.execute("vacuum analyze conversations")
        with connection.transaction():
            rare = " | ".join(f"rare{n}" for n in range(10))
            found = [id for (id,) in connection.execute(NEWEST, [rare])]
            [fetched] = connection.execute(FETCHED).fetchone() or [0]
        assert sorted(found) == list(range(61, 81))
        assert fetched < 1000
        assert [id for (id,) in connection.execute(NEWEST, ["all"])] == list(range(ROWS, ROWS - 20, -1))
