"""`hermes-pgvector watch` beside a real host: quiet while the memory works, and a reason when it does not."""

from __future__ import annotations

import json
import shutil
from typing import Any

import psycopg
import pytest
import yaml
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows
from loopback import Endpoint

pytestmark = one_server

TURNS = 3


def watch(hermes: Hermes, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of `watch`."""
    done = hermes.run("watch", "--json", "--settle", "0", *options, program="hermes-pgvector")
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def reasons(hermes: Hermes, *options: str) -> list[str]:
    code, document = watch(hermes, *options)
    found = [finding["reason"] for finding in document["findings"]]
    assert (code == 3) == bool(found)
    assert all(finding["remedy"] for finding in document["findings"])
    return found


def talk(hermes: Hermes, about: str, turns: int = TURNS) -> None:
    with hermes.gateway() as gateway:
        for n in range(turns):
            gateway.ask(
                f"Tell me about the history of {about} number {n} over the river Aare", session="one", key="ops"
            )
        gateway.stop()


def choose(hermes: Hermes, provider: str) -> None:
    path = hermes.home / "config.yaml"
    document = yaml.safe_load(path.read_text())
    document["memory"]["provider"] = provider
    path.write_text(yaml.safe_dump(document))


@pytest.mark.main_host("b")
def test_a_memory_that_works_needs_no_attention_and_small_talk_is_not_missed(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    talk(hermes, "bridge")
    rows.wait(lambda rows: len(rows.turns()) == 2 * TURNS)
    code, document = watch(hermes)
    assert (code, document["turns_expected"], document["turns_known"]) == (0, TURNS, TURNS)
    rows("DELETE FROM conversations RETURNING 1")
    assert reasons(hermes) == ["turns"]
    assert reasons(hermes, "--turns-min", str(TURNS + 1)) == []
    model.script = lambda _: "ok"
    with hermes.gateway() as gateway:
        for session in ("off the record", "on the record"):
            gateway.ask(session, session="two", key="ops")
            for n in range(TURNS):
                gateway.ask(
                    f"Say nothing of secret {n}" if session.startswith("off") else "ok", session="two", key="ops"
                )
        gateway.stop()
    assert watch(hermes)[1]["turns_expected"] == TURNS


@pytest.mark.main_host("a")
def test_a_host_that_was_set_to_another_memory_is_named(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    choose(hermes, "")
    talk(hermes, "bridge")
    assert reasons(hermes) == ["provider", "turns"]
    choose(hermes, "pgvector")
    assert reasons(hermes) == ["turns"]
    talk(hermes, "boat", 1)
    assert reasons(hermes) == []


@pytest.mark.slow
def test_services_that_are_away_are_named_and_what_waits_in_the_spool_is_not_missed(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, embedder: Endpoint
) -> None:
    talk(hermes, "bridge", 1)
    dsn = rows.dsn
    hermes.set(dsn=f"{dsn} port=1" if "=" in dsn else dsn)
    talk(hermes, "boat")
    assert hermes.spooled() > 0
    assert reasons(hermes) == ["database"]
    hermes.set(dsn=dsn)
    embedder.status = 503
    assert reasons(hermes, "--skip-host") == ["embedder"]
    embedder.status = 200
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE hermes_pgvector_migrations RENAME TO elsewhere")
    assert reasons(hermes, "--skip-host") == ["schema"]
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE elsewhere RENAME TO hermes_pgvector_migrations")
    assert reasons(hermes) == []


@pytest.mark.slow
def test_a_lost_link_and_the_metrics_of_it_are_told(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    shutil.move(hermes.home / "plugins" / "pgvector", hermes.home / "elsewhere")
    talk(hermes, "bridge")
    file = hermes.folder / "memory.prom"
    found = reasons(hermes, "--metrics", str(file))
    # The other host finds the package by its entry point.
    lost = hermes.host == "a"
    assert found == (["plugin", "turns"] if lost else [])
    label = f'home="{hermes.home}"'
    assert f'hermes_pgvector_attention{{{label},reason="plugin"}} {int(lost)}\n' in file.read_text()
    assert f"hermes_pgvector_turns_expected{{{label}}} {TURNS}\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
