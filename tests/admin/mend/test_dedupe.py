"""`dedupe` on a real database: what it finds and merges, taken back, beside rows in use, and stopped half way."""

from __future__ import annotations

import io
import math
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector, started
from waiting import wait_for

from hermes_memory_pgvector.admin.mend.batches import Task
from hermes_memory_pgvector.admin.mend.duplicates import Search
from hermes_memory_pgvector.model import SessionEnded, TurnTaken, Update, Withdrawn
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare

HOME = "a" * 32


class Memory:
    def __init__(self, dsn: str, home: Path) -> None:
        self.dsn, self.home = dsn, home

    def __call__(self, *arguments: str) -> Outcome:
        return hermes_pgvector("--home", str(self.home), "dedupe", *arguments)

    def run(self, *arguments: str) -> Outcome:
        return hermes_pgvector("--home", str(self.home), *arguments)

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def add(
        self, content: str, degrees: float | None = None, *, theme: str = "ops", home: str = "", target: str = "memory",
        tags: Sequence[str] = (), minutes: int = 0, metadata: str = "{}",
    ) -> int:  # fmt: skip
        """Store an entry whose vector has this angle to that of 0 degrees, and return its id."""
        vector = None if degrees is None else at_angle(degrees)
        ((number,),) = self.sql(
            "insert into memory_entries (agent_identity, home, target, content, embedding, tags, metadata, updated_at) "
            "values (%s, %s, %s, %s, %s::halfvec, nullif(%s::text[], '{}'), %s::jsonb, "
            "'2026-05-01'::timestamptz + make_interval(mins => %s)) returning id",
            theme, home, target, content, vector, list(tags), metadata, minutes,
        )  # fmt: skip
        return int(number)

    def contents(self, theme: str = "ops") -> list[str]:
        found = self.sql("select content from memory_entries where agent_identity = %s order by id", theme)
        return [content for (content,) in found]

    def store(self, *events: Any) -> None:
        database = Database(Settings(dsn=self.dsn), self.home)  # type: ignore[arg-type]
        try:
            with database.transaction(10, 10) as connection:
                rows.apply(connection, [prepare(event) for event in events])
        finally:
            database.close()


def at_angle(degrees: float) -> str:
    radians = math.radians(degrees)
    return str([math.cos(radians), math.sin(radians), *[0] * 382])


@pytest.fixture
def memory(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    return Memory(database, tmp_path)


def test_the_newest_of_the_same_words_stays_and_undo_brings_back_the_others(memory: Memory) -> None:
    older = memory.add("Staging runs on port 5433", tags=["db"])
    memory.add("staging runs on port 5433.", minutes=5, tags=["ops"])
    memory.add("Staging runs on port 5433!", target="user")
    memory.add("Staging runs on port 5433,", theme="home")
    memory.add("Staging runs on port 5432")
    plan = memory("--dry-run", "--json")
    (group,) = plan.document["groups"]
    assert (plan.code, group["theme"], group["reworded"]) == (0, "ops", False)
    assert [row["content"] for row in group["keep"]] == ["staging runs on port 5433."]
    assert [(row["id"], row["source"]) for row in group["merge"]] == [(older, "database")]
    assert len(memory.contents()) == 4
    done = memory("--yes", "--json")
    assert (done.code, done.document["merged"], done.document["left"]) == (0, 1, 0)
    assert memory.contents() == [
        "staging runs on port 5433.",
        "Staging runs on port 5433!",
        "Staging runs on port 5432",
    ]
    assert memory.sql("select tags from memory_entries where tags is not null") == [(["db", "ops"],)]
    (past,) = memory.run("history", "--json").document["history"]
    assert (past["how"], past["content"], past["replaced_by"]) == (
        "removed", "Staging runs on port 5433", "staging runs on port 5433."
    )  # fmt: skip
    assert memory("--yes").out == "no rows say the same\n"
    undone = memory.run("undo", str(past["id"]), "--json").document
    assert undone["beside"] is not None
    assert sorted(memory.contents())[-2:] == ["Staging runs on port 5433!", "staging runs on port 5433."]
    assert len(memory.contents()) == 4


def test_the_old_id_of_a_merged_entry_leads_to_the_one_that_stays(memory: Memory) -> None:
    older = memory.add("Staging runs on port 5433")
    memory.add("staging runs on port 5433.", minutes=5)
    assert memory("--yes").code == 0
    memory.store(Update(theme="ops", entry_id=older, content="Staging runs on port 5434"))
    assert memory.contents() == ["Staging runs on port 5434"]


def test_other_words_are_found_by_vectors_and_merged_only_when_agreed_to(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("The database of staging is Postgres on port 5433", 0)
    memory.add("staging has Postgres on port 5433", 8)
    memory.add("staging has Postgres on port 5432", 4)
    memory.add("staging has no Postgres on port 5433", 4)
    memory.add("Backups run at night", 45)
    memory.add("every night there are backups", 50)
    memory.add("every night there are backups for all", 80)
    done = memory("--yes", "--json")
    assert (done.code, done.document["merged"], done.document["not_agreed"]) == (3, 0, 2)
    assert len(memory.contents()) == 7
    first, second = done.document["groups"]
    assert [row["content"] for row in second["keep"]] == ["The database of staging is Postgres on port 5433"]
    assert (first["similarity"], second["similarity"]) == (0.996, 0.99)
    assert memory("--dry-run", "--json", "--similarity", "0.995").document["groups"] == [first]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\ny\n"))
    asked = memory()
    assert (asked.code, "merged 1 row" in asked.out) == (0, True)
    assert "staging has Postgres on port 5433" not in memory.contents()
    assert memory("--yes", "--reworded").code == 0
    assert "Backups run at night" not in memory.contents()
    assert len(memory.contents()) == 5


def test_answers_merge_all_that_follow_or_stop_and_a_no_changes_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        memory.add("backups run there every night", 20 * number, theme=f"t{number}")
        memory.add("every night backups run", 20 * number, theme=f"t{number}")
        memory.add("every night, backups run", 20 * number, theme=f"t{number}")
    for answers in ("n\nq\n", "n\nn\nn\nn\nn\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answers))
        refused = memory()
        assert (refused.code, "nothing is changed" in refused.err) == (1, True)
    for wrong in (["--json"], ["--similarity", "0.2", "--yes"], ["--similarity", "x"], ["--kind", "facts"]):
        assert memory(*wrong).code == 2
    assert sum(len(memory.contents(f"t{number}")) for number in range(4)) == 12
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nn\na\n"))
    assert "merged 7 rows" in memory().out
    assert [len(memory.contents(f"t{number}")) for number in range(4)] == [2, 1, 1, 1]


def test_lines_of_memory_files_stay_and_stay_when_the_file_loses_them(memory: Memory) -> None:
    line = memory.add("Staging runs on port 5433", home=HOME)
    memory.add("staging runs on port 5433.", minutes=5)
    memory.add("staging runs on Port 5433", home="b" * 32)
    plan = memory("--dry-run")
    assert "stay" in plan.out and "lines of MEMORY.md" in plan.err  # noqa: PT018
    done = memory("--yes", "--json").document
    assert [[row["content"] for row in done["groups"][0][side]] for side in ("keep", "merge", "stay")] == [
        ["staging runs on Port 5433"], ["staging runs on port 5433."], ["Staging runs on port 5433"]
    ]  # fmt: skip
    assert memory.contents() == ["Staging runs on port 5433", "staging runs on Port 5433"]
    found = memory.sql("select home, metadata ->> 'origin' from memory_entries order by id = %s", line)
    assert found == [("", "remember"), (HOME, None)], "an entry that no file has was merged into it"


def test_what_an_agent_asked_to_remember_stays_so(memory: Memory) -> None:
    memory.add("Staging runs on port 5433", metadata='{"origin": "remember"}')
    memory.add("staging runs on port 5433.", minutes=5, metadata='{"origin": "undo", "n": 1}')
    assert memory("--yes").code == 0
    assert memory.sql("select metadata from memory_entries") == [({"origin": "remember", "n": 1},)]


def test_entries_that_expire_and_those_of_other_accounts_of_a_person_are_left(memory: Memory) -> None:
    memory.add("Staging runs on port 5433")
    expiring = memory.add("staging runs on port 5433.")
    memory.sql("update memory_entries set expires_at = now() + interval '1 day' where id = %s", expiring)
    memory.add("staging runs on Port 5433", metadata='{"linked_account": "dm-telegram-1"}')
    assert memory("--yes").out == "no rows say the same\n"


def test_long_texts_are_not_compared_by_the_vector_of_their_beginning(memory: Memory) -> None:
    first = memory.add("backups run at night and are kept for weeks", 0)
    memory.add("every night there are backups", 0)
    memory.sql("insert into memory_entry_pieces values ('ops', %s, 0, %s::halfvec)", first, at_angle(0))
    assert memory("--dry-run", "--json").document["groups"] == []


def test_turns_go_as_exchanges_of_the_same_words_and_no_replay_brings_them_back(memory: Memory) -> None:
    said = [("is it up?", "Yes, all is well."), ("Is it up?", "yes all is well"), ("is it up?", "No, it is down.")]
    said = [said[0], (said[1][0], "yes, all is well"), said[2]]
    taken = [
        TurnTaken(theme="ops", session_id=f"s{number}", user=user, assistant=answer)
        for number, (user, answer) in enumerate(said)
    ]
    memory.store(*taken)
    assert memory("--yes").out == "no rows say the same\n"
    done = memory("--kind", "turns", "--yes", "--json")
    assert (done.code, done.document["merged"], len(done.document["groups"])) == (0, 2, 1)
    left = memory.sql("select session_id, role from conversations order by session_id, role desc")
    assert left == [("s1", "user"), ("s1", "assistant"), ("s2", "user"), ("s2", "assistant")]
    memory.store(SessionEnded(theme="ops", session_id="s0", turns=(said[0],)))
    assert len(memory.sql("select id from conversations")) == 4


def test_rows_in_use_are_left_and_said(memory: Memory) -> None:
    memory.add("Staging runs on port 5433")
    memory.add("staging runs on port 5433.", minutes=5)
    with psycopg.connect(memory.dsn) as other:
        other.execute(
            "select 1 from memory_entries where agent_identity = 'ops' and content like 'Staging%' for update"
        )
        done = memory("--yes", "--json")
    assert (done.code, done.document["merged"], done.document["left"]) == (3, 0, 1)
    assert memory("--yes").code == 0


def fill(memory: Memory, count: int) -> None:
    memory.sql(
        "insert into memory_entries (agent_identity, target, content) select 'ops', 'memory', "
        "case n %% 2 when 0 then 'Row ' else 'row ' end || (n / 2)::text from generate_series(0, %s - 1) as n",
        count,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@not_on_citus.triggers
def test_one_that_is_stopped_half_way_can_be_run_again(memory: Memory, how: signal.Signals) -> None:
    fill(memory, 400)
    slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.005); return old; end'"
    memory.sql(slow)
    memory.sql("create trigger slow before delete on memory_entries for each row execute function slow()")
    process = started(memory.dsn, memory.home, "dedupe", "--yes", "--json")
    wait_for(lambda: len(memory.contents()) < 400)
    process.send_signal(how)
    out, _ = process.communicate(timeout=60)
    left = len(memory.contents())
    assert 200 < left < 400
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert '"interrupted": true' in out
    memory.sql("drop trigger slow on memory_entries")
    again = memory("--yes", "--json")
    assert (again.code, again.document["merged"]) == (0, left - 200)
    assert len(memory.contents()) == 200
    assert len(memory.sql("select id from memory_history")) == 200


def test_a_limit_leaves_groups_for_the_next_run(memory: Memory) -> None:
    fill(memory, 20)
    first = memory("--yes", "--json", "--limit", "4")
    assert (first.code, first.document["merged"], first.document["more"]) == (3, 4, 6)
    assert (memory("--yes").code, len(memory.contents())) == (0, 10)


@pytest.mark.slow
def test_of_a_hundred_thousand_entries_the_same_words_and_the_similar_ones_are_found(memory: Memory) -> None:
    memory.sql(
        "insert into memory_entries (agent_identity, target, content) select 'ops', 'memory', 'row ' || n "
        "from generate_series(1, 99000) as n union all select 'ops', 'memory', 'Row ' || 99 * n "
        "from generate_series(1, 1000) as n"
    )
    for number in range(100):
        memory.add(f"backups of {number} run at night", 1.8 * number)
        memory.add(f"there are backups of {number} every night", 1.8 * number)
    memory.sql("vacuum analyze memory_entries")
    done = memory("--yes", "--reworded", "--json", "--limit", "100000")
    assert (done.code, done.document["merged"], len(memory.contents())) == (0, 1100, 99_100)


def test_copies_of_a_turn_that_was_withdrawn_meanwhile_stay(memory: Memory) -> None:
    said = [TurnTaken(theme="ops", home=HOME, session_id="s", user="Is it up?", assistant="It is.") for _ in range(3)]
    lasting = [
        TurnTaken(theme="ops", home=HOME, session_id="t", user="Since when?", assistant="May.") for _ in range(2)
    ]
    memory.store(*said, *lasting)
    search, database = Search("turns", 0.9), Database(Settings(dsn=memory.dsn), memory.home)  # type: ignore[arg-type]

    def run(tasks: Iterable[Task]) -> int:
        done = 0
        for task in tasks:
            rows = -1
            while rows:
                with database.transaction(10, 10) as connection:
                    rows = task.batch(connection, 2)
                done += rows
        return done

    try:
        run(search.tasks([("ops", 10)]))
        undone = Withdrawn(theme="ops", home=HOME, session_id="s", turns=(("Is it up?", "It is."),), standing=(2,))
        memory.store(undone)
        assert run(search.merging(search.found)) == 2
    finally:
        database.close()
    left = memory.sql("select content, count(*) from conversations group by content order by content")
    assert left == [("Is it up?", 2), ("It is.", 2), ("May.", 1), ("Since when?", 1)]
