"""Everything breaks at random and at once; in the end the memory is what the accepted events make of it.

PG_TEST_SOAK_S says for how many seconds, PG_TEST_SOAK_SEED which troubles there are; both are printed with the totals.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from faultrig import diary
from faultrig.agent import Agents
from faultrig.memory import QUICK, entries, settle, turns_are_those_of
from faultrig.troubles import Troubles
from loopback import Endpoint

from hermes_memory_pgvector.mirror.entries import parse
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

SECONDS = float(os.environ.get("PG_TEST_SOAK_S", "120"))
SEED = int(os.environ.get("PG_TEST_SOAK_SEED", "0")) or int.from_bytes(os.urandom(4))


@pytest.mark.parametrize(
    ("seconds", "longest_s", "seed"),
    [
        pytest.param(3, 0.5, 7, id="short"),
        pytest.param(SECONDS, 6, SEED, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(2 * SECONDS + 400)]),
    ],
)
def test_the_memory_holds_the_result_of_the_accepted_events(
    seconds: float, longest_s: float, seed: int, agents: Agents, own_server: EmbeddedServer, endpoint: Endpoint,
    tmp_path: Path,
) -> None:  # fmt: skip
    print(f"soak of {seconds:g} s, seed {seed}")
    settings = {**QUICK, "dsn": own_server.dsn, "embed_url": endpoint.url}
    home = tmp_path / "home"
    home.mkdir()

    def plan(number: int) -> dict[str, Any]:
        return {
            "home": str(home), "files": True, "pause_s": 0.02, "seed": seed + number, "settings": settings,
            "acts": 10 + number * 37 % 500, "polite": number % 3 == 0,
        }  # fmt: skip

    troubles = Troubles(agents, own_server, endpoint, seed)
    try:
        troubles.make(seconds, longest_s, plan)
    finally:
        troubles.mend()
    model = diary.read(home / "diary")
    print(f"{len(model.turns)} turns accepted, {len(model.maybe_turns)} in doubt;", dict(troubles.count))
    runtime = acquire(Settings(**settings), home)
    try:
        # In this thread, because in the background it could start after the check that everything is settled.
        runtime.files.reconcile("ops", "last")
        settle(runtime, own_server.dsn, 90 + seconds)
        turns_are_those_of(model, own_server.dsn)
        remembered = [entry for entry in parse((home / "memories" / "MEMORY.md").read_text()) if entry]
        assert sorted(entries(own_server.dsn)) == sorted(remembered)
        print(f"{len(remembered)} entries at the end; vectors and words are complete")
    finally:
        release(runtime)
