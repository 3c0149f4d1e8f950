"""A model keeps facts by its tools; the hot ones come before its turns, once, and leave when their work is done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = one_server

PORT, MOVED = "V[srv.prod]: api.example.com:3005", "V[srv.prod]: api.example.com:3006"
KEEP, CHANGE = "Please keep the port of the interface in mind", "Please note that the port of the interface has changed"
DONE = "The interface has been moved, and everything works now"


def script(request: Request) -> Call | str | None:
    if request.results:
        return "I have noted it."
    said = request.user.split("<memory-context>")[0]
    wanted = PORT if KEEP in said else MOVED if CHANGE in said else ""
    return Call("memory_write", {"content": wanted, "scope": "move"}) if wanted else None


@pytest.fixture
def hermes(make_hermes: Callable[..., Hermes]) -> Hermes:
    return make_hermes(tools="facts", prefetch_turns=False, write_wait_s=20, prefetch_budget_s=7)


@pytest.mark.main_host("b")
def test_hot_facts_come_before_a_turn_when_they_have_changed(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    model.script = script
    with hermes.chat() as chat:
        chat.ask(KEEP)
        chat.ask("What do you think about the roof of the old barn?")
        assert {"memory_write", "memory_status", "recall_memory"} <= set(model.requests[-1].tools)
        (block,) = model.requests[-1].recalled
        assert block.count(PORT) == 1
        chat.ask("And what about the cellar of the old barn?")
        assert model.requests[-1].recalled == [], "the host sends the block of the turn before again"
        chat.ask(CHANGE)
        chat.ask("What do you think about the windows of the old barn?")
        assert [MOVED in block for block in model.requests[-1].recalled] == [True]
        assert PORT not in model.requests[-1].recalled[0]
        chat.ask(DONE)
        chat.ask("What do you think about the doors of the old barn?")
        assert model.requests[-1].recalled == []
        chat.leave()
    found = {row.content: row.status for row in rows("SELECT content, status FROM facts ORDER BY id")}
    assert found == {"api.example.com:3005": "superseded", "api.example.com:3006": "cold"}
    assert hermes.complaints() == []
