"""Themes by project and in layers, and one person on several platforms, on the real hosts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.messenger import Messenger, Person
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

from hermes_memory_pgvector.session.project import NAME_FILE

pytestmark = one_server

ANN = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
BEN = Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner")
GROUP = "c2lnbmFsLWdyb3VwLXRlc3Q="
PORT = "Which port does the staging database listen on these days, was it 5433?"
ABOUT_PORT = "Please tell me again on which port the staging database listens"


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[[str], Path]:
    """Make a repository of this name."""

    def make(name: str) -> Path:
        folder = tmp_path / "work" / name
        (folder / "src").mkdir(parents=True)
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
        return folder

    return make


@pytest.mark.slow
def test_a_project_has_a_memory_of_its_own_which_a_moved_checkout_keeps(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, checkout: Callable[[str], Path]
) -> None:
    hermes = make_hermes(theme_template="project/{project}")
    beehive, orchard = checkout("Beehive"), checkout("orchard")
    (orchard / NAME_FILE).write_text("Apple Trees\n")
    replace(hermes, cwd=beehive / "src").ask(PORT)
    replace(hermes, cwd=orchard).ask(ABOUT_PORT)
    assert PORT not in model.requests[-1].user
    git(beehive, "worktree", "add", "-q", "../swarm", "-b", "swarm")
    replace(hermes, cwd=beehive.parent / "swarm").ask("And in this work tree, on which port does the database listen?")
    assert PORT in model.requests[-1].recalled[0]
    moved = orchard.rename(orchard.with_name("elsewhere"))
    replace(hermes, cwd=moved / "src").ask("Did I ask about a port of the staging database?")
    assert ABOUT_PORT in model.requests[-1].recalled[0]
    assert PORT not in model.requests[-1].user
    # Without a project, the theme is that of the home.
    hermes.ask("Which port of which database was it that I asked about?")
    assert model.requests[-1].recalled == []
    rows.wait(lambda rows: len(rows.turns()) == 10)
    counts = {theme: len(rows.turns(theme)) for theme in {turn.theme for turn in rows.turns()}}
    assert counts == {"project/beehive": 4, "project/apple-trees": 4, "default": 2}
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_project_is_that_of_an_interactive_session_and_none_of_a_gateway(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, checkout: Callable[[str], Path]
) -> None:
    hermes = replace(make_hermes(theme_template="{profile}/{project}"), cwd=checkout("beehive"))
    with hermes.chat() as chat:
        chat.ask(PORT)
        assert chat.leave() == 0
    rows.wait(lambda rows: len(rows.turns("default/beehive")) == 2)
    (session,) = hermes.sessions()
    with replace(hermes, cwd=checkout("orchard")).chat("--resume", session) as chat:
        chat.ask(ABOUT_PORT)
        assert chat.leave() == 0
    rows.wait(lambda rows: len(rows.turns("default/beehive")) == 4)
    with hermes.gateway(TERMINAL_CWD=str(hermes.cwd)) as gateway:
        gateway.ask(ABOUT_PORT, key="garden")
        gateway.ask(f"{ABOUT_PORT}, without a key")
        rows.wait(lambda rows: len(rows.turns()) == 8)
        gateway.stop()
    assert {turn.theme for turn in rows.turns()} == {"default/beehive", "garden", "default"}


@pytest.mark.main_host("a")
def test_a_listed_theme_is_recalled_and_written_with_its_label_and_no_other_is(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes(
        tools="all", theme_template="ops", also_recall={"ops": ["house"]}, also_write={"ops": ["house"]},
        cross_theme_recall="none",
    )  # fmt: skip
    fact, secret = "The staging database listens on port 5433.", "The staging database of red listens on port 5999."
    rows(
        "INSERT INTO memory_entries (agent_identity, target, content) VALUES ('red', 'memory', %s) RETURNING 1", secret
    )
    model.says(
        Call("remember", {"content": fact, "theme": "house", "sync": True}),
        [
            Call("remember", {"content": "planted", "theme": "red", "sync": True}),
            Call("remember", {"content": "planted", "theme": "dm-signal-0123456789abcdef"}),
            Call("recall_memory", {"query": "staging database port", "scope": "red"}),
            Call("recall_memory", {"query": "staging database port", "theme": "red"}),
            Call("recall_conversation", {"query": "staging database port", "scope": "red"}),
            Call("list_memories", {"theme": "red"}),
            Call("forget", {"id": 1, "theme": "red"}),
            Call("forget", {"id": 1}),
        ],
        Call("recall_memory", {"query": "staging database port", "scope": "current"}),
        "All of that is done, as far as it can be.",
    )
    hermes.ask("Tell all agents of the house the port of the staging database")
    stored, refused, found = model.requests[1], model.requests[2], model.requests[3]
    assert json.loads(stored.results[0])["theme"] == "house"
    assert all('"error"' in result for result in refused.results[1:]), refused.results
    (hit,) = json.loads(found.results[-1])["hits"]
    assert (hit["theme"], hit["content"]) == ("house", fact)
    hermes.ask("On which port does the staging database listen, please?")
    (block,) = model.requests[-1].recalled
    assert f", theme house] {fact}" in block
    assert "5999" not in "".join(request.raw for request in model.requests)
    entries = "SELECT agent_identity AS theme, content FROM memory_entries ORDER BY id"
    assert [(row.theme, row.content) for row in rows(entries)] == [("red", secret), ("house", fact)]
    assert hermes.complaints() == []


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


def asked(request: Request) -> str:
    return request.user.split("<memory-context>")[0].split("[System note:")[0].strip()


def person(hermes: Hermes, action: str, *accounts: str) -> str:
    """Link or separate accounts as an operator does; returns what is shown."""
    done = subprocess.run(
        [hermes.python.with_name("hermes-pgvector"), "person", action, "--yes"], cwd=hermes.folder,
        env=hermes.environment(), input="\n".join(accounts), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def session_key(hermes: Hermes, number: str) -> str:
    """The key of a private chat, as the host keeps it."""
    sessions = json.loads((hermes.home / "sessions" / "sessions.json").read_text())
    (key,) = [key for key in sessions if ":dm:" in key and number in json.dumps(sessions[key])]
    return str(key)


@pytest.mark.main_host("b")
def test_a_person_is_remembered_on_another_platform_and_rooms_and_others_are_not(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    hermes = make_hermes(heal_interval_s=1)
    model.script = lambda request: f"Noted, and these are the words that I noted: {asked(request)}."

    def write(sender: Person, text: str, group: str = "") -> str:
        messenger.write(sender, text, group=group, until=text)
        return "".join(model.requests[-1].recalled)

    code, barrel, boat = (
        "The door code of my house is 4711", "The barrel of us neighbours leaks since May", "My boat is named Swan 17"
    )  # fmt: skip
    with hermes.gateway(**messenger.environment) as gateway:
        write(ANN, code)
        write(BEN, boat)
        write(ANN, barrel, GROUP)
        rows.wait(lambda rows: len(rows.turns()) == 6)
        hermes.ask("What is the door code of my house, please?")
        assert "4711" not in model.requests[-1].user
        shown = person(hermes, "link", session_key(hermes, ANN.number), "cli")
        assert "linked as dm-person-" in shown
        assert ANN.number not in shown
        with hermes.chat() as chat:

            def recalls(question: str) -> str:
                chat.ask(question)
                return "".join(model.requests[-1].recalled)

            assert code in recalls("And what was it, the door code of my house?")
            chat.ask("The key of my bicycle hangs beside the stove, keep that in mind")
            rows.wait(lambda rows: any("stove" in turn.content and turn.embedded for turn in rows.turns()))
            assert "beside the stove" in write(ANN, "Where was it that the key of my bicycle hangs?")
            assert "leaks" not in recalls("What do you know of the barrel of us neighbours?")
            assert "4711" not in write(ANN, "What is the door code of my house?", GROUP)
            assert "4711" not in write(BEN, "What is the door code of the house of Ann?")
            assert "Swan" not in recalls("What is the name of my boat, by the way?")
            assert chat.leave() == 0
        shown = person(hermes, "unlink", session_key(hermes, ANN.number), "cli")
        hermes.ask("What was it again, the door code of my house?")
        assert "4711" not in "".join(model.requests[-1].recalled)
        gateway.stop()
    assert not [turn for turn in rows.turns() if turn.theme.startswith("dm-person-")]
    assert ANN.number not in rows("SELECT coalesce(string_agg(l::text, ' '), '') AS t FROM memory_person_links l")[0].t
    assert hermes.complaints() == []
