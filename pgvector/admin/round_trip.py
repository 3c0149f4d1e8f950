"""A test of a memory: store, recall and remove an entry, as an agent does, and leave no trace."""

from __future__ import annotations

import time
import uuid

from ..errors import DatabaseUnavailable
from ..model import Add, RecallRequest, Remove, Scope
from ..runtime import Runtime
from ..store import entries, rows

STORED_S_MAX = 15.0
VECTOR_S_MAX = 10.0
RECALL_S_MAX = 5.0
PAUSE_S = 0.2
# The function `forget_memory_trial` of the database knows this text.
TRIAL = "The set-up tried out the memory of this agent and called it {mark}."


def round_trip(runtime: Runtime, theme: str) -> tuple[str, float]:
    """By which search the entry was recalled (`meaning`, `words` or `not`), and the milliseconds.

    The runtime is ready. Raises DatabaseUnavailable.
    """
    mark = uuid.uuid4().hex
    common = {"theme": theme, "home": runtime.home.id, "metadata": {"origin": "setup"}}
    content = TRIAL.format(mark=mark)
    added = Add(target="memory", content=content, **common)  # type: ignore[arg-type]
    removed = Remove(target="memory", previous=content, **common)  # type: ignore[arg-type]
    try:
        if not (runtime.accept(added) and _flushed(runtime)):
            raise DatabaseUnavailable(runtime.writer.health.problem or f"nothing was stored within {STORED_S_MAX:g} s")
        request = RecallRequest(
            query=f"What did the set-up try out and call {mark}?", scope=Scope(theme, (theme,)), limit=5,
            budget_s=RECALL_S_MAX,
        )  # fmt: skip
        return _recalled(runtime, request, content)
    finally:
        runtime.accept(removed)
        if _flushed(runtime):
            with runtime.database.connection() as connection:
                rows.forget(connection, theme, [added.id, removed.id])
                entries.forget_trial(connection, theme, content)


def _flushed(runtime: Runtime) -> bool:
    """Whether everything is stored; a writer that has a problem is not waited for."""
    deadline = time.monotonic() + STORED_S_MAX
    while not runtime.writer.flush(PAUSE_S):
        if runtime.writer.health.problem or time.monotonic() > deadline:
            return False
    return True


def _recalled(runtime: Runtime, request: RecallRequest, content: str) -> tuple[str, float]:
    """Recall until the entry is found by its vector, which a slow embedder makes a little later."""
    deadline = time.monotonic() + VECTOR_S_MAX
    how = "not"
    while True:
        started = time.monotonic()
        hits = runtime.recall("entries", request).hits
        took_ms = 1000 * (time.monotonic() - started)
        found = next((hit for hit in hits if hit.content == content), None)
        if found is not None:
            how = "words" if found.similarity is None else "meaning"
        if how == "meaning" or time.monotonic() > deadline or isinstance(runtime.compatibility.usable(), str):
            return how, took_ms
        time.sleep(PAUSE_S)
