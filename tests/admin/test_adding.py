"""`add`, `preview` and `stats`, with an embedding endpoint on loopback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint

from hermes_memory_pgvector.facts.tokens import tokens_of

PORT = "The staging database listens on port 5433."
QUESTION = "Which port does the staging database listen on?"
# What a host calls before a turn of a session whose key is a theme.
PREFETCH = """
import sys, time, types
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
home, theme, question = sys.argv[1:]
provider = PgvectorMemoryProvider()
provider.initialize("s1", hermes_home=home, platform="api_server", gateway_session_key=theme, agent_context="primary")
provider._session.runtime.wait_ready(30)
# The bundled model may still be loading.
until = time.monotonic() + 60
while "degraded" in (block := provider.prefetch(question)) and time.monotonic() < until:
    time.sleep(0.1)
sys.stdout.write(block)
provider.shutdown()
"""


@pytest.fixture
def command(
    database: str, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")
    monkeypatch.setenv("HERMES_PGVECTOR_PREFETCH_BUDGET_S", "7")
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


# add


def test_an_added_entry_is_stored_with_what_was_given(command: Callable[..., Outcome], database: str) -> None:
    done = command(
        "add", PORT, "--theme", "Ops", "--target", "user", "--tag", "#DB", "--metadata", "ticket=OPS-12=a",
        "--expires", "14d", "--sync", "--json",
    )  # fmt: skip
    assert (done.code, done.document["status"], done.document["problem"]) == (0, "stored", "")
    ((number, theme, target, content, tags, metadata, expires),) = rows(
        database, "select id, agent_identity, target, content, tags, metadata, expires_at > now() from memory_entries"
    )
    assert (done.document["id"], theme, target, content, tags, expires) == (number, "ops", "user", PORT, ["db"], True)
    assert (metadata["ticket"], metadata["origin"], metadata["context"]) == ("OPS-12=a", "remember", "operator")
    again = command("add", PORT, "--theme", "ops", "--target", "user", "--sync")
    assert f"stored in theme ops, as entry {number}" in again.out


def test_a_command_that_has_ended_is_no_live_process(command: Callable[..., Outcome]) -> None:
    assert command("add", PORT, "--theme", "ops", "--sync").code == 0
    assert command("search", QUESTION, "--theme", "ops").code == 0
    assert command("status", "--json").document["homes"] == []


def test_a_text_may_come_from_the_standard_input(
    command: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PORT}\n"))
    assert command("add", "-", "--theme", "ops").code == 0
    assert rows(database, "select content from memory_entries") == [(PORT,)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    assert "not text in UTF-8" in command("add", "-", "--theme", "ops").err
    lax = io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", lax)
    assert "not text in UTF-8" in command("add", "-", "--theme", "ops").err
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 3_000_000))
    assert "it may have" in command("add", "-", "--theme", "ops").err


@pytest.mark.parametrize("words", [["add"], ["facts", "write"], ["remap", "ops"]])
def test_a_text_that_is_not_utf_8_is_refused_and_not_stored_with_replacements(
    command: Callable[..., Outcome], database: str, words: list[str]
) -> None:
    done = command(*words, os.fsdecode(b"V[cafe]: caf\xe9"))
    assert (done.code, "it is not text in UTF-8" in done.err) == (2, True), done.shown
    assert rows(database, "select 1 from memory_entries union all select 1 from facts") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((" ",), 2, "content is missing or empty"),
        (("x", "--metadata", "ticket"), 2, "--metadata is 'ticket'; write it as NAME=VALUE"),
        (("x", "--metadata", "origin=file"), 2, "metadata may not hold origin"),
        (("x", "--expires", "tomorrow"), 2, "expires is 'tomorrow'"),
        (("x", "--tag", "#"), 2, "tags has the tag"),
        (("x", "--theme", "billing"), 2, "not in allowed_themes: billing"),
        (("the password is hunter2",), 1, "nothing is stored, because"),
    ],
)
def test_what_cannot_be_added_is_named_and_nothing_is_stored(
    command: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
    code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["ops"]')
    monkeypatch.setenv("HERMES_PGVECTOR_KEEP", json.dumps([{"pattern": "password", "action": "none"}]))
    done = command("add", *arguments, *(() if "--theme" in arguments else ("--theme", "ops")))
    assert (done.code, said in done.err) == (code, True), done.err
    assert rows(database, "select * from memory_entries") == []


def test_an_entry_that_finds_no_database_waits_in_the_outbox(
    command: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setenv("HERMES_PGVECTOR_DSN", "postgresql://hermes@127.0.0.1:9/memory")
        done = command("add", PORT, "--theme", "ops", "--sync")
    assert done.code == 3
    assert "accepted in theme ops" in done.out
    assert "it is accepted, and not stored yet: " in done.err
    assert command("spool", "flush").code == 0
    assert rows(database, "select content from memory_entries") == [(PORT,)]


# preview


@pytest.mark.parametrize("facts", [False, True])
def test_a_preview_is_the_block_that_an_agent_gets(
    command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: bool
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_FACTS_INJECTED", str(facts).lower())
    assert command("facts", "write", "C[staging.port]: 5433", "--theme", "ops").code == 0
    command("add", PORT, "--theme", "ops", "--sync")
    command("add", "Dana drinks tea in the garden.", "--theme", "billing", "--sync")
    command("backfill")
    done = command("preview", QUESTION, "--theme", "ops")
    assert done.code == 0
    assert PORT in done.out
    assert ("staging.port" in done.out) == facts
    arguments = [sys.executable, "-P", "-c", PREFETCH, str(tmp_path), "ops", QUESTION]
    agent = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True, cwd="/")
    assert agent.stdout
    assert done.out == f"{agent.stdout}\n"
    tokens = tokens_of(agent.stdout)
    assert f"1 memory, {len(agent.stdout)} characters, at most {tokens} tokens" in done.err
    document = command("preview", QUESTION, "--theme", "ops", "--json").document
    assert (document["block"], document["memories"], document["tokens_max"]) == (agent.stdout, 1, tokens)


@pytest.mark.parametrize(
    ("name", "value", "text", "said"),
    [
        ("", "", "thanks", "it is small talk or a command"),
        ("", "", "Who won the last election of the chess club?", "nothing is related"),
        ("RECALL_MODE", "tools", QUESTION, "recall_mode is tools"),
        ("PREFETCH_LIMIT", "0", QUESTION, "prefetch_limit is 0"),
    ],
)
def test_a_preview_says_why_an_agent_gets_nothing(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str, said: str
) -> None:
    if name:
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    done = command("preview", text, "--theme", "empty")
    assert (done.code, done.out, f"the agent gets nothing: {said}" in done.err) == (0, "", True), done.err


def test_a_preview_without_the_embedder_says_that_it_is_degraded(
    command: Callable[..., Outcome], endpoint: Endpoint, database: str
) -> None:
    command("add", PORT, "--theme", "ops", "--sync")
    endpoint.status = 503
    done = command("preview", QUESTION, "--theme", "ops")
    assert (done.code, PORT in done.out, "degraded: by words only: " in done.err) == (3, True, True), done.err
    assert command("preview", " ").code == 2
    rows(database, f"insert into conversations (agent_identity, role, content) values ('ops', 'user', '{QUESTION}')")
    counted = command("stats", "--questions", "3")
    assert counted.code == 3
    assert "degraded: 1 recall of 1; the first: by words only: " in counted.err


# stats


def test_stats_count_new_rows_by_day_theme_and_source_and_the_tokens_of_questions(
    command: Callable[..., Outcome], database: str
) -> None:
    command("add", PORT, "--theme", "ops", "--sync")
    rows(
        database,
        "insert into conversations (agent_identity, role, content, ts)"
        f" select 'ops', 'user', '{QUESTION}', now() - n * interval '1 day' from generate_series(0, 3) as n",
    )
    rows(
        database,
        "insert into conversations (agent_identity, role, content, ts) values ('old', 'assistant', 'x', '2020-01-01')",
    )
    assert command("backfill").code == 0
    done = command("stats", "--days", "2", "--questions", "2")
    assert done.code == 0
    assert "1 new entry and 2 new turns in 2 days" in done.out
    assert "█" in done.out
    assert "remember" in done.out
    document = command("stats", "--days", "2", "--questions", "2", "--json").document
    assert [(day["entries"], day["turns"]) for day in document["days"]] == [(0, 1), (1, 1)]
    assert document["themes"] == [
        {"theme": "ops", "entries": 1, "turns": 4, "new_entries": 1, "new_turns": 2},
        {"theme": "old", "entries": 0, "turns": 1, "new_entries": 0, "new_turns": 0},
    ]
    assert {source["source"]: source["entries"] + source["turns"] for source in document["sources"]} == {
        "remember": 1,
        "conversation": 2,
    }
    block = command("preview", QUESTION, "--theme", "ops", "--json").document
    assert document["tokens_max_of_questions"] == [block["tokens_max"]] * 2
    other = command("stats", "--theme", "billing", "--days", "1", "--json").document
    assert (other["days"][0]["turns"], other["themes"], other["tokens_max_of_questions"]) == (0, [], [])
