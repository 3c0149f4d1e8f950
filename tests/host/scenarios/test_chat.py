"""Interactive sessions: several turns, and the host's commands that end, resume, undo and compress a session."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from hostrig.chat import ENDED_S_MAX
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Reply, Request
from hostrig.rows import Rows
from waiting import wait_for

pytestmark = one_server

PORT = "The staging database listens on port 5433."
BOAT = "The boat to Rapperswil sails at nine from the north pier."
ABOUT_PORT = "On which port listens the staging database?"
ABOUT_BOAT = "When sails the boat to Rapperswil?"


def remember(hermes: Hermes, model: ModelEndpoint, *facts: str) -> None:
    """Save facts in another home: a host has those of its own in the system prompt."""
    model.says([Call("memory", {"action": "add", "target": "memory", "content": fact}) for fact in facts], "Saved.")
    hermes.elsewhere().ask("Save these facts, they will be needed")
    model.reset()


@pytest.mark.cold_start
def test_a_new_session_of_the_same_process_is_a_session_of_its_own(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    first, second = "Which mountain is the highest of the Alps?", "Which river flows through the city of Basel?"
    model.says("The highest one is Mont Blanc, with 4806 metres.", "That is the Rhine, which bends northwards there.")
    with hermes.chat() as chat:
        chat.ask(first)
        hermes.write("memory", [PORT])
        chat.command("/new")
        rows.wait(lambda now: now.entries() == [PORT])
        chat.ask(second)
        assert chat.leave() == 0
    turns = rows.turns()
    assert [(turn.role, turn.content[:20]) for turn in turns] == [
        ("user", first[:20]),
        ("assistant", "The highest one is M"),
        ("user", second[:20]),
        ("assistant", "That is the Rhine, w"),
    ]
    assert [turns[0].session, turns[2].session] == [turns[1].session, turns[3].session] == hermes.sessions()
    assert all(turn.embedded for turn in turns)
    assert all(request.streamed for request in model.requests)
    assert hermes.complaints() == []


@pytest.mark.slow
def test_each_turn_gets_what_belongs_to_it_and_small_talk_between_does_not_matter(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint
) -> None:
    hermes = make_hermes(min_similarity=0.45, prefetch_turns=False)
    remember(hermes, model, PORT, BOAT)
    with hermes.chat() as chat:
        for prompt in (ABOUT_PORT, ABOUT_BOAT, "thanks!", ABOUT_PORT):
            chat.ask(prompt)
    recalled = ["".join(request.recalled) for request in model.requests]
    assert [(PORT in text, BOAT in text) for text in recalled] == [
        (True, False),
        (False, True),
        (False, False),
        # The host sends the memories of the first turn again.
        (False, False),
    ]


@pytest.mark.slow
def test_a_resumed_session_goes_on_under_its_id(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    with hermes.chat() as chat:
        chat.ask("Which mountain is the highest of the Alps?")
        chat.leave()
    (session,) = hermes.sessions()
    with hermes.chat("--resume", session) as chat:
        chat.ask("And how high is the second highest of them?")
        chat.command("/new")
        chat.ask("Which river flows through the city of Basel?")
        chat.command(f"/resume {session}")
        chat.ask("And which one is the third highest of them?")
        chat.leave()
    users = [(turn.session == session, turn.content) for turn in rows.turns() if turn.role == "user"]
    assert users == [
        (True, "Which mountain is the highest of the Alps?"),
        (True, "And how high is the second highest of them?"),
        (False, "Which river flows through the city of Basel?"),
        (True, "And which one is the third highest of them?"),
    ]
    assert len(rows.turns()) == 8


@pytest.mark.slow
def test_a_turn_that_is_undone_or_retried_does_not_double_the_others(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.chat() as chat:
        chat.ask("Which mountain is the highest of the Alps?")
        chat.ask("Which mountain is the highest of Texas?")
        chat.command("/undo")
        chat.ask("Which river flows through the city of Basel?")
        asked = len(model.requests)
        chat.command("/retry", settle=False)
        rows.wait(lambda _: len(model.requests) > asked)
        chat.settle()
        chat.leave()
    users = Counter(turn.content for turn in rows.turns() if turn.role == "user")
    assert users["Which mountain is the highest of the Alps?"] == 1
    assert users["Which river flows through the city of Basel?"] == 1
    assert max(users.values()) == 1
    assert [turn.content[:9] for turn in rows.turns() if turn.role == "assistant"] == ["Answer 1:", "Answer 4:"]
    assert len({turn.session for turn in rows.turns()}) == 1


@pytest.mark.main_host("b")
def test_a_branch_repeats_nothing_of_the_session_before_it_and_takes_nothing_of_it_back(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    alps, texas, ural, wales, andes = (
        f"Which mountain is the highest of {where}, please?"
        for where in ("the Alps", "Texas", "the Ural", "Wales", "the Andes")
    )
    with hermes.chat() as chat:
        chat.ask(alps)
        chat.ask(texas)
        chat.command("/branch")
        trunk, branch = hermes.sessions()
        chat.ask(ural)
        # The second of these takes back in the branch what still stands in the session before it.
        chat.command("/undo")
        chat.command("/undo")
        chat.ask(wales)
        chat.command(f"/resume {trunk}")
        chat.ask(andes)
        assert chat.leave() == 0
    # Another process knows of the branch by the host's record only, and replays the whole of it at its end.
    with hermes.chat("--resume", branch) as chat:
        chat.ask(ural)
        chat.leave()
    said = rows("SELECT session_id, parent_session_id, content FROM conversations WHERE role = 'user' ORDER BY ts, id")
    assert [tuple(turn)[::2] for turn in said] == [
        (trunk, alps), (trunk, texas), (branch, wales), (trunk, andes), (branch, ural)
    ]  # fmt: skip
    assert said[2].parent_session_id == trunk
    assert len(rows.turns()) == 2 * len(said)
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_terminal_that_is_closed_during_a_turn_leaves_what_was_said_before(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    """The hosts then ask the model what they were ended by."""
    closed = threading.Event()
    question, slow = "Which river flows through the city of Basel?", "Tell me more about the history of this city"

    def script(request: Request) -> Reply:
        if slow in request.user:
            closed.wait(ENDED_S_MAX)
        return f"This is the answer with number {len(model.requests)}, and there is no more to say."

    model.script = script
    with hermes.chat() as chat:
        chat.ask(question)
        chat.command(slow, settle=False)
        wait_for(lambda: slow in model.requests[-1].user)
        chat.process.send_signal(signal.SIGHUP)
        assert chat.ended(ENDED_S_MAX) == 0
    closed.set()
    hermes.ask(ABOUT_BOAT)
    said = [turn.content for turn in rows.turns() if turn.role == "user"]
    # The question that was not answered is stored, unless the host ends before it comes to that.
    assert said in ([question, slow, ABOUT_BOAT], [question, ABOUT_BOAT])
    assert hermes.complaints() == []


@pytest.mark.slow
def test_a_compressed_session_keeps_every_turn_once(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    asked = [f"Tell me about the history of bridge number {n} over the river Aare" for n in range(8)]
    model.errand = "A summary: bridges over the Aare were discussed, from number 0 to number 5."
    with hermes.chat() as chat:
        for prompt in asked[:6]:
            chat.ask(prompt)
        chat.command("/compress")
        assert len(model.seen) > len(model.requests), "the host asked for no summary"
        for prompt in asked[6:]:
            chat.ask(prompt)
        chat.leave()
    assert Counter(turn.content for turn in rows.turns() if turn.role == "user") == Counter(asked)
    assert len(rows.turns()) == 2 * len(asked)
