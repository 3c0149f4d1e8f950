"""`remap --personal`: themes that are named like persons become hashes, and stay reachable by all commands."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector

from hermes_memory_pgvector.admin.doctor.themes import REMAP
from hermes_memory_pgvector.model import Add, FactWritten
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.chats import PERSONAL
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings

Run = Callable[..., Outcome]
MAIL, PHONE = "alice@example.com", "+49-170-5551234"


@pytest.fixture
def run(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command for the first home with these lines as its input."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)

    def command(*arguments: str, typed: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return hermes_pgvector("--home", str(tmp_path / "one"), *arguments)

    return command


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(name: str = "one", **changed: Any) -> Runtime:
        settings = Settings(dsn=database, embed_on_write=False, batch_linger_s=0, heal_interval_s=1, **changed)  # type: ignore[arg-type]
        running.append(acquire(settings, tmp_path / name))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def say(runtime: Runtime, key: str, text: str) -> None:
    talk = Conversation(runtime.context, Identity(gateway_session_key=key, platform="api_server"), "s", "primary")
    talk.take_turn(text, f"It is noted, and this is what was noted: {text}")
    assert runtime.writer.flush(20)


def held(dsn: str, table: str = "conversations") -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"select agent_identity, count(*) from {table} group by 1".encode())
        return dict(found.fetchall())


def checked(run: Run) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in run("--json", "doctor").document["checks"]}


def test_rows_under_the_name_of_a_person_are_moved_and_late_ones_follow(
    run: Run, start: Callable[..., Runtime], database: str
) -> None:
    verbatim = start()
    for key in (MAIL, PHONE, "billing", "20261124"):
        say(verbatim, key, f"the gate of {key} has the code 4711")
    assert verbatim.accept(Add(theme=MAIL, target="memory", content="The gate has the code 4711"))
    assert verbatim.accept(FactWritten(theme="0049-170-5550000", kind="V", target="gate.code", content="4711"))
    assert verbatim.writer.flush(20)
    check = checked(run)["names of themes"]
    assert check["verdict"] == "warning"
    assert check["found"].startswith("3 themes named by persons")
    assert "alice" not in str(check)
    assert "5551234" not in str(check)

    assert "hash_personal_keys is off" in run("remap", "--personal", "--yes").err
    first, second = check["remedy"].split(" && ")
    assert second == REMAP
    assert run(*first.split()[1:]).code == 0
    assert "leave the names out" in run("remap", "--personal", MAIL, PHONE).err
    plan = run("--json", "remap", "--personal", "--dry-run")
    assert MAIL not in plan.out
    assert len(held(database)) == 4
    done = run("--json", "remap", "--personal", "--yes").document
    kinds = [theme["kind"] for theme in done["themes"]]
    assert kinds == ["a phone number", "a phone number", "a mail address"]
    assert done["moved"] >= 6
    hashed, of_facts = {theme["new"] for theme in done["themes"]}, held(database, "facts")
    assert len(of_facts) == 1
    assert of_facts.keys() < hashed
    new = hashed - of_facts.keys()
    assert held(database) == dict.fromkeys((*new, "billing", "20261124"), 2)
    assert "names of themes" not in checked(run)

    # A home that hashes finds the rows under the same name, one that does not yet stores them there.
    hashing = start("two", hash_personal_keys=True)
    say(hashing, "Alice@Example.com", "the gate of the orchard is closed at night")
    say(verbatim, MAIL, "the gate of the garden is closed at night")
    assert set(held(database)) == {*new, "billing", "20261124"}
    assert sorted(held(database).values()) == [2, 2, 2, 6]


def test_erase_and_link_find_a_person_by_the_key_before_and_after_it_is_hashed(
    run: Run, start: Callable[..., Runtime], database: str
) -> None:
    verbatim, hashing = start(), start("two", hash_personal_keys=True)
    say(verbatim, MAIL, "the code of the gate is 4711")
    say(hashing, MAIL, "the code of the gate is 4712")
    say(hashing, PHONE, "the code of the gate is 4713")
    run("settings", "set", "hash_personal_keys", "true")
    linked = run("--json", "person", "link", "--yes", typed=f"key {PHONE}\ntelegram 4917055512\n\n").document
    assert linked["accounts"][0].startswith(PERSONAL)
    assert list(linked["moved"].values()) == [2, 0]
    for typed in (MAIL.upper(), PHONE):
        erased = run("--json", "erase", "--person", "--yes", typed=f"key {typed}\n\n")
        assert erased.code in (0, 3), erased.shown
    assert held(database) == {}
    # The one that was stored by name is marked by name, the other one is not.
    assert MAIL in held(database, "memory_erasures")
    assert PHONE not in held(database, "memory_erasures")
