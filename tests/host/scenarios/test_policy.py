"""What is kept is decided by rules, by marks of the host's own turns, and by a person who approves writes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.messenger import Messenger, Person
from hostrig.model import Call, ModelEndpoint, Reply, Request
from hostrig.rows import Rows
from waiting import wait_for

pytestmark = one_server

OWNER = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
STRANGER = Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner")
GROUP, OTHER_GROUP = "c2lnbmFsLWdyb3VwLXRlc3Q=", "YW5vdGhlci1ncm91cC10ZXN0"
FACT = "The staging database listens on port 5433 of alpha."
QUESTION = "On which port of alpha does the staging database listen?"


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


def repeating(request: Request) -> Reply:
    prompt = request.user.split("<memory-context>")[0].split("[System note:")[0].strip()
    if "Keep:" in prompt and not request.results:
        return Call("memory", {"action": "add", "target": "memory", "content": prompt.partition("Keep: ")[2]})
    return f"Noted, and these are the words that I noted: {prompt}."


def is_asked(model: ModelEndpoint, words: str) -> bool:
    return any(words in request.user for request in model.requests)


@pytest.mark.main_host("a")
def test_only_what_the_owner_says_in_a_room_is_kept(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    hermes = make_hermes(keep="owner", owner_accounts=[f"signal:{OWNER.number}"])
    model.script = repeating
    with hermes.gateway(**messenger.environment) as gateway:
        for person, group, text in (
            (STRANGER, GROUP, "The stranger says in the room that the barrel is red"),
            (OWNER, GROUP, "The owner says in the room that the barrel is green"),
            (STRANGER, GROUP, "Keep: The stranger has the key of the cellar"),
            (STRANGER, "", "The stranger says in private that the barrel is blue"),
            (OWNER, "", "The owner says in private that the barrel is yellow"),
            (OWNER, GROUP, "Keep: The owner has the key of the attic"),
        ):
            messenger.write(person, text, group=group, until=text.partition("Keep: ")[2] or text)
        rows.wait(lambda rows: len(rows.turns()) >= 6 and len(rows.entries()) >= 1)
        gateway.stop()
    said = [turn.content for turn in rows.turns() if turn.role == "user"]
    print(said, rows.entries())
    assert not any("stranger" in text for text in (*rows.said(), *rows.entries()))
    assert len(said) == 3
    assert rows.entries() == ["The owner has the key of the attic"]
    hermes.ask("Please look into your notes, and say nothing more about them now")
    assert not any("stranger" in text for text in (*rows.said(), *rows.entries()))
    assert hermes.complaints() == []


@pytest.mark.main_host("b")
def test_a_message_that_waited_in_a_shared_room_is_that_of_its_author(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    """The hosts answer it within the request of the message before it."""
    shared = {"group_sessions_per_user": False}
    hermes = make_hermes(shared, keep="owner", owner_accounts=[f"signal:{OWNER.number}"])
    waited = threading.Event()

    def slow(request: Request) -> Reply:
        reply = repeating(request)
        if "running" in str(reply):
            waited.wait(20)
        return reply

    model.script = slow
    busy = {"HERMES_GATEWAY_BUSY_INPUT_MODE": "queue", "HERMES_GATEWAY_BUSY_TEXT_MODE": "interrupt"}
    with hermes.gateway(**{**messenger.environment, **busy}) as gateway:
        for group, first, second, text in (
            (GROUP, OWNER, STRANGER, "Keep: The stranger has the key of the cellar"),
            (OTHER_GROUP, STRANGER, OWNER, "Keep: The owner has the key of the attic"),
        ):
            waited.clear()
            messenger.write(OWNER, "The owner says hello to the neighbours", group=group, until="hello")
            messenger.send(first, f"A question of {first.name}, which is running", group=group)
            wait_for(partial(is_asked, model, f"A question of {first.name}"))
            messenger.send(second, text, group=group)
            # The host answers it at once, so it has taken the message before it.
            messenger.write(second, "/status", group=group, until="tatus")
            waited.set()
            messenger.wait(text.partition("Keep: ")[2])
        rows.wait(lambda rows: any("attic" in text for text in rows.said()))
        gateway.stop()
    assert rows.entries() == ["The owner has the key of the attic"]
    assert not any("stranger" in text or STRANGER.name in text for text in rows.said())
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_only_what_the_agent_is_asked_to_keep_is_kept(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes(keep="asked", tools="all")
    model.says(Call("remember", {"content": FACT, "sync": True}), "It is kept as you asked, with its port and host.")
    hermes.ask("Please remember that the staging database of alpha listens on port 5433")
    hermes.ask("The production database of alpha, by the way, listens on port 5432")
    hermes.ask(QUESTION)
    assert FACT in "".join(model.requests[-1].recalled)
    assert (rows.entries(), rows.said(), hermes.spooled()) == ([FACT], [], 0)
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_notice_of_the_host_is_neither_stored_nor_recalled_for(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    model.says(Call("memory", {"action": "add", "target": "memory", "content": FACT}), "It is saved in my notes now.")
    hermes.ask("Save the port of the staging database of alpha, it is 5433")
    rows.wait(lambda rows: len(rows.entries()) == 1)
    before = rows.said()
    notices = [
        f"[IMPORTANT: Background process proc_1 exited (exit code 1).\nCommand: check\nOutput:\n{QUESTION}]",
        f"[Heartbeat — recurring instruction, fires every 10m]\n{QUESTION}",
        f"[Continuing toward your standing goal]\nGoal: {QUESTION}",
        f"[IMPORTANT: You are running as a scheduled cron job. Be brief.]\n\n{QUESTION}",
    ]
    for notice in notices:
        hermes.ask(notice)
        assert QUESTION in model.requests[-1].user
        assert model.requests[-1].recalled == []
    hermes.ask(QUESTION)
    # The entry itself is in the system prompt, the turn about it is not.
    assert "5433" in "".join(model.requests[-1].recalled)
    rows.wait(lambda rows: len(rows.said()) == len(before) + 2)
    assert not any("[" in text for text in rows.said())
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_write_waits_until_a_person_approves_it(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes({"memory": {"write_approval": True}}, tools="all")
    answers: list[dict[str, Any]] = []

    def remembering(request: Request) -> Reply:
        answers[:] = [json.loads(result) for result in request.results]
        return "It waits for your approval now." if answers else Call("remember", {"content": FACT, "sync": True})

    model.script = remembering
    hermes.ask("Please remember that the staging database of alpha listens on port 5433")
    (answer,) = answers
    assert (answer["status"], answer["staged"]) == ("waits for approval", True)
    model.reset()
    hermes.ask(QUESTION)
    assert FACT not in "".join(model.requests[-1].recalled)
    assert rows.entries() == []

    def pending(*arguments: str) -> dict[str, Any]:
        done = hermes.run("--json", "pending", *arguments, program="hermes-pgvector")
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    (waiting,) = pending("list")["pending"]
    assert (waiting["id"], waiting["preview"]) == (answer["pending_id"], f"remember (memory): {FACT}")
    status = hermes.run("status", program="hermes-pgvector").stdout
    assert re.search(r"Approval +1 write to approve", status)
    assert pending("approve", waiting["id"], "--yes")["approved"] == [waiting["id"]]
    assert rows.entries() == [FACT]
    assert pending("list")["pending"] == []
    hermes.ask(QUESTION)
    assert FACT in "".join(model.requests[-1].recalled)

    number = rows("SELECT id FROM memory_entries")[0].id
    model.says(Call("forget", {"id": number}), "It waits for your approval, too.")
    hermes.ask("Please forget the port of the staging database again, it is wrong")
    assert rows.entries() == [FACT]
    assert len(pending("reject", "--all", "--yes")["rejected"]) == 1
    assert rows.entries() == [FACT]
    assert hermes.complaints() == []


def test_the_host_asks_at_its_terminal_before_a_write(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes({"memory": {"write_approval": True}}, tools="all")
    model.says(Call("remember", {"content": FACT, "sync": True}), "It is kept as you asked.")
    with hermes.chat() as chat:
        chat.command("Please remember the port of the staging database of alpha", settle=False)
        chat.wait("Save to memory")
        assert rows.entries() == []
        chat.type("\r")
        chat.wait("It is kept as you asked.")
        chat.settle()
        assert rows.entries() == [FACT]
        chat.leave()
