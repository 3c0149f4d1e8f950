"""What an operator erases is in no file of the server and of the home any more, and does not come back."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from logins import give_rights, with_and_without_row_security
from loopback import Endpoint
from psycopg.conninfo import make_conninfo
from servers import Server
from spools import die
from waiting import wait_for

from hermes_memory_pgvector.mirror.entries import DELIMITER
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.mirror.memory_file import MemoryFile
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.codec import encode
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings

NAMES = "entry history file question answer long task fact letter waiting counted elsewhere".split()  # noqa: SIM905
CHAT, OTHER = "4917055512", "4917099999"
SECRET = "sk-proj-" + "a1B2c3D4" * 6
# An agent whose hooks are called by lines on its standard input, as a host calls them.
AGENT = """
import json, sys, types
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
provider = PgvectorMemoryProvider()
for line in sys.stdin:
    hook, arguments, named = json.loads(line)
    if hook == "flush":
        runtime = provider._session.runtime
        # The files are compared in the background.
        [job.result(60) for job in [*runtime._reconciling.values(), *runtime._starting]]
        answer = runtime.writer.flush(60)
    elif hook == "theme":
        answer = provider._session.conversation.session.allowed_theme()
    else:
        answer = getattr(provider, hook)(*arguments, **named)
    print(json.dumps(answer, default=str), flush=True)
"""


class Agent:
    """A running agent of a home."""

    def __init__(self, home: Path) -> None:
        (home / "memories").mkdir(parents=True, exist_ok=True)
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={**os.environ, "HERMES_HOME": str(home)},
        )  # fmt: skip

    def call(self, hook: str, *arguments: Any, **named: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([hook, arguments, named]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def begin(self, chat: str, session: str) -> str:
        key = f"agent:main:telegram:dm:{chat}"
        self.call(
            "initialize", session, hermes_home=str(self.home), platform="telegram", gateway_session_key=key,
            agent_identity="default", chat_id=chat, agent_context="primary",
        )  # fmt: skip
        assert self.call("flush")
        return str(self.call("theme"))

    def say(self, question: str, answer: str) -> None:
        self.call("on_turn_start", 2, question)
        self.call("sync_turn", question, answer)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.communicate(timeout=60)


@pytest.fixture
def values(agents_database: str, endpoint: Endpoint) -> dict[str, Any]:
    return {
        "dsn": agents_database, "embed_url": endpoint.url, "embed_model": "words", "batch_linger_s": 0,
        "tools": "facts", "recall_budget_s": 20, "heal_interval_s": 1,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `hermes-pgvector erase …` for a home with these lines as its input."""
    for key, value in values.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{key.upper()}", str(value))

    def erase(*arguments: str, typed: str = "", home: str = "one") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return hermes_pgvector("--home", str(tmp_path / home), "erase", *arguments)

    return erase


@pytest.fixture
def run_fast(run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """As `run`, without vectors for the rows."""
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_ON_WRITE", "false")
    return run


@pytest.fixture
def agent(tmp_path: Path, run: Callable[..., Outcome]) -> Iterator[Agent]:
    started = Agent(tmp_path / "one")
    yield started
    started.end()


def sql(dsn: str, statement: str, *parameters: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


def administrator(database: str, agents_database: str) -> tuple[str, ...]:
    """The arguments that name the administrator's login where agents have another one."""
    return () if agents_database == database else ("--dsn", database)


def marker() -> str:
    """A word that no compression shortens, and that is a word of its own in the index."""
    return f"q{secrets.token_hex(16)}"


def holding(folder: Path, words: list[str]) -> dict[Path, set[str]]:
    """The files of a folder that hold one of the words, and which."""
    found: dict[Path, set[str]] = {}
    for path in folder.rglob("*"):
        if path.is_file() and (words_here := {word for word in words if word.encode() in path.read_bytes()}):
            found[path] = words_here
    return found


def places(dsn: str, words: list[str]) -> dict[str, set[str]]:
    """The tables, indexes and folders of the server whose files hold one of the words, after a checkpoint."""
    sql(dsn, "checkpoint")
    [(folder, number)] = sql(
        dsn, "select current_setting('data_directory'), oid::text from pg_database where datname = current_database()"
    )
    names = dict(sql(dsn, "select pg_relation_filenode(oid)::text, relname from pg_class where relfilenode <> 0"))
    names |= dict(
        sql(dsn, "select pg_relation_filenode(oid)::text, relname from pg_class where relname = 'pg_statistic'")
    )
    found = defaultdict[str, set[str]](set)
    for path, words_here in holding(Path(folder), words).items():
        inside = path.relative_to(folder).parts
        name = names.get(path.name.partition(".")[0], path.name) if inside[:2] == ("base", number) else inside[0]
        found[name] |= words_here
    return dict(found)


def fill(agent: Agent, theme: str, words: dict[str, str], dsn: str) -> None:
    """Have an agent learn the words in every way there is."""
    files = agent.home / "memories"
    (files / "MEMORY.md").write_text(f"The gate has the code {words['entry']}\n")
    agent.call("on_memory_write", "add", "memory", f"The gate has the code {words['entry']}")
    (files / "USER.md").write_text(f"Her old number is {words['history']}\n")
    agent.call("on_memory_write", "add", "user", f"Her old number is {words['history']}")
    assert agent.call("flush")
    new = f"Her number is {words['file']} now"
    (files / "USER.md").write_text(f"{new}\n")
    agent.call("on_memory_write", "replace", "user", new, {"old_text": "old number"})
    agent.say(f"My key is {words['question']}, please keep it", f"I keep the key {words['answer']} for you")
    long = " ".join([words["long"], *(secrets.token_hex(8) for _ in range(600))])
    agent.say("What does the long certificate say, which I sent you?", f"{long} OPENAI_API_KEY={SECRET}")
    agent.call("on_delegation", f"Find out about {words['task']}", "Nothing was found", child_session_id="child")
    told = agent.call("handle_tool_call", "memory_write", {"content": f"V[key.{words['fact']}]: {words['fact']}"})
    assert "error" not in json.loads(told), told
    assert agent.call("flush")
    event = TurnTaken(theme=theme, session_id="s1", user=f"It is {words['letter']}", assistant="")
    DeadLetters(agent.home / "pgvector").keep(event.id, "a reason", encode(event).decode("ascii"))
    PendingWrites(agent.home / "pgvector", Settings()).add(
        "remember", {"content": words["waiting"]}, theme=theme, session_id="s1", marks={}, preview=words["waiting"]
    )
    sql(dsn, "insert into memory_words values (%s, 'turns', %s, 3)", theme, words["counted"])


@with_and_without_row_security
@pytest.mark.each_version
@not_on_citus.files
def test_of_an_erased_person_no_byte_is_left_but_in_what_the_receipt_names(
    agent: Agent, run: Callable[..., Outcome], database: str, agents_database: str, server: Server, tmp_path: Path,
    values: dict[str, Any],
) -> None:  # fmt: skip
    if server.bin is None:
        pytest.skip("the files of the server of PG_TEST_DSN cannot be read")
    words = {name: marker() for name in NAMES}
    told = list(words.values())
    theme = agent.begin(CHAT, "s1")
    assert theme.startswith("dm-telegram-")
    fill(agent, theme, words, database)
    # Events of a dead process of another home, which are stored later.
    elsewhere = Spool(Home(tmp_path / "two").spool, bytes_max=1 << 20, window_max=5)
    elsewhere.append(TurnTaken(theme=theme, session_id="s2", user=f"It is {words['elsewhere']}", assistant="I see."))
    die(elsewhere)
    kept = marker()
    other = agent.begin(OTHER, "s3")
    agent.say(f"The boat of my uncle is called {kept}", "A fine name for a boat.")
    assert agent.call("flush")
    agent.begin(CHAT, "s1")
    # A line that the file has lost, and of whose loss no process has told yet.
    (agent.home / "memories" / "MEMORY.md").write_text("")
    wait_for(lambda: not sql(database, "select 1 from conversations where embedding is null"))
    sql(database, "analyze")

    before = places(database, told)
    assert set(before) >= {
        "memory_entries", "memory_entries_words", "memory_history", "conversations", "conversations_words", "facts",
        "facts_words", "facts_versions", "memory_agent_edges", "memory_words", "pg_statistic", "pg_wal",
    }, before  # fmt: skip
    assert any(name.startswith("pg_toast") and words["long"] in held for name, held in before.items())
    assert set().union(*before.values()) == set(told) - {words[name] for name in ("letter", "waiting", "elsewhere")}
    assert places(database, [SECRET]) == holding(tmp_path, [SECRET]) == {}
    in_home = holding(tmp_path / "one" / "pgvector", told)
    assert {path.relative_to(tmp_path / "one" / "pgvector").parts[0] for path in in_home} == {
        "spool", "aside", "pending", "snapshot.jsonl",
    }  # fmt: skip
    assert set().union(*in_home.values()) >= {words[name] for name in ("letter", "waiting", "entry", "question")}
    assert sql(database, "select count(*) from conversation_pieces where agent_identity = %s", theme) != [(0,)]

    # The role of agents may not erase.
    chosen = ("--person", "--profile", "default", "--yes", "--json", *administrator(database, agents_database))
    done = run(*chosen, typed=f"telegram {CHAT}\n\n")

    assert done.code == 3, done.shown
    receipt = done.document
    attention = {holder["where"] for holder in receipt["holds"] if holder["attention"]}
    assert attention == {"USER.md of this home", "tables"}
    user_file = tmp_path / "one" / "memories" / "USER.md"
    assert set(holding(tmp_path / "one", told)) == {user_file, tmp_path / "one" / "pgvector" / "snapshot.jsonl"}
    user_file.write_text("")
    again = run(*chosen, "--vacuum", typed=f"telegram {CHAT}\n\n")
    assert again.code == 0, again.shown
    assert again.document["removed"] == {"snapshot": 1}
    assert receipt["removed"] == {
        **receipt["removed"], "turns": 6, "facts": 1, "edges": 1, "dead_letters": 1, "waiting_writes": 1, "snapshot": 1
    }  # fmt: skip
    assert receipt["removed"]["entries"] == 2
    assert receipt["removed"]["history"] >= 1
    assert receipt["removed"]["pieces"] >= 1
    assert receipt["themes"] == [theme]
    assert "write-ahead log (pg_wal)" in {holder["where"] for holder in receipt["holds"]}
    assert not any(word in done.shown for word in told)
    assert set(places(database, told)) <= {"pg_wal"}
    assert holding(tmp_path / "one", told) == {}
    assert set(places(database, [kept])) > {"conversations"}
    assert sql(database, "select distinct agent_identity from conversations") == [(other,)]

    # The transcript, which the agent still has, and the spool of the other home do not bring it back.
    said = [("user", f"My key is {words['question']}, please keep it"), ("assistant", words["answer"])]
    agent.call("on_session_end", [{"role": role, "content": text} for role, text in said])
    assert agent.call("flush")
    late = acquire(Settings(**values), tmp_path / "two")
    try:
        assert late.writer.flush(60, orphans=True)
    finally:
        release(late)
    assert holding(tmp_path / "two", told) == {}
    assert sql(database, "select count(*) from conversations where agent_identity = %s", theme) == [(0,)]
    assert set(places(database, told)) <= {"pg_wal"}
    (erased,) = run("--list", "--json").document["erasures"]
    assert places(database, [SECRET]) == holding(tmp_path, [SECRET]) == {}
    assert (erased["theme"], erased["whole"], erased["dropped"]) == (theme, True, 2)
    # What is said from now on is kept.
    agent.say("Please remember that the new gate is green", "It is green.")
    assert agent.call("flush")
    assert sql(database, "select count(*) from conversations where agent_identity = %s", theme) == [(2,)]


ROWS = """
    insert into conversations (agent_identity, session_id, role, content, search)
    select %s, 'session-' || n %% 7, case n %% 2 when 0 then 'user' else 'assistant' end, 'row number ' || n,
           to_tsvector('english', 'row number ' || n)
    from generate_series(1, %s) as n"""


def contents(dsn: str, table: str = "conversations") -> set[str]:
    return {content for (content,) in sql(dsn, f"select content from {table}")}


def learn(dsn: str, theme: str, *texts: str, session: str = "") -> list[int]:
    """Insert entries and return their ids."""
    statement = "insert into memory_entries (agent_identity, target, content, metadata) values (%s, 'memory', %s, %s)"
    return [
        sql(dsn, f"{statement} returning id", theme, text, json.dumps({"session_id": session}))[0][0] for text in texts
    ]


def test_an_entry_is_erased_with_its_earlier_texts_and_the_others_stay(
    run_fast: Callable[..., Outcome], database: str
) -> None:
    number, other = learn(database, "ops", "The first text of it", "Another entry, which stays")
    sql(database, "update memory_entries set content = 'The second text of it' where id = %s", number)
    shown = run_fast(str(number), typed="n\n")
    assert shown.code == 1
    assert "The second text of it" in shown.out
    assert "nothing is changed" in shown.err
    assert len(contents(database, "memory_entries")) == 2
    done = run_fast(str(number), "--yes", "--vacuum", "--json")
    assert done.code == 0, done.shown
    assert done.document["removed"] == {"history": 1, "entries": 1}
    assert contents(database, "memory_entries") == {"Another entry, which stays"}
    assert contents(database, "memory_history") == set()
    assert run_fast(str(other), "--turn", "--yes").code == 3
    assert contents(database, "memory_entries") == {"Another entry, which stays"}


def test_a_fact_is_erased_by_its_id_with_its_earlier_versions(run_fast: Callable[..., Outcome], database: str) -> None:
    add = (
        "insert into facts (agent_identity, kind, target, content, session_id, status, superseded_by) values"
        " (%s, 'V', 'row.number', %s, 's', %s, %s) returning id"
    )
    ((newest,),) = sql(database, add, "ops", "7", "active", None)
    sql(database, add, "ops", "6", "superseded", newest)
    sql(database, add, "lab", "5", "active", None)
    assert run_fast(str(newest), "--fact", "--yes", "--json").document["removed"] == {"facts": 2}
    assert contents(database, "facts") == {"5"}


def test_what_is_asked_for_is_all_that_is_erased(run_fast: Callable[..., Outcome], database: str) -> None:
    sql(database, ROWS, "ops", 100)
    sql(database, ROWS, "lab", 10)
    learn(database, "ops", "100% of row number 5 is _here_", "Row 100, and nothing else", session="session-3")
    facts = (
        "insert into facts (agent_identity, kind, target, content, session_id) values ('ops', 'V', %s, %s, 'session-4')"
    )
    sql(database, facts, "row.number", "5")
    assert run_fast("--text", "ROW NUMBER 5", "--theme", "ops", "--yes", "--json").document["removed"] == {
        "turns": 11, "entries": 1
    }  # fmt: skip
    assert "row number 5" in contents(database)  # that of the other theme
    gone = run_fast("--text", "-", "--yes", "--json", typed="row number 6\n").document["removed"]
    assert gone == {"turns": 12}
    assert run_fast("--text", "% of", "--yes", "--json").document["removed"] == {}
    gone = run_fast("--session", "session-3", "--theme", "ops", "--yes", "--json").document["removed"]
    assert set(gone) == {"turns", "entries"}
    gone = run_fast("--session", "session-4", "--yes", "--json").document
    assert gone["themes"] == ["lab", "ops"]
    assert gone["removed"]["facts"] == 1
    assert not sql(database, "select 1 from conversations where session_id = 'session-4'")
    assert run_fast("--theme", "ops", "--yes", "--json").document["removed"]["turns"] > 0
    assert sql(database, "select distinct agent_identity from conversations") == [("lab",)]
    assert contents(database, "memory_entries") == contents(database, "facts") == contents(database, "memory_history")


def test_rows_whose_metadata_have_a_text_are_erased_and_marks_of_this_package_are_no_text(
    run_fast: Callable[..., Outcome], database: str
) -> None:
    noted = json.dumps({"origin": "remember", "customer": {"names": ["Alice Smith"]}})
    for table, columns, values in (
        ("memory_entries", "target, content", "'memory', 'the first'"),
        ("conversations", "role, content", "'user', 'x'"),
        ("facts", "kind, target, content", "'V', 'port', '5432'"),
    ):
        statement = f"insert into {table} (agent_identity, metadata, {columns}) values ('ops', %s, {values})"
        sql(database, statement, noted)
    sql(database, "update memory_entries set content = 'the second', metadata = '{}'")
    learn(database, "ops", "a row that stays")
    sql(database, "update memory_entries set metadata = '\"a text\"' where content = 'a row that stays'")
    assert run_fast("--text", "remember", "--yes", "--json").document["removed"] == {}
    gone = run_fast("--text", "alice smith", "--yes", "--json").document["removed"]
    assert gone == {"turns": 1, "facts": 1, "history": 1}
    assert contents(database, "memory_entries") == {"the second", "a row that stays"}


@pytest.mark.parametrize("text", ['Anna "Ani" Huber', "C:\\users\\ann", "the first line\nthe second", "50%_x"])
def test_a_text_is_found_in_metadata_and_tags_also_where_these_escape_it(
    run_fast: Callable[..., Outcome], database: str, text: str
) -> None:
    learn(database, "ops", "noted", "noted with others", "tagged", "a row that stays")
    for content, noted in (("noted", {"customer": f"{text}, Bern"}), ("noted with others", {"names": [{"of": text}]})):
        sql(database, "update memory_entries set metadata = %s where content = %s", json.dumps(noted), content)
    sql(database, "update memory_entries set tags = array['x', %s] where content = 'tagged'", text)
    assert run_fast("--text", text, "--yes", "--json").document["removed"] == {"entries": 3}
    assert contents(database, "memory_entries") == {"a row that stays"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what to erase"),
        (("--turn", "--theme", "ops"), "add the ID"),
        (("--text", "ab", "--yes"), "has 2 characters; give 3 or more"),
        (("--person", "--theme", "ops", "--yes"), "leave --theme out"),
        (("--theme", "ops", "--json"), "add --yes"),
        (("--person", "--yes"), "no account was named"),
        (("0",), "must be from 1"),
        (("5", "--text", "abc"), "not allowed with"),
        (("--text", "a\0b", "--yes"), "NUL"),
        (("--session", "", "--theme", "ops", "--yes"), "argument --session: '' is empty"),
        (("--text", " ", "--theme", "ops", "--yes"), "argument --text: ' ' is empty"),
    ],
)
def test_misuse_changes_nothing_and_says_what_to_do(
    run_fast: Callable[..., Outcome], database: str, arguments: tuple[str, ...], said: str
) -> None:
    learn(database, "ops", "It stays")
    refused = run_fast(*arguments)
    assert refused.code == 2, refused.shown
    assert said in refused.err
    assert contents(database, "memory_entries") == {"It stays"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name what to erase"),
        (("--turn", "--theme", "ops"), "add the ID"),
        (("--text", "a", "--yes"), "has 1 character; give 3 or more"),
        (("--person", "--theme", "ops", "--yes"), "leave --theme out"),
    ],
)
def test_misuse_is_refused_without_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "postgresql://127.0.0.1:1/none")
    refused = hermes_pgvector("--home", str(tmp_path), "erase", *arguments)
    assert (refused.code, said in refused.err) == (2, True), refused.shown


def test_an_erasure_that_was_killed_half_way_is_run_again(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    sql(database, ROWS, "ops", 2500)
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path / "one"), "erase"]
    with psycopg.connect(database) as blocking:
        # The command cannot get past this row.
        blocking.execute(
            "select 1 from conversations where agent_identity = 'ops' and content = 'row number 1800' for update"
        )
        process = subprocess.Popen([*command, "--theme", "ops", "--yes"], cwd="/", stdout=subprocess.DEVNULL)
        wait_for(lambda: sql(database, "select count(*) from conversations") == [(1000,)])
        process.kill()
        assert process.wait(20) < 0
    # What was accepted before is dropped already.
    early = acquire(Settings(dsn=database, embed_on_write=False), tmp_path / "two")  # type: ignore[arg-type]
    try:
        at = sql(database, "select at - interval '1 second' from memory_erasures where kind = 'theme'")[0][0]
        early.accept(TurnTaken(theme="ops", session_id="s", user="It comes late", assistant="", at=at))
        assert early.writer.flush(60)
    finally:
        release(early)
    assert "It comes late" not in contents(database)
    done = run_fast("--theme", "ops", "--yes", "--json")
    assert done.document["removed"]["turns"] >= 1000
    assert contents(database) == set()


def test_a_transaction_that_still_reads_the_rows_is_named_and_the_tables_are_not_said_to_be_clean(
    run_fast: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_memory_pgvector.store.erasure.traces.OLD_TRANSACTIONS_WAIT_S", 0.1)
    learn(database, "ops", "It is erased")
    with psycopg.connect(database, application_name="a long report") as reading:
        reading.execute("set transaction isolation level repeatable read")
        reading.execute("select from memory_entries")
        done = run_fast("--theme", "ops", "--yes", "--vacuum", "--json")
    assert done.code == 3
    (tables,) = (holder for holder in done.document["holds"] if holder["where"] == "tables")
    assert "(a long report)" in tables["what"]
    assert run_fast("--theme", "ops", "--yes", "--vacuum", "--json").code == 0


@not_on_citus.files
def test_a_role_that_owns_nothing_erases_and_says_what_an_administrator_has_to_do(
    run_fast: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"erasing_{secrets.token_hex(4)}"
    learn(database, "ops", "It is erased")
    sql(database, f"create role {role} login")
    try:
        sql(database, f"grant select, insert, update, delete on all tables in schema public to {role}")
        sql(database, f"grant execute on all functions in schema public to {role}")
        monkeypatch.setenv("HERMES_PGVECTOR_DSN", f"{database} user={role}")
        done = run_fast("--theme", "ops", "--yes", "--vacuum", "--json")
        assert done.code == 3, done.shown
        assert f"role {role} may not rewrite the tables" in done.err
        holders = {holder["where"]: holder for holder in done.document["holds"]}
        remedy = "hermes-pgvector erase --vacuum --dsn postgresql://ADMIN@HOST/DATABASE"
        assert all(holders[where]["clear"].endswith(remedy) for where in ("tables", "planner statistics"))
        assert role in holders["planner statistics"]["what"]
        assert contents(database, "memory_entries") == set()
        assert "memory_entries" in places(database, ["It is erased"])
        refused = run_fast("--vacuum", typed="n\n")
        assert (refused.code, refused.err.count("nothing is changed")) == (1, 1)
        done = run_fast("--vacuum", "--dsn", database, typed="y\n")
        assert done.code == 0, done.shown
        assert set(places(database, ["It is erased"])) <= {"pg_wal"}
    finally:
        sql(database, f"drop owned by {role}")
        sql(database, f"drop role {role}")


def test_with_a_linked_account_go_all_accounts_of_the_person_and_their_links(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    person, telegram, discord = (
        "dm-person-0123456789abcdef",
        "dm-telegram-0123456789abcdef",
        "dm-discord-0123456789abcdef",
    )
    sql(database, "insert into memory_person_links values (%s, %s), (%s, %s)", telegram, person, discord, person)
    for theme in (person, telegram, "ops"):
        sql(database, ROWS, theme, 5)
    done = run_fast("--theme", discord, "--yes", "--json")
    assert set(done.document["themes"]) == {person, telegram, discord}
    assert {name: done.document["removed"][name] for name in ("turns", "links")} == {"turns": 10, "links": 2}
    assert sql(database, "select distinct agent_identity from conversations") == [("ops",)]
    [(at,)] = sql(database, "select min(at) from memory_erasures")
    early = acquire(Settings(dsn=database, embed_on_write=False), tmp_path / "two")  # type: ignore[arg-type]
    try:
        for theme in (telegram, discord, person):
            early.accept(TurnTaken(theme=theme, session_id="s", user="It comes late", assistant="", at=at))
        assert early.writer.flush(60)
    finally:
        release(early)
    assert sql(database, "select distinct agent_identity from conversations") == [("ops",)]


@pytest.mark.parametrize("named", ["old", "new"])
def test_rows_that_are_still_under_the_old_name_of_a_theme_go_with_it(
    named: str, run_fast: Callable[..., Outcome], database: str
) -> None:
    sql(database, "insert into memory_renames values ('old', 'new')")
    for theme in ("old", "new", "ops"):
        sql(database, ROWS, theme, 5)
    done = run_fast("--theme", named, "--yes", "--json")
    assert (set(done.document["themes"]), done.document["removed"]["turns"]) == ({"old", "new"}, 10)
    assert sql(database, "select distinct agent_identity from conversations") == [("ops",)]
    assert sql(database, "select agent_identity, theme from memory_renames") == [("old", "new")]


@pytest.mark.not_on_citus("Citus refuses to change the theme of a row")
def test_rows_that_are_moved_while_they_are_erased_go_too(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    sql(database, "insert into memory_renames values ('z-old', 'a-new')")
    sql(database, ROWS, "z-old", 700)
    sql(database, ROWS, "a-new", 600)
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path / "one"), "erase"]
    with psycopg.connect(database) as moving:
        moving.execute("update conversations set agent_identity = 'a-new' where agent_identity = 'z-old'")
        process = subprocess.Popen([*command, "--theme", "a-new", "--yes"], cwd="/", stdout=subprocess.DEVNULL)
        wait_for(lambda: sql(database, "select count(*) from conversations") == [(800,)])
    assert process.wait(60) == 3
    assert sql(database, "select count(*) from conversations") == [(0,)]


def test_what_is_said_while_a_theme_is_erased_is_kept(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    sql(database, ROWS, "ops", 1200)
    command = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path / "one"), "erase"]
    talking = acquire(Settings(dsn=database, embed_on_write=False), tmp_path / "two")  # type: ignore[arg-type]
    try:
        with psycopg.connect(database) as blocking:
            blocking.execute(
                "select 1 from conversations where agent_identity = 'ops' and content = 'row number 1100' for update"
            )
            process = subprocess.Popen([*command, "--theme", "ops", "--yes"], cwd="/", stdout=subprocess.DEVNULL)
            wait_for(lambda: sql(database, "select count(*) from conversations") == [(200,)])
            talking.accept(TurnTaken(theme="ops", session_id="s", user="It is said meanwhile", assistant=""))
            assert talking.writer.flush(60)
        assert process.wait(60) == 3
    finally:
        release(talking)
    assert contents(database) == {"It is said meanwhile"}


def test_a_dead_letter_keeps_what_was_not_erased_of_it_and_is_found_by_the_old_name_of_its_theme(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    sql(database, "insert into memory_renames values ('old', 'ops')")
    sql(database, ROWS, "ops", 3)
    letters = DeadLetters(tmp_path / "one" / "pgvector")
    for number, theme in enumerate(("old", "ops", "lab")):
        event = TurnTaken(id=f"{number:032}", theme=theme, user="row number 1", assistant="An answer")
        letters.keep(event.id, "a reason", encode(event).decode("ascii"))
    letters.keep("damaged-1", "a reason", '{"theme": "ops", "user": "row nu')
    (number,) = [number for (number,) in sql(database, "select id from conversations where content = 'row number 1'")]
    done = run_fast(str(number), "--turn", "--yes", "--json")
    assert done.document["removed"] == {"turns": 1, "dead_letters": 2}
    kept = {letter.event.theme: letter.event.user for letter in letters if isinstance(letter.event, TurnTaken)}
    assert kept == {"old": "", "ops": "", "lab": "row number 1"}
    done = run_fast("--theme", "ops", "--yes", "--json")
    assert done.document["removed"]["dead_letters"] == 3
    assert [letter.event.theme for letter in letters if letter.event] == ["lab"]


def test_a_waiting_write_without_a_session_stays_when_a_text_is_erased_that_it_has_not(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    writes = PendingWrites(tmp_path / "one" / "pgvector", Settings())
    for text in ("It says row number 1", "It says something else"):
        writes.add("remember", {"content": text}, theme="ops", session_id="", marks={}, preview=text)
    done = run_fast("--text", "row number 1", "--yes", "--json")
    assert done.document["removed"] == {"waiting_writes": 1}
    assert [write.preview for write in writes.all()] == ["It says something else"]


def test_a_copy_of_a_memory_file_from_before_a_relief_is_named_until_it_is_deleted(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    text, other = "The gate has the code 4711", "The boat is green"
    file, folder = tmp_path / "one" / "memories" / "MEMORY.md", tmp_path / "one" / "pgvector" / "relief"
    file.parent.mkdir(parents=True)
    copies = []
    for entries in ((text, other), (other,)):
        file.write_text(DELIMITER.join(entries))
        copies.append(MemoryFile(file, 1 << 20).back_up(folder, 20))
    (number, _) = learn(database, "ops", text, other)

    def named(*arguments: str) -> tuple[int, list[tuple[str, bool]]]:
        done = run_fast(*arguments, "--yes", "--json", "--vacuum")
        held = [holder for holder in done.document["holds"] if holder["where"] == "backups of relieve in this home"]
        assert text not in done.shown
        return done.code, [(holder["clear"], holder["attention"]) for holder in held]

    for arguments in ((str(number),), ("--text", "the CODE 4711")):
        assert named(*arguments) == (3, [(f"delete them: cd {folder} && rm {copies[0].name}", True)])
    copies[0].unlink()
    assert named("--text", "the code 4711") == (0, [(f"delete them: rm -r {folder}", False)])
    assert named("--theme", "ops") == (3, [(f"delete them: cd {folder} && rm {copies[1].name}", True)])
    copies[1].unlink()
    file.write_text("")
    assert named("--text", "the code 4711") == (0, [])


def test_the_commands_of_the_receipt_delete_what_they_name_in_a_home_with_a_space(
    run_fast: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    home, other = tmp_path / "my home", tmp_path / "my"
    copies = [home / "pgvector" / "relief" / "MEMORY.md.1", home / "pgvector" / "backups" / "20261128.json"]
    for kept in (*copies, other / "notes"):
        kept.parent.mkdir(parents=True)
        kept.write_text("The gate has the code 4711")
    learn(database, "ops", "The gate has the code 4711")
    done = run_fast("--text", "the code 4711", "--yes", "--json", home=home.name)
    commands = [holder["clear"].removeprefix("delete them: ") for holder in done.document["holds"]]
    for command in commands:
        if "rm " in command:
            subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path)
    assert [path for path in copies if path.exists()] == []
    assert (other / "notes").exists()


def test_the_role_of_agents_erases_only_with_the_dsn_of_the_administrator(
    role: str, run: Callable[..., Outcome], make_database: Callable[..., str], database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    give_rights(database, role)
    with psycopg.connect(database) as connection:
        connection.execute("insert into memory_entries (target, content) values ('memory', 'the code is 1234')")
        connection.execute("delete from memory_entries")
        connection.execute("insert into memory_entries (target, content) values ('memory', 'the code is 12345')")
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role, password="right"))
    refused = run("--text", "the code", "--yes")
    assert refused.code == 1
    assert f"role {role} may not erase the history; give the administrator's DSN: --dsn" in refused.err
    elsewhere = run("--text", "the code", "--yes", "--dsn", make_database())
    assert elsewhere.code == 1
    assert "another database" in elsewhere.err
    counts = "select (select count(*) from memory_entries), (select count(*) from memory_history)"
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute(counts).fetchone() == (1, 1)
        assert run("--text", "the code", "--yes", "--dsn", database).code in (0, 3)
        assert connection.execute(counts).fetchone() == (0, 0)
