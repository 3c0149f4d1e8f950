"""memory_optimize shows what would leave the memory files, and does it when it is told to and allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback import Endpoint

from hermes_memory_pgvector.errors import BadArgument, Refused
from hermes_memory_pgvector.mirror.entries import DELIMITER
from hermes_memory_pgvector.model import Caller
from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import approval, relief, toolset
from hermes_memory_pgvector.tools.fact_schemas import MEMORY_OPTIMIZE

NOTES = [f"Server {place} is restarted on day {place} of each month, by shift {place * 7}." for place in range(20)]
CALLER = Caller(theme="ops", session_id="s1", reads_files=True)


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**config: Any) -> Runtime:
        (tmp_path / "memories").mkdir()
        (tmp_path / "memories" / "MEMORY.md").write_text(DELIMITER.join(NOTES))
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"memory": {"memory_char_limit": 1600, **config}}))
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "recall_budget_s": 20}
        running.append(acquire(Settings(**values), tmp_path))  # type: ignore[arg-type]
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def text(runtime: Runtime) -> str:
    return runtime.home.file("memory").read_text()


@pytest.mark.parametrize("arguments", [{}, {"dry_run": True}, {"dry_run": "true"}, {"dry_run": None}])
def test_it_only_shows_the_plan_unless_it_is_told_otherwise(
    start: Callable[..., Runtime], arguments: dict[str, Any]
) -> None:
    runtime = start()
    answer = relief.memory_optimize(runtime, arguments, CALLER)
    (file,) = answer["files"]
    assert answer["dry_run"] is True
    assert (file["file"], file["cap_chars"]) == ("MEMORY.md", 1600)
    assert file["pct_after"] <= 45 < 55 < file["pct"]
    assert text(runtime) == DELIMITER.join(NOTES)


def test_told_so_it_relieves_the_file(start: Callable[..., Runtime]) -> None:
    runtime = start()
    (planned,) = relief.memory_optimize(runtime, {}, CALLER)["files"]
    (done,) = relief.memory_optimize(runtime, {"dry_run": False}, CALLER)["files"]
    assert done["changed"]
    assert done["moves"] == planned["moves"]
    assert text(runtime) == DELIMITER.join(note for note in NOTES if note not in {m["entry"] for m in done["moves"]})


@pytest.mark.parametrize("value", ["95", 95, 95.0])
def test_the_threshold_may_be_a_text(start: Callable[..., Runtime], value: Any) -> None:
    runtime = start()
    (file,) = relief.memory_optimize(runtime, {"threshold_pct": value}, CALLER)["files"]
    assert (file["above_pct"], file["moves"]) == (95, [])


@pytest.mark.parametrize(
    "arguments", [{"threshold_pct": 0}, {"threshold_pct": "much"}, {"dry_run": "perhaps"}, {"session_id": 7}]
)
def test_a_wrong_argument_is_named(start: Callable[..., Runtime], arguments: dict[str, Any]) -> None:
    runtime = start()
    with pytest.raises(BadArgument, match=next(iter(arguments))):
        relief.memory_optimize(runtime, arguments, CALLER)
    assert text(runtime) == DELIMITER.join(NOTES)


def test_nothing_is_done_off_the_record(start: Callable[..., Runtime]) -> None:
    runtime = start()
    with pytest.raises(Refused, match="off the record"):
        relief.memory_optimize(runtime, {"dry_run": False}, Caller(theme="default", off_record=True))
    assert text(runtime) == DELIMITER.join(NOTES)


def test_with_the_write_approval_of_the_host_a_person_decides(start: Callable[..., Runtime]) -> None:
    runtime = start(write_approval=True)
    arguments = {"dry_run": False}
    preview = partial(relief.preview_of_memory_optimize, runtime, arguments, CALLER)
    held = approval.held_back(runtime, "memory_optimize", arguments, CALLER, preview)
    assert held is not None
    assert held["staged"]
    assert text(runtime) == DELIMITER.join(NOTES)
    (write,) = PendingWrites(runtime.home.state, runtime.settings).all()
    assert "MEMORY.md: " in write.preview
    assert "to entries: Server " in write.preview
    toolset.approve(runtime, write)
    assert len(text(runtime)) <= 0.45 * 1600
    with pytest.raises(Refused, match="would now do something else"):
        toolset.approve(runtime, write)


def test_what_changes_nothing_needs_no_approval(start: Callable[..., Runtime]) -> None:
    runtime = start(write_approval=True)
    nothing = {"dry_run": False, "threshold_pct": 99}
    preview = partial(relief.preview_of_memory_optimize, runtime, nothing, CALLER)
    assert approval.held_back(runtime, "memory_optimize", nothing, CALLER, preview) is None
    preview = partial(relief.preview_of_memory_optimize, runtime, {}, CALLER)
    assert approval.held_back(runtime, "memory_optimize", {}, CALLER, preview) is None


@pytest.mark.parametrize("arguments", [{}, {"dry_run": False}])
def test_who_does_not_have_the_files_sees_them_in_the_theme_of_the_home_only(
    start: Callable[..., Runtime], arguments: dict[str, Any]
) -> None:
    runtime = start()
    with pytest.raises(Refused, match="theme default only"):
        relief.memory_optimize(runtime, arguments, Caller(theme="ops"))
    with pytest.raises(Refused, match="theme default only"):
        relief.preview_of_memory_optimize(runtime, {"dry_run": False}, Caller(theme="ops"))
    assert text(runtime) == DELIMITER.join(NOTES)
    assert relief.memory_optimize(runtime, arguments, Caller(theme="default"))["files"]


def test_it_has_the_arguments_of_hermes_memory() -> None:
    assert list(MEMORY_OPTIMIZE["parameters"]["properties"]) == ["threshold_pct", "dry_run", "session_id"]
