"""What a host recorded before it had this memory becomes searchable."""

from __future__ import annotations

import json

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows

pytestmark = one_server

TOLD = [
    ("Dana restarted the importer on bill-02 yesterday at noon.", "Noted: the importer was restarted by Dana."),
    ("The staging ledger moved to the new rack in Olten.", "Good to know, the ledger is in Olten now."),
    ("Our lawyer for contracts is Ms Keller in Thun.", "I will name Ms Keller when contracts come up."),
]
TAKEN_BACK = ("The password of the printer is on the yellow note.", "I have seen the yellow note.")


@pytest.mark.slow
def test_every_turn_of_a_record_is_found_and_none_that_was_taken_back(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    before = hermes.without_memory()
    for question, answer in TOLD[:1]:
        model.says(answer)
        before.ask(question)
    with before.chat() as chat:
        for question, answer in (TOLD[1], TAKEN_BACK):
            model.says(answer)
            chat.ask(question)
        chat.command("/undo")
    with before.gateway() as gateway:
        model.says(TOLD[2][1])
        gateway.ask(TOLD[2][0], session="one", key="ops")
        gateway.stop()
    assert rows.turns() == []

    hermes.set_up()
    # A gateway's sessions have themes of their own.
    hermes.set(cross_theme_recall="all")
    command = ("import", "--from", "state-db", str(hermes.home / "state.db"), "--json")
    # Host A does not record the session keys of clients.
    found = 3 if hermes.host == "b" else 2
    for more, counts in (((), (found, found)), ((), (found, 0)), (("--theme", "default"), (3, 3 - found))):
        done = hermes.run(*command, *more, program="hermes-pgvector")
        assert done.returncode == 0, done.stderr
        assert tuple(json.loads(done.stdout)["rows"]["turn"][name] for name in ("found", "new")) == counts, done.stdout
    for question, answer in TOLD:
        shown = hermes.run("search", question, "--scope", "all", "--json", program="hermes-pgvector").stdout
        assert question in shown
        assert answer in shown
    shown = hermes.run("search", TAKEN_BACK[0], "--scope", "all", "--json", program="hermes-pgvector").stdout
    assert TOLD[0][0] in shown
    assert TAKEN_BACK[1] not in shown
