"""A test of the set-up: store, recall and remove an entry, as an agent does, and leave no trace."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from ...errors import DatabaseUnavailable
from ...model import Add, RecallRequest, Remove, Scope
from ...runtime import Runtime
from ...settings import Settings
from ...store import entries, rows
from ...text.theme_names import DEFAULT_THEME, normalise
from ..database import running, wait_ready

STORED_S_MAX = 15.0
VECTOR_S_MAX = 10.0
RECALL_S_MAX = 5.0
PAUSE_S = 0.2


def round_trip(home: Path, settings: Settings) -> tuple[str, float]:
    """By which search the entry was recalled (`meaning`, `words` or `not`), and the milliseconds.

    Raises DatabaseUnavailable and SettingsError.
    """
    with running(settings, home) as runtime:
        wait_ready(runtime)
        theme = normalise(settings.allowed_themes[0]) if settings.allowed_themes else DEFAULT_THEME
        return _round(runtime, theme)


def _round(runtime: Runtime, theme: str) -> tuple[str, float]:
    mark = uuid.uuid4().hex
    common = {"theme": theme, "home": runtime.home.id, "metadata": {"origin": "setup"}}
    content = f"The set-up tried out the memory of this agent and called it {mark}."
    added = Add(target="memory", content=content, **common)  # type: ignore[arg-type]
    removed = Remove(target="memory", previous=content, **common)  # type: ignore[arg-type]
    try:
        if not runtime.accept(added) or not runtime.writer.flush(STORED_S_MAX):
            raise DatabaseUnavailable(runtime.writer.health.problem or f"nothing was stored within {STORED_S_MAX:g} s")
        request = RecallRequest(
            query=f"What did the set-up try out and call {mark}?", scope=Scope(theme, (theme,)), limit=5,
            budget_s=RECALL_S_MAX,
        )  # fmt: skip
        return _recalled(runtime, request, content)
    finally:
        runtime.accept(removed)
        if runtime.writer.flush(STORED_S_MAX):
            with runtime.database.connection(runtime.settings.connect_timeout_s) as connection:
                rows.forget(connection, theme, [added.id, removed.id])
                entries.erase(connection, theme, content)


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
