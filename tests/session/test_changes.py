"""A running agent follows what other processes change in the database."""

from __future__ import annotations

from pathlib import Path

from connected import connected
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.model import RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.erasure import marks


def test_after_an_erasure_a_running_agent_forgets_texts_that_it_holds(
    database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    settings = Settings(dsn=database, embed_url=endpoint.url, embed_model="words", heal_interval_s=1)  # type: ignore[arg-type]
    runtime = acquire(settings, tmp_path)
    try:
        assert runtime.wait_ready(20)
        runtime.accept(TurnTaken(theme="ops", session_id="s", user="The code is 4711", assistant="I see"))
        asked = RecallRequest(query="What is the code?", scope=Scope("ops", ("ops",)), limit=5, budget_s=20)
        assert [hit.content for hit in runtime.recall("turns", asked).hits][:1] == ["The code is 4711"]
        caches = runtime._recaller._vectors, runtime._batches._last_texts
        assert all(map(len, caches))
        with connected(database) as connection:
            marks.add(connection, [("other", "theme", "")])
        wait_for(lambda: not any(map(len, caches)))
        assert runtime.recall("turns", asked).hits
    finally:
        release(runtime)
