"""capture explain and pending: what an operator sees and decides."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint

from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.settings import Settings

TEXT = "Which port does the staging database listen on, please?"
RULES = [
    {"pattern": "password", "action": "none"},
    {"author": "owner", "action": "turns"},
    {"platform": "telegram", "chat_type": "group", "action": "entries"},
    {"action": "none"},
]

Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `hermes-pgvector --json …` for a home with rules and a database."""
    values = {"DSN": database, "EMBED_URL": endpoint.url, "EMBED_MODEL": "words", "KEEP": json.dumps(RULES)}
    for name, value in {**values, "OWNER_ACCOUNTS": '["telegram:7"]'}.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{name}", value)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), "--json", *arguments)


@pytest.fixture
def store(tmp_path: Path) -> PendingWrites:
    return PendingWrites(tmp_path / "pgvector", Settings(pending_max=10, pending_days=30))


def remember(store: PendingWrites, text: str) -> str:
    preview = f"remember (memory): {text}"
    return store.add("remember", {"content": text}, theme="ops", session_id="s", marks={}, preview=preview)


def entries(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select content from memory_entries order by id").fetchall()]


@pytest.mark.parametrize(
    ("arguments", "stored", "why"),
    [
        ([TEXT], True, "rule 2 of keep says turns"),
        (["What is the password of the staging database?"], False, "rule 1 of keep says none"),
        ([TEXT, "--platform", "telegram", "--chat-type", "dm", "--author", "7"], True, "rule 2 of keep says turns"),
        ([TEXT, "--platform", "telegram", "--room", "-100", "--author", "7"], True, "rule 2 of keep says turns"),
        ([TEXT, "--platform", "telegram", "--room", "-100", "--author", "8"], False, "rule 3 of keep says entries"),
        ([TEXT, "--platform", "telegram", "--room", "-100"], False, "rule 3 of keep says entries"),
        ([TEXT, "--platform", "api_server"], False, "rule 4 of keep says none"),
        (["thanks!"], False, "shorter than turn_min_chars, 40"),
        (["off the record"], False, "off the record"),
        ([f"[Heartbeat — recurring instruction, fires every 1h]\n{TEXT}"], False, "the host wrote it: [Heartbeat"),
        ([TEXT, "--context", "cron"], False, "write_contexts does not name cron"),
    ],
)
def test_the_rule_or_other_reason_that_decides_on_a_turn_is_named(
    run: Run, arguments: list[str], stored: bool, why: str
) -> None:
    found = run("capture", "explain", *arguments).document["turn"]["user"]
    assert found["stored"] is stored
    assert why in found["why"]


def test_both_sides_an_entry_and_recall_are_explained(run: Run) -> None:
    room = ("--platform", "telegram", "--room", "-100", "--author", "8")
    found = run("capture", "explain", "thanks", "--answer", "The password is old.", *room).document
    assert [found["turn"][side]["why"] for side in ("user", "assistant")] == ["rule 1 of keep says none"] * 2
    assert found["entry"] == {"stored": True, "why": "rule 3 of keep says entries"}
    assert found["recall"] == {"recalled": False, "why": "it is small talk or a command"}
    answer = run("capture", "explain", TEXT, "--role", "assistant").document
    assert list(answer["turn"]) == ["assistant"]
    shown = hermes_pgvector("capture", "explain", TEXT).out
    assert "no rule of keep applies" not in shown
    assert "author owner" in shown


@pytest.mark.parametrize(
    ("message", "stored"),
    [("off the record", False), ("off the record: the PIN is 1234", False), ("on the record", True)],
)
def test_what_is_saved_after_a_message_off_the_record_is_explained(run: Run, message: str, stored: bool) -> None:
    found = run("capture", "explain", message).document
    assert found["turn"]["user"]["stored"] is False
    assert found["entry"]["stored"] is stored


def test_a_setting_that_keeps_everything_out_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_OFF_RECORD", "true")
    found: dict[str, Any] = run("capture", "explain", TEXT).document
    assert found["entry"] == found["turn"]["user"] == {"stored": False, "why": "off_record is true"}


def test_waiting_writes_are_listed_approved_in_order_and_rejected(
    run: Run, store: PendingWrites, database: str
) -> None:
    assert run("pending", "list").document == {"pending": []}
    first, second, third = (remember(store, text) for text in ("The first.", "The second.", "The third."))
    listed = run("pending", "list").document["pending"]
    assert [write["arguments"]["content"] for write in listed] == ["The first.", "The second.", "The third."]
    assert run("status").document["pending"] == 3
    assert run("pending", "reject", second[:6], "--yes").document == {"rejected": [second]}
    approved = run("pending", "approve", "--all", "--yes")
    assert (approved.code, approved.document["approved"]) == (0, [first, third])
    assert entries(database) == ["The first.", "The third."]
    assert run("status").document["pending"] == 0


def test_a_person_sees_a_write_whole_before_it_is_made(
    run: Run, store: PendingWrites, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "A long fact. " * 100 + "Its end. \x1b[2J"
    name = remember(store, text)
    assert run("pending", "approve", name).code == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    refused = hermes_pgvector("--home", str(tmp_path), "pending", "approve", name)
    assert refused.code == 1
    assert "Its end." in refused.err
    assert "\x1b" not in refused.shown
    assert (entries(database), store.ids()) == ([], [name])
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    agreed = hermes_pgvector("--home", str(tmp_path), "pending", "approve", name)
    assert (agreed.code, "approved 1 write" in agreed.out) == (0, True)
    assert len(entries(database)) == 1


def test_a_write_that_cannot_be_made_still_waits(run: Run, store: PendingWrites) -> None:
    name = store.add("forget", {"id": 9}, theme="ops", session_id="", marks={}, preview="forget entry 9 (memory): x")
    (store.folder / "0000.json").write_text("{")
    outcome = run("pending", "approve", "--all", "--yes")
    assert outcome.code == 1
    failed = outcome.document["failed"]
    assert "no such entry" in failed[name]
    assert "cannot be read" in failed["0000"]
    assert len(store.ids()) == 2


@pytest.mark.parametrize("arguments", [["approve"], ["reject"], ["approve", "ab", "--all"], ["approve", "zz"]])
def test_wrong_usage_of_pending_is_explained(run: Run, arguments: list[str]) -> None:
    outcome = run("pending", *arguments)
    assert outcome.code == 2
    assert "hermes-pgvector pending list" in outcome.err
