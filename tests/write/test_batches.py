from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint, vector
from waiting import wait_for

from hermes_memory_pgvector.model import Add, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings

FACT, QUESTION = "The kelp grows at the northern pier.", "Could you also draft the mail to the landlord?"
PIECES = (
    "select count(p.piece), max(1 - (p.embedding <=> %s::halfvec)) from conversations c "
    "left join conversation_pieces p on p.agent_identity = c.agent_identity and p.row_id = c.id "
    "group by c.id order by c.id"
)


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "embed_wait_s": 60, **changed}
        running.append(acquire(Settings(**values), tmp_path / "home"))
        assert running[-1].wait_ready(30)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def turn(user: str, assistant: str = "Noted. I will keep the kelp in mind for you.") -> TurnTaken:
    return TurnTaken(theme="ops", session_id="s", user=user, assistant=assistant)


def pieces(database: str) -> list[tuple[int, float | None]]:
    """The number of pieces of each row, and the cosine of the best of them with the fact."""
    with psycopg.connect(database) as connection:
        found = connection.execute(PIECES, [str(vector(FACT))]).fetchall()
    return [(count, best and round(best, 2)) for count, best in found]


def test_the_sentences_of_a_user_are_stored_with_the_turn_and_each_is_embedded_once(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start()
    wait_for(lambda: runtime.compatibility.floor is not None)
    before = endpoint.texts
    runtime.accept(turn(f"{FACT} {QUESTION}"))
    runtime.accept(turn("Where does the kelp grow?"))
    assert runtime.writer.flush(60)
    assert pieces(database) == [(2, 1.0), (0, None), (0, None), (0, None)]
    assert endpoint.texts - before == 4 + 2


def test_vectors_that_come_late_are_added_with_those_of_the_sentences(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start(embed_wait_s=0.2)
    wait_for(lambda: runtime.compatibility.floor is not None)
    before = endpoint.texts
    with endpoint.hanging():
        runtime.accept(turn(f"{FACT} {QUESTION}"))
        assert runtime.writer.flush(60)
        assert pieces(database) == [(0, None), (0, None)]
    wait_for(lambda: pieces(database) == [(2, 1.0), (0, None)])
    assert endpoint.texts - before == 4


@pytest.mark.parametrize(("sentences_max", "expected"), [(0, 0), (1, 0), (2, 2), (6, 3)])
def test_a_message_has_at_most_as_many_vectors_of_sentences_as_are_set(
    start: Callable[..., Runtime], database: str, sentences_max: int, expected: int
) -> None:
    runtime = start(embed_sentences_max=sentences_max)
    runtime.accept(turn(f"{FACT} {QUESTION} The lamp of the harbour is red since Monday."))
    runtime.accept(Add(theme="ops", home=runtime.home.id, target="user", content=f"{FACT} {QUESTION}"))
    assert runtime.writer.flush(60)
    assert [count for count, _ in pieces(database)] == [expected, 0]
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from memory_entry_pieces").fetchone() == (0,)
