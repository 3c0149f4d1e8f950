"""What a user takes back, and what is said off the record, in the terminal and over the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hostrig.hermes import TOOLSETS_OFF, Hermes
from hostrig.marks import one_server, with_and_without_row_security
from hostrig.model import Call, Failure, ModelEndpoint
from hostrig.rows import Rows
from waiting import wait_for

if TYPE_CHECKING:
    from conftest import Host

pytestmark = one_server

ALPS = "Which mountain is the highest of the Alps?"
TEXAS = "Which mountain is the highest of Texas?"
BELL = "The bell of our church was cast by a foundry in Aarau."
TOWER = "The tower of our church is from 1840 and has four clocks."
BASEL = "Which river flows through the city of Basel?"


def questions(rows: Rows) -> list[str]:
    return [turn.content for turn in rows.turns() if turn.role == "user"]


def imported(hermes: Hermes) -> int:
    """How many turns of the host's record are not stored, and are now."""
    path = str(hermes.home / "state.db")
    done = hermes.run("import", "--from", "state-db", path, "--json", program="hermes-pgvector")
    return int(json.loads(done.stdout)["rows"]["turn"]["new"])


@pytest.mark.main_host("a")
def test_turns_that_are_undone_are_withdrawn_also_when_nothing_is_said_after(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.chat() as chat:
        for prompt in (ALPS, TEXAS):
            chat.ask(prompt)
        rows.wait(lambda rows: len(rows.turns()) == 4)
        chat.command("/undo")
        rows.wait(lambda rows: questions(rows) == [ALPS])
        chat.ask(BASEL)
        chat.command("/undo")
        assert chat.leave() == 0
    assert questions(rows) == [ALPS]
    assert len(rows.turns()) == 2
    (session,) = hermes.sessions()
    with hermes.chat("--resume", session) as chat:
        chat.ask(BASEL)
        chat.leave()
    assert questions(rows) == [ALPS, BASEL]
    assert hermes.complaints() == []


def test_a_question_without_an_answer_is_stored_at_the_end_and_an_empty_session_after_it_stores_nothing(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.chat() as chat:
        chat.ask(ALPS)
        model.script = lambda _: Failure()
        chat.ask(BELL)
        assert questions(rows) == [ALPS]
        chat.command("/new")
        rows.wait(lambda rows: questions(rows) == [ALPS, BELL])
        # Hosts end the new session with the transcript of the one before.
        chat.leave()
    hermes.run("-z", TOWER)
    assert questions(rows) == [ALPS, BELL, TOWER]
    assert len(rows.turns()) == 4
    assert imported(hermes) == 0


@pytest.mark.slow
def test_a_session_in_which_nothing_is_said_stores_nothing_of_others_and_a_question_said_again_is_stored_again(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    assert hermes.ask(ALPS)
    (first,) = hermes.sessions()
    with hermes.chat() as chat:
        chat.ask(BASEL)
        chat.ask(TEXAS)
        rows.wait(lambda rows: len(rows.turns()) == 6)
        chat.command("/undo")
        rows.wait(lambda rows: questions(rows) == [ALPS, BASEL])
        # Hosts end each of these sessions with the transcript that was undone.
        chat.command("/new")
        chat.command(f"/resume {first}")
        chat.command("/new")
        chat.leave()
    assert questions(rows) == [ALPS, BASEL]
    model.script = lambda _: Failure()
    with hermes.chat() as chat:
        chat.ask(BELL)
        chat.command("/new")
        chat.ask(BELL)
        chat.leave()
    assert questions(rows) == [ALPS, BASEL, BELL, BELL]
    assert imported(hermes) == 0


@pytest.mark.slow
def test_a_session_that_is_left_after_its_compression_is_stored_once(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    """Host A then writes the compressed transcript into its record once more."""
    asked = [f"Tell me about the history of bridge number {number} over the river Aare" for number in range(6)]
    model.errand = "A summary: bridges over the Aare were discussed, and of none is anything known."
    with hermes.chat() as chat:
        for prompt in asked:
            chat.ask(prompt)
        chat.command("/compress")
        chat.command("/new")
        chat.leave()
    assert questions(rows) == asked
    assert imported(hermes) == 0


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
def test_turns_that_a_compression_carried_on_are_withdrawn_and_no_others(
    in_place: bool, hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    hermes.set_up(compression={"in_place": in_place})
    asked = [f"Tell me about the history of bridge number {number} over the river Aare" for number in range(7)]
    same = "There is nothing known of the history of this bridge."
    model.errand = "A summary: bridges over the Aare were discussed, and of none is anything known."
    model.says(*[same] * 5, "It was built in the year 1840, of wood.", same)
    with hermes.chat() as chat:
        for prompt in asked[:6]:
            chat.ask(prompt)
        chat.command("/compress")
        chat.ask(asked[6])
        if hermes.host == "a":  # The other one keeps its session here, whatever is set.
            assert len(hermes.sessions()) == (1 if in_place else 2)
        rows.wait(lambda rows: questions(rows) == asked)
        chat.command("/undo")
        rows.wait(lambda rows: questions(rows) == asked[:6])
        chat.command("/undo")
        rows.wait(lambda rows: questions(rows) == asked[:5])
        assert chat.leave() == 0
    assert questions(rows) == asked[:5]
    # A turn that was taken back in the session that went on may be counted as one of the session before.
    assert imported(hermes) in ((0,) if in_place else (0, 1))
    assert len(rows.turns()) == 10
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_nothing_of_what_is_said_off_the_record_is_stored_also_after_a_restart(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.chat() as chat:
        chat.ask(ALPS)
        chat.ask("off the record")
        assert "Nothing of this session is stored" in "".join(model.requests[-1].recalled)
        model.says(Call("memory", {"action": "add", "target": "memory", "content": "A secret of today."}), "Saved.")
        chat.ask(TEXAS)
        chat.leave()
    (session,) = hermes.sessions()
    with hermes.chat("--resume", session) as chat:
        chat.ask("And how high is the second highest of them?")
        chat.ask("on the record")
        chat.ask(BASEL)
        chat.leave()
    assert questions(rows) == [ALPS, BASEL]
    assert hermes.entries("memory") == ["A secret of today."]
    assert hermes.ask("Say something about the weather of tomorrow")
    assert rows.entries() == []
    assert "secret of today" not in rows.text()
    assert hermes.complaints() == []


@pytest.mark.slow
def test_off_the_record_in_a_correction_of_a_running_turn_holds(
    make_hermes: Callable[..., Hermes], host: Host, model: ModelEndpoint, rows: Rows
) -> None:
    """The terminal of host A keeps the correction until the turn has ended, and has it as the next message."""
    off = [name for name in TOOLSETS_OFF if name != "terminal"]
    hermes = make_hermes({"agent": {"disabled_toolsets": off}})
    with hermes.chat() as chat:
        chat.ask(ALPS)
        rows.wait(lambda rows: len(rows.turns()) == 2)
        model.says(Call("terminal", {"command": "sleep 6"}), "It is Guadalupe Peak, with 2667 metres.")
        asked = len(model.requests)
        chat.command(TEXAS, settle=False)
        wait_for(lambda: len(model.requests) > asked)
        chat.command("/steer off the record", settle=False)
        wait_for(lambda: "off the record" in model.requests[-1].user)
        chat.settle()
        chat.ask(BASEL)
        assert chat.leave() == 0
    assert questions(rows) == ([ALPS, TEXAS] if host.name == "a" else [ALPS])
    assert hermes.complaints() == []


@pytest.mark.main_host("b")
def test_a_correction_that_comes_while_a_tool_runs_is_stored_with_the_question(
    make_hermes: Callable[..., Hermes], host: Host, model: ModelEndpoint, rows: Rows
) -> None:
    """The terminal of host A keeps the correction until the turn has ended, and has it as the next message."""
    hermes = make_hermes({"agent": {"disabled_toolsets": [name for name in TOOLSETS_OFF if name != "terminal"]}})
    with hermes.chat() as chat:
        model.says(Call("terminal", {"command": "sleep 6"}), "It is Guadalupe Peak, with 8751 feet.")
        asked = len(model.requests)
        chat.command(TEXAS, settle=False)
        wait_for(lambda: len(model.requests) > asked)
        chat.command("/steer in feet, please", settle=False)
        wait_for(lambda: "in feet, please" in json.dumps(model.requests[-1].messages))
        chat.settle()
        assert chat.leave() == 0
    corrected = [f"{TEXAS}\n\nUser correction during the turn: in feet, please"]
    assert questions(rows) == ([TEXAS, "in feet, please"] if host.name == "a" else corrected)
    assert imported(hermes) == 0
    assert hermes.complaints() == []


@with_and_without_row_security
@pytest.mark.main_host("b")
def test_a_theme_of_the_api_server_goes_off_the_record_for_itself(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    history = [{"role": "user", "content": "off the record"}]
    with hermes.gateway() as gateway:
        answer = gateway.complete(history, key="garden")["choices"][0]["message"]
        gateway.complete([*history, answer, {"role": "user", "content": TEXAS}], key="garden")
        gateway.ask(BASEL, key="garden")
        gateway.ask(ALPS, key="kitchen")
        rows.wait(lambda rows: len(rows.turns()) == 4)
        gateway.stop()
    assert {turn.content: turn.theme for turn in rows.turns() if turn.role == "user"} == {
        BASEL: "garden",
        ALPS: "kitchen",
    }


@pytest.mark.main_host("b")
def test_a_summary_is_told_what_is_known_of_the_matter(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    known = "The bridge over the river Aare in Aarberg is made of wood."
    model.says(Call("memory", {"action": "add", "target": "memory", "content": known}), "Saved.")
    hermes.ask("Save this fact of the bridge, it will be needed")
    model.reset()
    with hermes.chat() as chat:
        for n in range(6):
            chat.ask(f"Tell me about the history of the bridge number {n} over the river Aare in Aarberg")
        chat.command("/compress")
        chat.leave()
    toolless = [request for request in model.seen if not request.tools]
    assert any("Memories of theme default" in request.raw and "made of wood" in request.raw for request in toolless)
    assert hermes.complaints() == []


def test_a_provider_that_is_only_looked_at_starts_nothing(hermes: Hermes) -> None:
    code = """
import json, threading
from pathlib import Path
from plugins.memory import load_memory_provider
provider = load_memory_provider("pgvector")
before, files = set(threading.enumerate()), set(Path(%r).rglob("*"))
provider.initialize_for_inspection("s1", platform="cli")
print(json.dumps({
    "tools": [tool["name"] for tool in provider.get_tool_schemas()],
    "prompt": provider.system_prompt_block(), "status": provider.get_status_config({}),
    "threads": len(set(threading.enumerate()) - before), "files": len(set(Path(%r).rglob("*")) - files),
    "recalled": provider.prefetch("what do we know of the bridge?"),
}))
"""
    home = str(hermes.home / "pgvector")
    done = hermes.run("-c", code % (home, home), program="python")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert {"recall_memory", "recall_conversation"} <= set(seen["tools"])
    assert "recall_memory" in seen["prompt"]
    assert seen["status"]["database"]
    assert (seen["threads"], seen["files"], seen["recalled"]) == (0, 0, "")


@pytest.mark.parametrize("context", ["cron", "subagent"])
def test_a_job_reads_and_keeps_what_it_saves_with_a_mark(context: str, hermes: Hermes, rows: Rows) -> None:
    known = "The nightly run takes forty minutes on host seven."
    hermes.write("memory", [known])
    begun = ("initialize", ["s1"], {"hermes_home": str(hermes.home), "platform": "cli", "agent_context": context})
    _, _, recalled, *_ = hermes.hooks(
        begun,
        ("on_memory_write", ["add", "memory", known], {"metadata": {"session_id": "s1"}}),
        ("prefetch", ["How long takes the nightly run on host seven?"], {}),
        ("sync_turn", [TEXAS, "That is Guadalupe Peak, in the far west of the state."], {"session_id": "s1"}),
        ("on_session_end", [[{"role": "user", "content": TEXAS}, {"role": "assistant", "content": ALPS}]], {}),
        ("shutdown", [], {}),
    )
    assert (known in recalled) == (context == "subagent")
    assert rows.said() == []
    assert [row.context for row in rows("SELECT metadata ->> 'context' AS context FROM memory_entries")] == [context]
