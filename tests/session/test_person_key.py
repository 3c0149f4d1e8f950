"""One key names the themes of persons in all homes of a database, and no hook waits for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes_memory_pgvector.admin.doctor.database import person_key as person_key_checks
from hermes_memory_pgvector.admin.overview import overview
from hermes_memory_pgvector.hosts.config import person_key
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.session import person_key as module
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.session.person_key import NOT_MET, PersonKey
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text.theme_names import reserved

ALICE = Identity(gateway_session_key="agent:main:whatsapp:dm:4917055512", platform="whatsapp", user_id="4917055512")
BOB = Identity(gateway_session_key="agent:main:whatsapp:dm:4917099999", platform="whatsapp")
KEY = "5e" * 32


@pytest.fixture
def start(tmp_path: Path, database: str) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(home: str, **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_on_write": False, "batch_linger_s": 0, "retry_max_s": 0.2, **changed}
        running.append(Runtime(Settings(**values), tmp_path / home))
        return running[-1]

    yield make
    for runtime in running:
        runtime.close(0)


def stored_key(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        found = connection.execute("select value from hermes_pgvector_settings where name = 'person_key'").fetchall()
    return [row[0] for row in found]


def say(runtime: Runtime, identity: Identity, text: str) -> str:
    theme = runtime.context.theme(identity, None)
    assert runtime.accept(TurnTaken(theme=theme, session_id="s", user=text, assistant=""))
    return theme


def themes(database: str) -> dict[str, str]:
    with psycopg.connect(database) as connection:
        return dict(connection.execute("select content, agent_identity from conversations").fetchall())


def test_a_person_is_the_same_theme_in_every_home_of_the_database(start: Callable[..., Runtime], database: str) -> None:
    one, two = start("one"), start("two")
    assert one.wait_ready(10)
    assert two.wait_ready(10)
    assert one.context.theme(ALICE, None) == two.context.theme(ALICE, None) != one.context.theme(BOB, None)
    assert stored_key(database) == [one.context.person_key.saved()] == [two.context.person_key.saved()]
    assert not list(one.home.state.glob("*.provisional"))


def test_a_home_keeps_its_key_and_doctor_warns_when_the_database_has_another(
    start: Callable[..., Runtime], database: str
) -> None:
    old = start("old")
    old.home.state.mkdir(parents=True, exist_ok=True)
    old.context.person_key.path.write_text(KEY)
    before = old.context.theme(ALICE, None)
    assert old.wait_ready(10)
    assert (stored_key(database), old.context.theme(ALICE, None)) == ([KEY], before)
    other = start("other")
    other.home.state.mkdir(parents=True, exist_ok=True)
    other.context.person_key.path.write_text("ab" * 32)
    assert other.wait_ready(10)
    assert other.context.theme(ALICE, None) != before
    assert (stored_key(database), other.context.person_key.saved()) == ([KEY], "ab" * 32)
    assert start("new").wait_ready(10)
    verdicts = []
    for name in ("old", "other", "new"):
        home = start(name).home
        (check,) = person_key_checks(PersonKey(home.state), overview(old.settings, home.path, themes_max=0))
        verdicts.append(check.verdict)
        assert KEY not in check.found + check.remedy
    assert verdicts == ["ok", "warning", "ok"]


def test_turns_said_before_the_database_answered_are_stored_under_the_key_of_the_fleet(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    first = start("first")
    assert first.wait_ready(10)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = start("late", dsn=f"postgresql://x@127.0.0.1:{nobody.getsockname()[1]}/x", connect_timeout_s=0.5)
        provisional = say(away, ALICE, "told before the database was there")
        assert reserved(provisional)
        spooled = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert provisional.encode() in spooled
        assert b"4917055512" not in spooled
    away.close(0)
    # The same process, once the database answers: what it filed by its own key is renamed on the way in.
    late = start("late")
    vars(late.context.person_key).update(vars(away.context.person_key))
    assert say(late, ALICE, "told while it connects") == provisional
    deadline = time.monotonic() + 20
    while len(themes(database)) < 2 and time.monotonic() < deadline:
        late.writer.flush(0.5)
    final = say(late, ALICE, "told after")
    assert late.writer.flush(10)
    assert final == first.context.theme(ALICE, None) != provisional
    assert themes(database) == dict.fromkeys(
        ("told before the database was there", "told while it connects", "told after"), final
    )


def test_the_provisional_key_becomes_the_key_of_a_database_that_has_none(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start("only")
    provisional = say(runtime, ALICE, "the first thing ever told")
    assert runtime.writer.flush(10)
    assert runtime.context.theme(ALICE, None) == provisional
    assert themes(database) == {"the first thing ever told": provisional}


def test_the_operators_key_stays_out_of_the_database(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", KEY)
    one = start("one")
    assert one.wait_ready(10)
    assert stored_key(database) == []
    monkeypatch.delenv("HERMES_PGVECTOR_PERSON_KEY")
    kept = start("two")
    kept.home.state.mkdir(parents=True, exist_ok=True)
    kept.context.person_key.path.write_text(KEY)
    # The key of a database can be moved into the environment as it is.
    assert kept.context.theme(ALICE, None) == one.context.theme(ALICE, None)


def test_turns_of_a_dead_process_with_another_key_are_stored_when_the_person_writes_again(
    start: Callable[..., Runtime], database: str
) -> None:
    first = start("first")
    assert first.wait_ready(10)
    nowhere = {"dsn": "postgresql://x@127.0.0.1:1/x", "connect_timeout_s": 0.5}
    dead = start("late", **nowhere)
    alice, bob = say(dead, ALICE, "told by alice"), say(dead, BOB, "told by bob")
    dead.close(0)
    # The next process reaches the database and adopts, and nothing in the home tells who they are.
    late = start("late")
    assert late.wait_ready(10)
    until(late, lambda: len(late.dead_letters.ids()) == 2)
    assert themes(database) == {}
    assert b"4917055512" not in b"".join(path.read_bytes() for path in late.home.path.rglob("*") if path.is_file())
    final = late.context.theme(ALICE, None)
    assert final == first.context.theme(ALICE, None) != alice
    until(late, lambda: themes(database) == {"told by alice": final})
    assert [letter.reason for letter in late.dead_letters] == [NOT_MET]
    # Another start later, when the key of the home has long been another one.
    late.close(5)
    later = start("late")
    assert later.wait_ready(10)
    assert say(later, BOB, "told by bob again") == first.context.theme(BOB, None) != bob
    until(later, lambda: not later.dead_letters.ids() and len(themes(database)) == 3)
    assert set(themes(database).values()) == {final, first.context.theme(BOB, None)}


def test_the_author_in_a_room_is_renamed_with_it(start: Callable[..., Runtime], database: str) -> None:
    room = Identity(gateway_session_key="agent:main:telegram:group:-1007", platform="telegram", user_id="4917055512")
    first = start("first")
    assert first.wait_ready(10)
    away = start("late", dsn="postgresql://x@127.0.0.1:1/x", connect_timeout_s=0.5)
    talk = Conversation(away.context, room, "s", "primary")
    talk.open_turn("who waters the tomatoes?")
    talk.take_turn("who waters the tomatoes?", "Alice does, on Mondays.")
    away.close(0)
    late = start("late")
    vars(late.context.person_key).update(vars(away.context.person_key))
    late.writer.wake()
    until(late, lambda: len(themes(database)) == 2)
    assert set(themes(database).values()) == {first.context.theme(room, None)}
    with psycopg.connect(database) as connection:
        found = connection.execute("select distinct metadata ->> 'author' from conversations").fetchall()
    assert found == [(first.context.author("telegram", "4917055512"),)]


def test_dead_letters_of_a_person_are_stored_by_a_process_that_met_the_person(
    start: Callable[..., Runtime], database: str
) -> None:
    assert start("first").wait_ready(10)
    dead = start("late", dsn="postgresql://x@127.0.0.1:1/x", connect_timeout_s=0.5)
    say(dead, ALICE, "told by alice")
    gateway = start("late", adopt_interval_s=1)
    assert gateway.wait_ready(10)
    say(gateway, ALICE, "again by alice")
    until(gateway, lambda: len(themes(database)) == 1)
    # Somebody who adopts, and has met nobody.
    stranger = start("late")
    gateway.writer.stop(5)
    dead.close(0)
    assert stranger.wait_ready(10)
    until(stranger, lambda: len(stranger.dead_letters.ids()) == 1)
    stranger.close(5)
    say(gateway, ALICE, "and once more by alice")
    until(gateway, lambda: len(themes(database)) == 3)
    assert len(set(themes(database).values())) == 1
    until(gateway, lambda: not gateway.dead_letters.ids())


@pytest.mark.parametrize("content", ["", "abcd", "not hexadecimal", "00" * 31])
def test_a_damaged_key_is_logged_once_and_replaced_only_by_the_key_of_the_database(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = PersonKey(tmp_path)
    first.settle(lambda offer: offer)
    key = current(first)
    first.path.write_text(content)
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        damaged = PersonKey(tmp_path)
        assert current(damaged) == current(damaged) == ""
    assert caplog.text.count("person_key is damaged") == 1
    assert not content or content not in caplog.text
    damaged.settle(lambda offer: offer)
    assert first.path.read_text() == content
    again = PersonKey(tmp_path)
    again.settle(lambda offer: offer or key)
    assert current(again) == current(PersonKey(tmp_path)) == key


def test_the_operators_key_is_written_nowhere(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_PERSON_KEY=a long random text\n")
    key = PersonKey(tmp_path / "pgvector", person_key(tmp_path))
    key.settle(lambda offer: pytest.fail("the database was asked"))
    assert current(key) == b"a long random text".hex()
    assert not (tmp_path / "pgvector").exists()


def current(key: PersonKey) -> str:
    return key.name(lambda found: found.hex())


def until(runtime: Runtime, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, runtime.dead_letters.ids()
        runtime.writer.flush(0.5, orphans=True)


def test_a_key_that_another_process_saves_while_it_is_read_is_not_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, read = PersonKey(tmp_path), module._read

    def then_saved_by_another(path: Path) -> str:
        found = read(path)
        key.path.write_text(KEY)
        return found

    monkeypatch.setattr(module, "_read", then_saved_by_another)
    assert key.name(bytes.hex)
