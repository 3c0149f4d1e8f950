"""reembed: another model, with vectors of the same or of another length, on databases without and with live agents."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import not_on_citus
import psycopg
import pytest
from agents import Agent
from commandline import Outcome, hermes_pgvector
from hostrig.terminal import Terminal
from loopback import Endpoint, vector
from servers import Server
from waiting import wait_for

from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import Add, FactWritten, RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import load

pytestmark = not_on_citus.reembed

SCHEMA = """
    select 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index i
    join pg_class c on c.oid = i.indrelid where c.relnamespace = current_schema()::regnamespace and indisvalid
    union all
    select 'column', attrelid::regclass::text || '.' || attname,
           format_type(atttypid, atttypmod) || ' ' || attstorage::text || ' ' || attnotnull
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.relnamespace = current_schema()::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped
    union all
    select 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid) from pg_constraint
    where connamespace = current_schema()::regnamespace and contype <> 'n'
    order by 1, 2"""
LACKING = """
    select (select count(*) from conversations where embedding is null)
    + (select count(*) from memory_entries where embedding is null)
    + (select count(*) from facts where embedding is null)"""


class Model(Endpoint):
    """An endpoint whose vectors have nothing in common with those of another one. It fails after `texts_max` texts."""

    texts_max = 1 << 30

    def __init__(self, name: str, dimensions: int = 384) -> None:
        self.name = name
        super().__init__(dimensions)

    def _answer(self, texts: list[str]) -> dict[str, Any]:
        if self.texts + len(texts) > self.texts_max:
            self.status = 503
        return super()._answer([self._own(text) for text in texts])

    def _own(self, text: str) -> str:
        return " ".join(f"{self.name}{word}" for word in re.findall(r"\w+", text))

    def similarity(self, text: str, stored: str) -> float:
        """The cosine of a stored vector to that of a text."""
        own = vector(self._own(text), self.dimensions)
        return sum(a * float(b) for a, b in zip(own, stored[1:-1].split(","), strict=True))


@pytest.fixture
def models() -> Iterator[Callable[..., Model]]:
    made: list[Model] = []

    def make(name: str, dimensions: int = 384) -> Model:
        made.append(Model(name, dimensions))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
def home(tmp_path: Path, database: str, models: Callable[..., Model]) -> Path:
    """A home that uses the database and the model `old`, by its saved settings."""
    home = tmp_path / "home"
    home.mkdir()
    old = models("old")
    (home / "pgvector").mkdir()
    values = {"dsn": database, "embed_url": old.url, "embed_model": "old", "heal_interval_s": 1, "embed_chars_max": 400}
    (home / "pgvector" / "config.json").write_text(json.dumps(values))
    return home


@pytest.fixture
def runtime(home: Path) -> Iterator[Runtime]:
    """An agent of the home in this process."""
    runtime = acquire(load(home), home)
    yield runtime
    release(runtime)


def run(home: Path, *arguments: str) -> Outcome:
    return hermes_pgvector("--home", str(home), *arguments)


def run_until_done(home: Path, *arguments: str, tries: int = 10) -> Outcome:
    """Run a command that skips rows in use, again while it asks for that by its exit code 3."""
    for _ in range(tries):
        if (outcome := run(home, *arguments)).code != 3:
            break
    return outcome


def rows(dsn: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode(), parameters or None).fetchall()


def say(runtime: Runtime, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        # Each long text ends its session: as a context it would outweigh the text after it.
        session, text = f"s{number % 3}", f"kelp{number} grows in basin{number}"
        if number % 7 == 3:
            session, text = f"long{number}", text + " and some more of it" * 100
        runtime.accept(TurnTaken(theme="ops", session_id=session, user=f"where is kelp{number}?", assistant=text))


def fill(runtime: Runtime, dsn: str, count: int) -> None:
    """Turns, some of them long, an entry and a fact, with their vectors."""
    say(runtime, count)
    runtime.accept(Add(theme="ops", target="memory", content="The moorings are checked on Fridays."))
    runtime.accept(FactWritten(theme="ops", target="db.id", content="UUID", kind="C"))
    assert runtime.writer.flush(600)
    wait_for(lambda: rows(dsn, LACKING) == [(0,)], 600)


def recalled(runtime: Runtime, number: int) -> tuple[float | None, tuple[str, ...], str]:
    """Similarity and text of the best hit for a question that was asked before, and what degraded the recall."""
    scope = Scope(own="ops", themes=("ops",))
    found = runtime.recall("turns", RecallRequest(query=f"where is kelp{number}?", scope=scope, limit=3, budget_s=20))
    best = found.hits[0] if found.hits else None
    return (best.similarity if best else None), found.degraded, best.content if best else ""


def of_model(dsn: str, model: Model) -> tuple[int, int]:
    """How many rows have a vector, and of how many it is one of this model."""
    found = rows(
        dsn, "select content, embedding::text from conversations where embedding is not null"
        " union all select content, embedding::text from memory_entries where embedding is not null"
    )  # fmt: skip
    return len(found), sum(model.similarity(content[:400], stored) > 0.25 for content, stored in found)


@pytest.mark.parametrize("dimensions", [384, 768, 1024])
def test_a_live_agent_follows_to_the_new_model_and_the_schema_is_as_for_it(
    home: Path,
    runtime: Runtime,
    database: str,
    models: Callable[..., Model],
    make_database: Callable[..., str],
    dimensions: int,
) -> None:
    fill(runtime, database, 20)
    before, _, _ = recalled(runtime, 4)
    assert before is not None
    new = models("new", dimensions)
    outcome = run(
        home, "reembed", "--model", "new", "--url", new.url, "--dimensions", str(dimensions), "--yes", "--json"
    )
    assert outcome.code == 0, outcome.shown
    assert outcome.document["switched"]
    compared = outcome.document["compared"]
    assert compared["found"] == compared["matching"] == compared["sampled"] > 0
    assert compared["problem"] == ""
    assert outcome.document["settings"] == {"embed_url": new.url, "embed_model": "new", "embed_dimensions": dimensions}
    assert load(home).embed_model == "new"
    stored, ours = of_model(database, new)
    assert stored == ours == 41
    assert rows(database, LACKING) == [(0,)]
    assert rows(database, "select count(*) > 0 from conversation_pieces") == [(True,)]
    assert rows(database, SCHEMA) == rows(make_database(dimensions), SCHEMA)
    wait_for(lambda: recalled(runtime, 4)[0] is not None)
    similarity, degraded, content = recalled(runtime, 4)
    assert similarity == pytest.approx(before, abs=0.15)
    assert degraded == ()
    assert "kelp4" in content
    say(runtime, 5, first=100)
    assert runtime.writer.flush(60)
    wait_for(lambda: of_model(database, new) == (51, 51))


def test_the_bars_of_backfill_and_reembed_reach_their_end(
    home: Path, database: str, models: Callable[..., Model], tmp_path: Path
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into memory_entries (agent_identity, target, content)"
            " select 'ops', 'memory', 'Kelp number ' || n from generate_series(1, 60) n"
        )
    program = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(home)]
    environment = {**os.environ, "TERM": "xterm"}
    reembed = ["reembed", "--model", "new", "--url", models("new").url, "--yes"]
    for command in (["backfill", "--batch", "7"], reembed):
        with Terminal([*program, *command], cwd=tmp_path, environment=environment) as terminal:
            assert terminal.ended() == 0
            terminal.wait("60/60")
            assert not re.search(r"\b0/0\b|a second", terminal.text)


def test_a_model_without_an_endpoint_names_the_option(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    refused = hermes_pgvector("--home", str(tmp_path), "reembed", "--model", "foo", "--dry-run")
    assert (refused.code, "--model 'foo' is no bundled model" in refused.err, "--url" in refused.err) == (2, True, True)


def test_a_plan_changes_nothing_and_an_interrupted_run_goes_on_or_is_abandoned(
    home: Path, runtime: Runtime, database: str, models: Callable[..., Model]
) -> None:
    fill(runtime, database, 20)
    old = of_model(database, models("old"))
    before = rows(database, SCHEMA)
    new = models("new")
    planned = run(home, "reembed", "--model", "new", "--url", new.url, "--dry-run", "--json")
    assert planned.code == 0, planned.shown
    assert (planned.document["plan"]["rows"], planned.document["plan"]["lacking"]) == (42, 42)
    assert (
        "42, of which 42 have to be embedded"
        in run(home, "reembed", "--model", "new", "--url", new.url, "--dry-run").out
    )
    assert rows(database, SCHEMA) == before
    new.texts_max = new.texts + 56
    broken = run(home, "reembed", "--model", "new", "--url", new.url, "--batch", "8", "--yes")
    assert broken.code == 1
    assert "run the command again" in broken.err
    assert (of_model(database, models("old")), load(home).embed_model) == (old, "old")
    similarity, degraded, _ = recalled(runtime, 4)
    assert (similarity is not None, degraded) == (True, ())
    other = run(home, "reembed", "--model", "other", "--url", models("other").url, "--yes")
    assert other.code != 0
    assert "a change to new (384 dimensions) is unfinished" in other.err
    new.texts_max, new.status = 1 << 30, 200
    again = run(home, "reembed", "--model", "new", "--url", new.url, "--dry-run", "--json").document["plan"]
    assert again["begun"]
    assert 0 < again["lacking"] < again["rows"]
    abandoned = run(home, "reembed", "--abandon", "--json")
    assert abandoned.document == {"abandoned": {"model": "new", "dimensions": 384}}
    assert rows(database, SCHEMA) == before
    assert of_model(database, models("old")) == old
    assert run(home, "reembed", "--abandon").code == 0


def test_agents_of_an_earlier_release_are_listed_and_refused(
    home: Path, database: str, models: Callable[..., Model]
) -> None:
    new = models("new")
    arguments = ("reembed", "--model", "new", "--url", new.url, "--yes")
    with psycopg.connect(database, application_name="hermes-pgvector"):
        refused = run(home, *arguments)
        assert refused.code != 0
        assert "1 connection of earlier releases (postgres from this machine)" in refused.err
        assert "--force" in refused.err
        assert rows(database, "select value from hermes_pgvector_settings where name = 'embedding_model'") == []
        forced = run(home, *arguments, "--force")
        assert forced.code == 3, forced.shown
    assert rows(database, "select value from hermes_pgvector_settings where name = 'embedding_model'") == [("new",)]


def test_an_agent_that_names_the_old_model_recalls_by_words_and_others_heal_its_rows(
    home: Path, runtime: Runtime, database: str, models: Callable[..., Model], tmp_path: Path
) -> None:
    fill(runtime, database, 10)
    behind = tmp_path / "behind"
    (behind / "pgvector").mkdir(parents=True)
    values = json.loads((home / "pgvector" / "config.json").read_text())
    (behind / "pgvector" / "config.json").write_text(json.dumps({**values, "home_label": "north desk"}))
    other = acquire(load(behind), behind)
    try:
        wait_for(lambda: recalled(other, 4)[0] is not None)
        new = models("new")
        outcome = run(home, "reembed", "--model", "new", "--url", new.url, "--yes", "--json")
        assert outcome.code == 3, outcome.shown
        other_home = {"home": "north desk", "model": "old", "processes": 1}
        assert outcome.document["plan"]["others"] == [other_home]
        homes = run(home, "status", "--json").document["homes"]
        assert other_home in homes
        assert Home(home).known_id[:8] in {each["home"] for each in homes}
        assert "north desk (1)" in run(home, "status").out
        told = {
            str(row[0]) for row in rows(database, "select holder from hermes_pgvector_leases where name ~ '^client '")
        }
        assert {tuple(json.loads(holder)) for holder in told} == {("home", "model")}
        assert not any(str(secret) in one for secret in (behind, gethostname(), os.getpid()) for one in told)
        similarity, degraded, content = recalled(other, 4)
        assert similarity is None
        assert "kelp4" in content
        assert "words" in degraded[0]
        say(other, 5, first=100)
        assert other.writer.flush(60)
        wait_for(lambda: of_model(database, new) == (31, 31))
        assert recalled(other, 4)[0] is None
        wait_for(lambda: "the database holds vectors of new, this process uses old" in str(recalled(other, 4)[1]))
        saved = (
            run(behind, "settings", "set", "embed_model", "new"),
            run(behind, "settings", "set", "embed_url", new.url),
        )
        assert [each.code for each in saved] == [0, 0]
        wait_for(lambda: recalled(other, 4)[0] is not None)
    finally:
        release(other)


def test_migrate_refuses_beside_agents_of_an_earlier_release_and_while_a_change_is_unfinished(
    home: Path, empty_database: str, database: str
) -> None:
    with psycopg.connect(empty_database, application_name="hermes-pgvector"):
        refused = run(home, "migrate", "--dsn", empty_database)
        assert (refused.code, "1 connection of earlier releases" in refused.err) == (1, True), refused.shown
        assert rows(empty_database, "select to_regclass('conversations')") == [(None,)]
        assert run(home, "migrate", "--dsn", empty_database, "--dimensions", "384", "--force").code == 0
    with psycopg.connect(database) as connection:
        connection.execute("delete from hermes_pgvector_migrations where version > 11")
        connection.execute("insert into hermes_pgvector_settings values ('reembed', '{}')")
    unfinished = run(home, "migrate")
    assert unfinished.code == 1
    assert "a change of the embedding model is unfinished" in unfinished.err


class Traffic:
    """A process that stores turns, and recalls by an agent in this process, both until the block ends."""

    def __init__(self, agent: Agent, runtime: Runtime, asked: int) -> None:
        self.taken, self.answers = 0, list[tuple[float | None, tuple[str, ...], str, int]]()
        self._agent, self._runtime, self._asked = agent, runtime, asked
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._recall)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        while not self._stop.wait(0.3):
            self._agent.take(2)
            self.taken += 2

    def _recall(self) -> None:
        while not self._stop.wait(0.01):
            number = 1 + len(self.answers) % self._asked
            self.answers.append((*recalled(self._runtime, number), number))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [40, pytest.param(5_000, marks=pytest.mark.slow)])
def test_under_live_writes_and_after_a_kill_nothing_is_lost_no_recall_fails_and_no_models_mix(
    home: Path, runtime: Runtime, database: str, models: Callable[..., Model], count: int
) -> None:
    fill(runtime, database, count)
    new = models("new", 768)
    new.delay_per_text_s = 0.05
    arguments = ["--home", str(home), "reembed", "--model", "new", "--url", new.url, "--yes"]
    values = json.loads((home / "pgvector" / "config.json").read_text())
    agent = Agent(home, **values)
    with Traffic(agent, runtime, 6) as traffic:
        wait_for(lambda: traffic.taken > 4 and len(traffic.answers) > 4)
        command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", *arguments, "--batch", "8"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as killed:
            begun = "select count(*) from hermes_pgvector_settings where name = 'reembed'"
            wait_for(lambda: rows(database, begun) == [(1,)])
            wait_for(lambda: rows(database, "select count(embedding_next) > 8 from conversations") == [(True,)])
            killed.send_signal(signal.SIGKILL)
        new.delay_per_text_s = 0.0
        again = hermes_pgvector(*arguments, "--json")
        assert again.code == 0, again.shown
        assert again.document["plan"]["lacking"] < again.document["plan"]["rows"], "what was done before the kill stays"
        switched = len(traffic.answers)
        wait_for(lambda: any(answer[0] is not None for answer in traffic.answers[switched:]))
    agent.end()
    assert runtime.writer.flush(60)
    wait_for(lambda: rows(database, LACKING) == [(0,)])
    said = rows(
        database, "select content, count(*) from conversations where content like 'question %' group by content"
    )
    assert dict(said) == {f"question {number} of one": 1 for number in range(traffic.taken)}
    stored, ours = of_model(database, new)
    assert stored == ours == 2 * (count + traffic.taken) + 1
    for similarity, degraded, content, number in traffic.answers:
        assert f"kelp{number}" in content, degraded
        assert similarity is None or similarity > 0.25, "a vector was compared with one of the other model"
        assert (similarity is None) == any("words" in reason for reason in degraded), degraded


def test_erase_prune_and_remap_while_it_runs_and_between_two_runs(
    home: Path, runtime: Runtime, database: str, models: Callable[..., Model], server: Server
) -> None:
    fill(runtime, database, 12)
    for number in range(20):
        runtime.accept(TurnTaken(theme="lab", session_id="l", user=f"dune{number}?", assistant=f"dune{number}!"))
    say(runtime, 12, first=20)
    erased = [f"q{secrets.token_hex(16)}" for _ in range(2)]
    for number, word in enumerate(erased):
        long = f"the key {word} opens the shed" + " and some more of it" * 60
        runtime.accept(TurnTaken(theme="ops", session_id=f"e{number}", user=f"where is {word}?", assistant=long))
        runtime.accept(Add(theme="ops", target="memory", content=f"The key is {word}."))
    assert runtime.writer.flush(60)
    new = models("new", 768)
    new.delay_per_text_s = 0.1
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(home), "reembed", "--model", "new"]
    command += ["--url", new.url, "--yes", "--batch", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as killed:
        begun = "select count(*) from hermes_pgvector_settings where name = 'reembed'"
        wait_for(lambda: rows(database, begun) == [(1,)])
        wait_for(lambda: rows(database, "select count(embedding_next) > 4 from conversations") == [(True,)])
        found = [
            run(home, "erase", "--text", erased[0], "--yes"),
            run_until_done(home, "prune", "--theme", "ops", "--role", "user", "--yes"),
            run(home, "remap", "lab", "desert", "--yes"),
        ]
        assert killed.poll() is None, killed.stderr and killed.stderr.read().decode()
        killed.send_signal(signal.SIGKILL)
    assert [each.code for each in found[1:]] == [0, 0], [each.shown for each in found]
    assert found[0].code in (0, 3), found[0].shown
    # The vectors of what is erased next, of which one is of a chunk, are there, and are in no file afterwards.
    new.delay_per_text_s, new.texts_max = 0.0, new.texts + 60
    broken = run(home, "reembed", "--model", "new", "--url", new.url, "--yes", "--batch", "4")
    word = "select halfvec_send(embedding_next) from conversations where position(%s in content) > 0 union all" \
           " select halfvec_send(p.embedding_next) from conversation_pieces_next p join conversations c" \
           " on c.id = p.row_id where position(%s in content) > 0"  # fmt: skip
    assert broken.code == 1, broken.shown
    vectors = [stored(row[0]) for row in rows(database, word, erased[1], erased[1]) if row[0]]
    assert len(vectors) == 2
    assert server.bin is None or any(vector in content for vector in vectors for content in files(database))
    outcome = run(home, "erase", "--text", erased[1], "--yes", "--vacuum")
    assert outcome.code == 0, outcome.shown
    held = [*vectors, *(word.encode() for word in erased)]
    assert server.bin is None or not any(needle in content for needle in held for content in files(database))
    new.texts_max, new.status = 1 << 30, 200
    again = run(home, "reembed", "--model", "new", "--url", new.url, "--yes", "--json")
    assert again.code == 0, again.shown
    assert rows(database, LACKING) == [(0,)]
    kept = {(theme, content) for theme, content in rows(database, "select agent_identity, content from conversations")}
    assert {content for theme, content in kept if theme == "desert"} == {
        f"dune{number}{side}" for number in range(20) for side in "?!"
    }
    answers = {content for theme, content in kept if theme == "ops"}
    assert {content.split()[0] for content in answers} == {f"kelp{n}" for n in (*range(12), *range(20, 32))}
    assert len(kept) == len(rows(database, "select from conversations")) == 40 + 24
    assert [row[0] for row in rows(database, "select content from memory_entries")] == [
        "The moorings are checked on Fridays."
    ]
    stored_rows, ours = of_model(database, new)
    assert stored_rows == ours == 40 + 24 + 1
    pieces = "select count(*) from conversation_pieces p where not exists (select from conversations c where" \
             " c.agent_identity = p.agent_identity and c.id = p.row_id)"  # fmt: skip
    assert rows(database, pieces) == [(0,)]


def stored(sent: bytes) -> bytes:
    """A vector as the files of a table have it: halves with the lowest byte first."""
    return b"".join(sent[place : place + 2][::-1] for place in range(4, len(sent), 2))


def files(dsn: str) -> Iterator[bytes]:
    """The files of the tables and indexes of a database, after a checkpoint."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("checkpoint")
        (place,) = connection.execute(
            "select current_setting('data_directory') || '/base/' || oid from pg_database"
            " where datname = current_database()"
        ).fetchone() or ("",)
    for path in Path(place).iterdir():
        yield path.read_bytes()
