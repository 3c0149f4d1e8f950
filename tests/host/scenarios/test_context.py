"""What stands in the context of a session is not put before a turn again, and what a compression took away is."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from hostrig.chat import Chat
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = one_server

CAT = "The cat Minka sleeps in the blue basket behind the boiler of the laundry."
ABOUT_CAT = "Where does the cat Minka sleep at night, in which basket?"
AGAIN_ABOUT_CAT = "And the basket of the cat Minka, behind what is it?"
BRIDGES = [f"Tell me about the history of bridge number {number} over the river Aare" for number in range(10)]
# A host refuses a summary that is longer than what it replaces.
LONG = "Of the history of this bridge nothing is known, nor of those who built it, nor when. " * 15
COMPRESSED_S_MAX = 30


def answer_to(request: Request) -> str | None:
    asked = request.user.split("<memory-context>")[0]
    return f"{asked}? {LONG}" if "history of bridge" in asked else CAT if "a new cat" in asked else None


def repeated(request: Request) -> list[str]:
    """The memories before the last turn that stand elsewhere in the request, too."""
    texts = [line.partition("] ")[2] for fence in request.recalled for line in fence.splitlines() if line[:3] == "- ["]
    everything = "\n".join(str(message["content"]) for message in request.messages)
    return [text for text in texts if everything.count(text) > 1]


def told(request: Request) -> int:
    """How many times the text about the cat is in all messages of a request."""
    return request.raw.count("blue basket behind the boiler")


def compress(chat: Chat, hermes: Hermes, model: ModelEndpoint) -> None:
    """Compress the session in place, and wait until the host's record has it."""
    model.errand = "A summary: bridges over the Aare were discussed, and of none is anything known."
    before = archived(hermes)
    chat.command("/compress")
    deadline = time.monotonic() + COMPRESSED_S_MAX
    while archived(hermes) == before:
        assert time.monotonic() < deadline, "nothing was compressed"
        time.sleep(0.1)
    chat.settle()


def archived(hermes: Hermes) -> int:
    with closing(sqlite3.connect(hermes.home / "state.db", timeout=10)) as record:
        return int(record.execute("SELECT count(*) FROM messages WHERE compacted").fetchone()[0])


@pytest.fixture
def other(hermes: Hermes, model: ModelEndpoint) -> Hermes:
    """Another home of the same theme, whose MEMORY.md has the entry about the cat."""
    home = hermes.elsewhere()
    model.says(Call("memory", {"action": "add", "target": "memory", "content": CAT}), "Saved.")
    home.ask("Keep in mind where the cat sleeps")
    model.reset()
    return home


@pytest.mark.main_host("b")
def test_what_a_compression_took_away_comes_back(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    model.script = answer_to
    with hermes.chat() as chat:
        chat.ask(BRIDGES[0])
        chat.ask(BRIDGES[1])
        chat.ask("We have a new cat since Monday")
        for prompt in BRIDGES[2:5]:
            chat.ask(prompt)
        chat.ask(ABOUT_CAT)
        assert model.requests[-1].recalled == [], "the context has it"
        for prompt in BRIDGES[5:]:
            chat.ask(prompt)
        compress(chat, hermes, model)
        chat.ask(AGAIN_ABOUT_CAT)
        assert CAT in model.requests[-1].recalled[0]
        assert told(model.requests[-1]) == 1
        assert repeated(model.requests[-1]) == []
        chat.leave()
    (session,) = hermes.sessions()
    with hermes.chat("--resume", session) as chat:
        chat.ask("Is the basket of the cat Minka a blue one?")
        assert told(model.requests[-1]) == 1, "the host sends the memory of the turn before again"
        chat.leave()
    assert hermes.complaints() == []


@pytest.mark.slow
def test_a_memory_is_shown_once_until_it_has_left_the_context(
    hermes: Hermes, other: Hermes, model: ModelEndpoint
) -> None:
    model.script = answer_to
    with hermes.chat() as chat:
        chat.ask(ABOUT_CAT)
        assert CAT in model.requests[-1].recalled[0]
        chat.ask(AGAIN_ABOUT_CAT)
        assert told(model.requests[-1]) == 1
        chat.command("/undo")
        chat.command("/undo")
        chat.ask(ABOUT_CAT)
        assert CAT in model.requests[-1].recalled[0], "it was taken back with its turn"
        assert told(model.requests[-1]) == 1
        chat.leave()
    session = hermes.sessions()[-1]
    with hermes.chat("--resume", session) as chat:
        chat.ask(AGAIN_ABOUT_CAT)
        assert told(model.requests[-1]) == 1
        for prompt in BRIDGES:
            chat.ask(prompt)
        compress(chat, hermes, model)
        # The first messages survive the first compression.
        chat.ask("Is the basket of the cat Minka a blue one?")
        assert told(model.requests[-1]) == 1
        for prompt in BRIDGES:
            chat.ask(prompt)
        compress(chat, hermes, model)
        chat.ask("Which colour has the basket of the cat Minka?")
        assert CAT in model.requests[-1].recalled[0], "the compression took it away"
        chat.leave()
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_an_entry_in_the_system_prompt_is_not_put_before_a_turn(hermes: Hermes, model: ModelEndpoint) -> None:
    hermes.write("memory", [CAT])
    with hermes.chat() as chat:
        for prompt in (ABOUT_CAT, AGAIN_ABOUT_CAT):
            chat.ask(prompt)
            assert CAT in model.requests[-1].system
            assert told(model.requests[-1]) == 1
        chat.leave()
    assert hermes.complaints() == []


@pytest.mark.main_host("b")
def test_an_entry_is_shown_where_the_host_has_its_memory_files_off(hermes: Hermes, model: ModelEndpoint) -> None:
    hermes.write("memory", [CAT])
    hermes.ask("Which mountain is the highest of the Alps?")
    hermes.set_up(memory={"memory_enabled": False, "user_profile_enabled": False})
    hermes.ask(ABOUT_CAT)
    assert CAT not in model.requests[-1].system
    assert CAT in model.requests[-1].recalled[0]


@pytest.mark.slow
def test_a_client_that_sends_the_messages_itself_gets_a_memory_again(
    hermes: Hermes, other: Hermes, model: ModelEndpoint
) -> None:
    with hermes.gateway() as gateway:
        said = [{"role": "user", "content": ABOUT_CAT}]
        for prompt in (AGAIN_ABOUT_CAT, "Is the basket of the cat Minka a blue one?"):
            answer = gateway.complete(said)["choices"][0]["message"]["content"]
            assert told(model.requests[-1]) == 1, "the client has not the memories of earlier turns"
            said += [{"role": "assistant", "content": answer}, {"role": "user", "content": prompt}]
        gateway.ask(ABOUT_CAT, session="s-1")
        gateway.ask(AGAIN_ABOUT_CAT, session="s-1")
        gateway.ask("Is the basket of the cat Minka a blue one?", session="s-1")
        assert told(model.requests[-1]) <= 2
        before = told(model.requests[-1])
        gateway.ask("Is the cat Minka in the basket?", session="s-1")
        assert told(model.requests[-1]) == before
    assert hermes.complaints() == []
