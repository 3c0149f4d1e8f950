"""`hermes-pgvector facts`: status, list, search, write, export and purge."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from manuals import blocks, commands
from psycopg import sql
from psycopg.conninfo import make_conninfo


@pytest.fixture
def facts(database: str, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `hermes-pgvector facts …` for a home that uses the database."""
    settings = {"DSN": database, "EMBED_URL": endpoint.url, "EMBED_MODEL": "test", "WRITE_WAIT_S": "20"}
    for name, value in settings.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), "facts", *arguments)


def test_a_fact_is_written_found_listed_superseded_exported_and_purged(facts: Callable[..., Outcome]) -> None:
    written = facts("write", "C[db.id]: UUID, never autoincrement", "--scope", "schema")
    assert written.code == 0
    assert "of theme default: C[db.id]: UUID, never autoincrement" in written.out
    replaced = facts("write", "C[db.id]: UUID version 7", "--scope", "schema")
    assert "in place of fact" in replaced.out
    assert "C[db.id]: UUID, never autoincrement" in replaced.out
    assert "C[db.id]: UUID version 7" in facts("search", "uuid").out
    listed = facts("list").out
    assert "version 7" in listed
    assert "autoincrement" not in listed
    assert "autoincrement" in facts("list", "--status", "superseded").out
    assert "no fact was found" in facts("list", "--scope", "other").out
    assert facts("export").out == "C[db.id]: UUID version 7\n"
    status = facts("status").out
    assert "C[db.id]: UUID version 7" in status
    assert "Open scopes" in status
    assert "1 fact of theme default deleted" in facts("purge", "--yes").out
    assert "no fact was found" in facts("list", "--status", "superseded").out


def test_each_command_prints_one_document(facts: Callable[..., Outcome]) -> None:
    assert facts("write", "V[port]: 3005", "--theme", "ops", "--json").document["status"] == "stored"
    assert facts("list", "--theme", "ops", "--json").document["facts"][0]["target"] == "port"
    assert facts("search", "3005", "--theme", "ops", "--json").document["count"] == 1
    assert facts("export", "--theme", "ops", "--json").document == {"facts": ["V[port]: 3005"]}
    assert facts("status", "--theme", "ops", "--json").document["hot_facts"] == 1
    assert facts("purge", "--theme", "ops", "--yes", "--json").document["purged"] == 0
    assert json.loads(facts("list", "--json").out) == {"facts": []}, "another theme has none"


def test_a_search_without_the_embedder_ends_as_one_that_needs_attention(
    facts: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert facts("write", "V[port]: 3005").code == 0
    assert facts("search", "3005").code == 0
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", "http://127.0.0.1:9")
    found = facts("search", "3005")
    assert (found.code, "V[port]: 3005" in found.out) == (3, True), found.shown
    assert "degraded: by words only: " in found.err


def test_what_is_no_fact_is_wrong_usage(facts: Callable[..., Outcome]) -> None:
    refused = facts("write", "D(auth) JWT")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.strip().endswith("D[auth]: JWT")
    assert facts("write", "").code == 2
    assert facts("list", "--limit", "0").code == 2


def test_a_purge_asks_first(facts: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("1", "2"):
        facts("write", f"V[port]: {value}")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = facts("purge")
    assert (asked.code, "V[port]: 1" in asked.out, "V[port]: 2" in asked.out) == (1, True, False)
    assert "Delete 1 fact for good? [y/N]: nothing is changed" in asked.err
    assert facts("list", "--status", "superseded", "--json").document["facts"]


def test_a_purge_without_facts_asks_nothing(facts: Callable[..., Outcome]) -> None:
    facts("write", "V[port]: 1")
    facts("write", "V[port]: 2")
    old = facts("purge", "--older-than-days", "1")
    assert (old.code, old.out, old.err) == (0, "no superseded or archived fact was found\n", "")


def test_a_purge_says_what_it_leaves(facts: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_memory_pgvector.store.facts.PURGED_MAX", 1)
    for value in ("1", "2", "3"):
        facts("write", f"V[port]: {value}")
    done = facts("purge", "--yes")
    assert (done.code, "1 fact of theme default deleted" in done.out) == (0, True)
    assert "1 fact left; run the command again" in done.err


def test_a_purge_whose_facts_were_not_counted_in_time_says_so_without_a_number(
    facts: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_memory_pgvector.tools.facts._beforehand", lambda *_: None)
    for value in ("1", "2"):
        facts("write", f"V[port]: {value}")
    done = facts("purge", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "facts of theme default deleted"), done.err
    assert facts("list", "--status", "superseded", "--json").document["facts"] == []


def test_a_purge_with_json_needs_yes(facts: Callable[..., Outcome]) -> None:
    refused = facts("purge", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err


def test_an_export_prints_all_facts(facts: Callable[..., Outcome], database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into facts (kind, target, content) select 'V', 'lamp' || n, 'lit' from generate_series(1, 2345) n"
        )
    lines = facts("export").out.splitlines()
    assert len(lines) == 2345
    assert set(lines) == {f"V[lamp{n}]: lit" for n in range(1, 2346)}


def test_the_manual_leads_from_the_first_fact_to_the_purge(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bundled model, as a user has it who sets nothing."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_WRITE_WAIT_S", "60")
    monkeypatch.setenv("HERMES_PGVECTOR_RECALL_BUDGET_S", "60")
    shown = []
    for command in commands(blocks("docs/facts.md", "sh")[0]):
        program, *arguments = shlex.split(command)
        assert program == "hermes-pgvector"
        done = hermes_pgvector(*arguments, "--home", str(tmp_path))
        assert (done.code, done.err) == (0, ""), command
        shown.append(done.out)
    first, second, third, search, status, every, export, purge = shown
    assert first.startswith("stored: fact ")
    assert "in place of fact" in second
    assert "stored: fact" in third
    assert "C[db.id]: UUID version 7, never autoincrement" in search
    (block,) = blocks("docs/facts.md", "text")
    assert status.startswith(block)
    assert "superseded" in every
    assert export.splitlines() == ["V[srv.prod]: api.example.com:3005", "C[db.id]: UUID version 7, never autoincrement"]
    assert "1 fact of theme default deleted" in purge


def test_a_fact_that_waits_is_told_why(
    facts: Callable[..., Outcome], database: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}").format(sql.Identifier(role)))
    try:
        monkeypatch.setenv("HERMES_PGVECTOR_DSN", make_conninfo(database, user=role))
        monkeypatch.setenv("HERMES_PGVECTOR_SHUTDOWN_DRAIN_S", "0.1")
        monkeypatch.setenv("HERMES_PGVECTOR_WRITE_WAIT_S", "5")
        written = facts("write", "V[port]: 3005")
        assert (written.code, written.out) == (0, "accepted, pending: fact of theme default: V[port]: 3005\n")
        assert "it is in the outbox, and stored later: the role may not do this (permission denied" in written.err
    finally:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
