"""A host that compresses a session only when its turns are safe on disk. Only one of the hosts can ask for that."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hostrig import hermes as rig
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows

pytestmark = one_server

HOOK_CALLS = Path(rig.__file__).with_name("hook_calls.py")
ASKED = [f"Tell me about the history of bridge number {number} over the river Aare" for number in range(7)]
SUMMARY = "A summary: bridges over the Aare were discussed, and of none is anything known."


def keepers(hermes: Hermes) -> set[str]:
    """The command lines of the processes that have an outbox of this home open."""
    spool, found = str(hermes.home / "pgvector" / "spool"), set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()).startswith(spool):
                found.add((link.parents[1] / "cmdline").read_text().replace("\0", " "))
    return found


def questions(rows: Rows) -> Counter[str]:
    return Counter(turn.content for turn in rows.turns() if turn.role == "user")


@pytest.mark.main_host("b")
def test_what_was_compressed_is_stored_once_though_the_process_was_killed(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    hermes.set_up(compression={"checkpoint_required": True})
    model.errand = SUMMARY
    hermes.set(dsn="postgresql://nobody@127.0.0.1:1/none")
    with hermes.chat() as chat:
        for prompt in ASKED[:6]:
            chat.ask(prompt)
        chat.command("/compress")
        assert len(model.seen) > len(model.requests), "the host asked for no summary"
        # Leaving the terminal kills the host.
    assert hermes.spooled()
    assert rows.turns() == []
    hermes.set(dsn=hermes.settings["dsn"])
    hermes.ask(ASKED[6])
    rows.wait(lambda rows: len(rows.turns()) == 14)
    assert questions(rows) == Counter(ASKED)


@pytest.mark.main_host("b")
@pytest.mark.parametrize("isolation", ["in_process", "host"])
def test_nothing_is_compressed_without_a_checkpoint_and_the_chat_goes_on(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, isolation: str
) -> None:
    hermes.set_up(compression={"checkpoint_required": True}, plugins={"isolation": isolation})
    hermes.set(spool_dir="/dev/null/spool")
    model.errand = SUMMARY
    with hermes.chat() as chat:
        for prompt in ASKED[:6]:
            chat.ask(prompt)
        chat.command("/compress")
        chat.ask(ASKED[6])
        compressed = len(model.seen) > len(model.requests)
        kept = all(prompt in model.requests[-1].raw for prompt in ASKED)
        chat.leave()
    assert questions(rows) == Counter(ASKED)
    if hermes.host == "a":
        assert compressed, "this host knows no checkpoints, so it compresses as before"
        return
    assert not compressed, "the host asked for a summary"
    assert kept
    # What a plugin host logs is in the log of the host as information.
    lines = hermes.complaints() if isolation == "in_process" else hermes.logs().splitlines()
    [told] = [line for line in dict.fromkeys(lines) if "no checkpoint before a compression" in line]
    assert ("plugin host [" in told) == (isolation == "host")
    assert "cannot be written" in told
    assert "set spool_dir" in told


@pytest.mark.main_host("b")
def test_a_plugin_host_keeps_turns_recalls_and_makes_checkpoints(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    # The other host knows no isolation and ignores the setting.
    hermes.set_up(compression={"checkpoint_required": True}, plugins={"isolation": "host"})
    model.errand = SUMMARY
    with hermes.chat() as chat:
        for prompt in ASKED[:6]:
            chat.ask(prompt)
        [keeper] = keepers(hermes)
        assert ("plugin_host_child" in keeper) == (hermes.host == "b")
        chat.command("/compress")
        assert len(model.seen) > len(model.requests), "the host asked for no summary"
        # Leaving the terminal kills the host.
    rows.wait(lambda rows: len(rows.turns()) == 12)
    hermes.ask(ASKED[6])
    recalled = "".join(model.requests[-1].recalled)
    assert any(asked in recalled for asked in ASKED[:6])
    rows.wait(lambda rows: len(rows.turns()) == 14)
    assert questions(rows) == Counter(ASKED)
    assert hermes.complaints() == []


@pytest.mark.parametrize("required", [None, False, True])
def test_the_hook_raises_only_when_a_checkpoint_is_required(hermes: Hermes, rows: Rows, required: bool | None) -> None:
    said = [{"role": "user", "content": ASKED[0]}, {"role": "assistant", "content": "Of this bridge nothing is known."}]
    named = {} if required is None else {"require_checkpoint": required}
    begin = ["initialize", ["s1"], {"hermes_home": str(hermes.home), "platform": "cli", "agent_identity": "default"}]
    calls = json.dumps([begin, ["on_pre_compress", [said], named], ["shutdown", [], {}]])
    hermes.set(spool_dir="/dev/null/spool")
    done = hermes.run(str(HOOK_CALLS), calls, program="python")
    assert ("CheckpointFailed" in done.stderr) == (required is True), done.stderr
    assert (done.returncode == 0) == (required is not True)
    if required is None:
        # A host that knows no checkpoints hands over the turns by other hooks.
        assert rows.said() == []
