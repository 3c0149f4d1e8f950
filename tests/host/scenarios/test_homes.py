"""The host's commands, profiles and background requests know the provider; the password stays where it was saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hostrig.gateway import KEY
from hostrig.hermes import ASK_S_MAX, Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint
from hostrig.rows import Rows
from psycopg.conninfo import make_conninfo

pytestmark = one_server

PASSWORD = "vertraulich-7731"
PROMPT = "Which port does the staging database listen on these days?"


@pytest.mark.main_host("b")
def test_the_host_lists_the_provider_as_active_and_available(hermes: Hermes) -> None:
    status = hermes.run("memory", "status")
    assert status.returncode == 0, status.stderr
    assert re.search(r"Provider:\s+pgvector", status.stdout)
    assert re.search(r"Plugin:\s+installed", status.stdout)
    assert re.search(r"Status:\s+available", status.stdout)
    assert re.search(r"pgvector .*active", status.stdout)
    assert "hermes_test" in status.stdout
    assert PASSWORD not in status.stdout + status.stderr
    assert "pgvector provider active" in hermes.run("doctor").stdout


@pytest.mark.slow
def test_the_commands_of_the_plugin_are_commands_of_the_host(hermes: Hermes, model: ModelEndpoint) -> None:
    model.says("The staging database listens on 5433, behind pgbouncer.")
    hermes.ask(PROMPT)
    told = hermes.run("pgvector", "--help")
    assert told.returncode == 0
    assert {"status", "search", "doctor", "backfill"} <= set(told.stdout.split())
    status = hermes.run("pgvector", "status", "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)
    found = hermes.run("pgvector", "search", "staging database", "--json")
    assert found.returncode == 0, found.stderr
    assert "behind pgbouncer" in found.stdout
    wrong = hermes.run("pgvector", "search", "staging database", "--top-k", "none")
    assert wrong.returncode == 2


@pytest.mark.slow
def test_the_doctor_of_the_plugin_finds_nothing_wrong(hermes: Hermes) -> None:
    hermes.ask(PROMPT)
    doctor = hermes.run("pgvector", "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_a_gateway_stores_what_a_profile_says_in_the_database_of_that_profile(
    make_hermes: Callable[..., Hermes], make_database: Callable[..., str], rows: Rows, database: str
) -> None:
    hermes = make_hermes({"gateway": {"multiplex_profiles": True}})
    work, of_work = hermes.named("work"), make_database()
    for profile, dsn in ((hermes, database), (work, of_work)):
        with (profile.home / ".env").open("a") as file:
            file.write(f"\nHERMES_PGVECTOR_DSN={dsn}\nAPI_SERVER_KEY={KEY}\n")
    said = {"/v1": "The apple trees are pruned in February.", "/p/work/v1": "The contract with Acme is signed."}
    later = "The contract with Bosch is signed as well."
    with hermes.gateway() as gateway:

        def say(path: str, text: str) -> None:
            body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
            gateway.post(f"{path}/chat/completions", body, timeout_s=ASK_S_MAX).close()

        for path, text in said.items():
            say(path, text)
        rows.wait(lambda rows: said["/v1"] in rows.said("default"))
        Rows(of_work).wait(lambda rows: said["/p/work/v1"] in rows.said("work"))
        # Its process keeps the variables that it began with.
        file = hermes.home / ".env"
        file.write_text(file.read_text().replace(database, make_conninfo(database, password="changed")))
        say("/p/work/v1", later)
        Rows(of_work).wait(lambda rows: later in rows.said("work"))
    assert rows.said("work") == Rows(of_work).said("default") == []


@pytest.mark.main_host("a")
def test_commands_that_name_no_theme_use_that_of_the_agents_of_their_home(hermes: Hermes, rows: Rows) -> None:
    work = hermes.named("work")
    work.ask(PROMPT)
    assert {turn.theme for turn in rows.turns()} == {"work"}

    def command(*arguments: str) -> str:
        done = work.run(*arguments, program="hermes-pgvector")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert PROMPT in command("search", "on which port does the staging database listen?")
    assert "theme work" in command("add", "Staging has been moved to port 5434.", "--sync")
    assert rows.entries(theme="work") == ["Staging has been moved to port 5434."]
    assert "of theme work" in command("preview", "On which port is staging?")
    assert json.loads(command("sessions", "--json"))["theme"] == "work"
    assert "of theme work" in command("facts", "write", "C[db.id]: UUID")
    assert "C[db.id]: UUID" in command("facts", "export")


@pytest.mark.slow
def test_a_named_profile_has_a_memory_of_its_own(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    fact = "The staging database listens on port 5433."
    model.says(Call("memory", {"action": "add", "target": "memory", "content": fact}), "It is saved in my notes now.")
    hermes.ask("Save the port of the staging database, it is 5433")
    work = hermes.named("work")
    work.ask(PROMPT)
    assert "5433" not in model.requests[-1].user
    work.ask("Which staging database was it, and on which port does it listen?")
    assert PROMPT in model.requests[-1].recalled[0]
    assert {turn.theme for turn in rows.turns() if turn.content == PROMPT} == {"work"}
    assert rows.entries(theme="work") == []
    hermes.ask(PROMPT)
    assert fact in model.requests[-1].system
    assert rows.entries(theme="default") == [fact]


@pytest.mark.slow
def test_a_profile_that_is_a_copy_of_another_one_changes_no_row_of_it(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    facts = ["The staging database listens on port 5433.", "The boat to Thun sails at nine."]
    model.says(
        [Call("memory", {"action": "add", "target": "memory", "content": fact}) for fact in facts], "Both are saved."
    )
    hermes.ask("Save the port of the staging database and when the boat sails")
    done = hermes.run("profile", "create", "copy", "--clone-all", "--no-alias")
    assert done.returncode == 0, done.stderr
    copy = replace(hermes, profile="copy")
    assert copy.entries("memory") == facts
    copy.write("memory", facts[:1])
    model.says(
        Call("memory", {"action": "remove", "target": "memory", "old_text": "5433"}), "It is not in my notes now."
    )
    copy.ask("Forget the port of the staging database, it is of no use to you")
    assert copy.entries("memory") == [""]
    assert rows.entries() == facts
    assert copy.complaints() == []


@pytest.mark.slow
def test_the_password_is_nowhere_but_in_the_settings(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes(config={"logging": {"level": "DEBUG"}})
    model.says(
        [Call("memory", {"action": "add", "target": "memory", "content": "The port is 5433."}),
         Call("recall_memory", {"query": "port"})],
    )  # fmt: skip
    with hermes.chat() as chat:
        chat.ask(PROMPT)
        chat.leave()
        assert PASSWORD not in chat.text
    assert len(rows.turns()) == 2
    assert PASSWORD not in "".join(request.raw for request in model.seen)
    assert PASSWORD not in hermes.logs()
    assert PASSWORD not in rows.text()
    holding = [
        path.relative_to(hermes.folder).as_posix()
        for path in hermes.folder.rglob("*")
        if path.is_file() and not path.is_symlink() and PASSWORD.encode() in path.read_bytes()
    ]
    # A host may copy its own config.yaml, with what stands in it.
    assert all("config" in name for name in holding), holding


@pytest.mark.slow
def test_a_scheduled_job_recalls_by_tools_alone_and_leaves_no_turn(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    if hermes.host == "a":
        pytest.skip("this host runs scheduled jobs without a memory provider")
    fact = "The staging database listens on port 5433."
    model.says(Call("memory", {"action": "add", "target": "memory", "content": fact}), "It is saved in my notes now.")
    hermes.ask("Save the port of the staging database, it is 5433")
    before = rows.said()
    created = hermes.run("cron", "create", "every 2h", PROMPT, "--name", "port-watch", "--deliver", "local")
    assert created.returncode == 0, created.stdout + created.stderr
    (job,) = re.findall(r"\b[0-9a-f]{12}\b", created.stdout)
    model.reset()
    model.says("The staging database still listens on 5433, as noted.")
    for command in (("run", job), ("tick",)):
        done = hermes.run("cron", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    request = next(request for request in model.requests if PROMPT in request.user)
    assert "recall_memory" in request.tools
    assert request.recalled == []
    assert rows.said() == before
