"""Accounts of one person, linked and separated by an operator, while agents of several homes write and read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from statements import counted
from waiting import wait_for

from hermes_memory_pgvector.model import Caller
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import moves, person_links
from hermes_memory_pgvector.tools import toolset

TELEGRAM, DISCORD, OTHER = "4917055512", "99887766554433", "4917099999"
ROOM = "agent:main:telegram:group:-100777"
BOTH = f"telegram {TELEGRAM}\ndiscord {DISCORD}\n\n"

Run = Callable[..., Outcome]


@pytest.fixture
def endpoint_url() -> Iterator[str]:
    served = Endpoint()
    yield served.url
    served.close()


@pytest.fixture
def values(database: str, endpoint_url: str) -> dict[str, Any]:
    return {
        "dsn": database, "embed_url": endpoint_url, "embed_model": "words", "batch_linger_s": 0, "heal_interval_s": 1,
        "tools": "all", "recall_budget_s": 20, "cross_theme_recall": "all",
    }  # fmt: skip


@pytest.fixture
def open_home(tmp_path: Path, values: dict[str, Any]) -> Iterator[Callable[..., Runtime]]:
    """The memory of a home of this fleet, as an agent has it."""
    running: list[Runtime] = []

    def start(name: str = "one") -> Runtime:
        running.append(acquire(Settings(**values), tmp_path / name))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield start
    for runtime in running:
        release(runtime)


@pytest.fixture
def run(tmp_path: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `hermes-pgvector person …` for the first home with these lines as its input."""
    for key, value in values.items():
        monkeypatch.setenv(f"HERMES_PGVECTOR_{key.upper()}", str(value))

    def person(*arguments: str, typed: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return hermes_pgvector("--home", str(tmp_path / "one"), "person", *arguments)

    return person


def chat(runtime: Runtime, platform: str, chat_id: str) -> Conversation:
    key = chat_id if chat_id.startswith("agent:") else f"agent:main:{platform}:dm:{chat_id}"
    # The hosts call a home outside of ~/.hermes so.
    identity = Identity(gateway_session_key=key, agent_identity="default", platform=platform, chat_id=chat_id)
    return Conversation(runtime.context, identity, f"session-{platform}", "primary")


def say(runtime: Runtime, platform: str, chat_id: str, text: str) -> None:
    conversation = chat(runtime, platform, chat_id)
    conversation.open_turn(text)
    conversation.take_turn(text, f"It is noted, and this is what was noted: {text}")
    assert runtime.writer.flush(20)


def recalled(runtime: Runtime, platform: str, chat_id: str, question: str) -> str:
    """What comes before a turn, of other sessions."""
    theme = chat(runtime, platform, chat_id).session.allowed_theme()
    assert theme
    return "\n".join(hit.content for hit in runtime.prefetch.before_turn(theme, question, "another").hits)


def themes(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        counted = "select agent_identity, count(*) from conversations group by 1"
        return dict(connection.execute(counted).fetchall())


GATE, BOAT = "The gate of the orchard has the code 4711", "The boat of my uncle lies in the harbour of Thun"


def test_what_is_said_on_one_platform_is_recalled_on_the_other_from_every_home(
    run: Run, open_home: Callable[..., Runtime], database: str
) -> None:
    one, two = open_home("one"), open_home("two")
    say(one, "telegram", TELEGRAM, GATE)
    say(two, "discord", DISCORD, BOAT)
    say(two, "telegram", OTHER, "The harbour of Thun is where my own boat lies, of which nobody else knows")
    say(two, "telegram", ROOM, "The code of the orchard's gate in this room is none of your business")
    assert GATE not in recalled(two, "discord", DISCORD, "What is the code of the gate?")
    done = run("link", "--yes", typed=BOTH)
    assert done.code == 0, done.shown
    assert done.out.splitlines()[-1].startswith("linked as dm-person-")
    assert done.out.splitlines()[-1].endswith("moved 4 rows")
    for runtime, platform, chat_id in ((one, "telegram", TELEGRAM), (two, "discord", DISCORD)):
        theme = chat(runtime, platform, chat_id).session.allowed_theme()
        assert theme
        wait_for(lambda runtime=runtime, theme=theme: len(runtime.own(theme)) == 3)
    assert GATE in recalled(two, "discord", DISCORD, "What is the code of the gate?")
    assert BOAT in recalled(one, "telegram", TELEGRAM, "Where does the boat lie?")
    say(two, "discord", DISCORD, "The key to the boat hangs beside the stove in the kitchen")
    assert "beside the stove" in recalled(one, "telegram", TELEGRAM, "Where is the key to the boat?")
    assert "nobody else knows" not in recalled(one, "telegram", TELEGRAM, "Where does the boat lie?")
    assert "none of your business" not in recalled(one, "telegram", TELEGRAM, "What is the code of the gate?")
    assert GATE not in recalled(two, "telegram", ROOM, "What is the code of the gate?")
    (person,) = {theme for theme in themes(database) if theme.startswith("dm-person-")}
    assert themes(database)[person] == 6
    assert len(themes(database)) == 3


def test_separated_accounts_have_their_own_rows_again_and_later_ones_stay_apart(
    run: Run, open_home: Callable[..., Runtime], database: str
) -> None:
    one = open_home()
    say(one, "telegram", TELEGRAM, GATE)
    say(one, "discord", DISCORD, BOAT)
    before = themes(database)
    assert run("link", "--yes", typed=BOTH).code == 0
    assert run("unlink", "--yes", typed=f"telegram {TELEGRAM}\n").code == 0
    assert "1" in run("list").out
    done = run("unlink", "--yes", typed=f"discord {DISCORD}\n")
    assert done.code == 0, done.shown
    assert themes(database) == before
    assert run("list").out == "no accounts are linked\n"
    theme = chat(one, "telegram", TELEGRAM).session.allowed_theme()
    assert theme
    wait_for(lambda: one.own(theme) == (theme,))
    assert BOAT not in recalled(one, "telegram", TELEGRAM, "Where does the boat lie?")
    say(one, "telegram", TELEGRAM, "The ladder stands behind the barn of the neighbours")
    assert themes(database)[theme] == 4


def test_an_interrupted_command_goes_on_when_it_is_run_again(
    run: Run, open_home: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_home()
    for platform, chat_id in (("telegram", TELEGRAM), ("discord", DISCORD)):
        for number in range(3):
            say(one, platform, chat_id, f"The gate number {number} of the orchard has the code 471{number}")
    before, move = themes(database), moves.move
    monkeypatch.setattr(moves, "ROWS_MAX", 2)

    def interrupted(*arguments: str) -> None:
        left = [3]

        def once(*given: Any, **more: Any) -> int:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return move(*given, **more)

        with monkeypatch.context() as patched:
            patched.setattr(moves, "move", once)
            assert run(*arguments, "--yes", typed=BOTH).code == 130

    interrupted("link")
    assert len(themes(database)) > 1
    assert run("link", "--yes", typed=BOTH).code == 0
    assert list(themes(database).values()) == [12]
    interrupted("unlink")
    assert len(themes(database)) > 1
    assert run("unlink", "--yes", typed=BOTH).code == 0
    assert themes(database) == before


def test_nothing_is_changed_without_a_yes_and_no_identity_is_shown_or_stored(
    run: Run, open_home: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    one = open_home()
    say(one, "telegram", TELEGRAM, GATE)
    before = themes(database)
    refused = run("link", typed=f"{BOTH}n\n")
    assert refused.code == 1
    assert "nothing is changed" in refused.err
    assert "has no rows: is the id right" in refused.err
    assert themes(database) == before
    done = run("link", typed=f"telegram {TELEGRAM}\nAGENT {DISCORD}\n\ny\n")
    assert done.code == 0, done.shown
    shown = [refused, done, run("list"), run("list", "--json")]
    assert not any(number in outcome.shown for outcome in shown for number in (TELEGRAM, DISCORD))
    with psycopg.connect(database) as connection:
        links = connection.execute("select l::text from memory_person_links l").fetchall()
    assert len(links) == 2
    files = [path.read_bytes() for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert not any(number in row for (row,) in links for number in (TELEGRAM, DISCORD))
    assert not any(number.encode() in file for file in files for number in (TELEGRAM, DISCORD))


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "no account was named"),
        (f"telegram {TELEGRAM}\n", "one account alone"),
        (f"telegram {TELEGRAM}\n telegram  {TELEGRAM} \n", "one account alone"),
        (f"cli\n{ROOM}\n", "is a room and no account"),
        ("cli\ngroup-telegram-0123456789abcdef\n", "is a room and no account"),
        ("cli\ndm-person-0123456789abcdef\n", "is a person and no account"),
        ("cli\ncli bench-one\n", "benchmarks"),
        (f"cli\n{TELEGRAM}\n", "a line is no account"),
        (f"cli\nTele-gram! {TELEGRAM}\n", "a line is no account"),
        ("cli\n" + "telegram 1\n" * 21, "more than 20 lines"),
    ],
)
def test_what_is_no_account_is_refused_and_not_repeated(run: Run, typed: str, problem: str) -> None:
    refused = run("link", "--yes", typed=typed)
    assert refused.code in (1, 2)
    assert problem in refused.err
    assert TELEGRAM not in refused.shown


def test_accounts_of_two_persons_are_refused_and_a_third_account_joins_its_person(
    run: Run, open_home: Callable[..., Runtime], database: str
) -> None:
    one = open_home()
    say(one, "signal", TELEGRAM, GATE)
    assert run("link", "--yes", typed=BOTH).code == 0
    joined = run("link", "--yes", "--json", typed=f"telegram {TELEGRAM}\nsignal {TELEGRAM}\n")
    assert joined.code == 0, joined.shown
    assert run("link", "--yes", typed="cli\nslack T0123ABCD:D0456EFGH\n").code == 0
    refused = run("link", "--yes", typed=f"cli\nsignal {TELEGRAM}\n")
    assert refused.code == 1
    assert "belong to 2 persons" in refused.err
    assert themes(database) == {joined.document["person"]: 2}
    assert run("unlink", "--yes", typed="telegram 1\n").code == 2


def test_the_tools_of_a_linked_account_serve_the_person(
    run: Run, open_home: Callable[..., Runtime], database: str
) -> None:
    one = open_home()
    assert run("link", "--yes", typed=BOTH).code == 0
    phone, laptop = (chat(one, name, number).session.allowed_theme() or "" for name, number in
                     (("telegram", TELEGRAM), ("discord", DISCORD)))  # fmt: skip
    wait_for(lambda: len(one.own(phone)) == 3)

    def call(tool: str, theme: str, **arguments: Any) -> dict[str, Any]:
        import json

        answer: dict[str, Any] = json.loads(toolset.call(one, tool, arguments, Caller(theme=theme, session_id="s")))
        return answer

    kept = call("remember", phone, content=GATE, sync=True)
    assert kept["status"] == "stored"
    assert [entry["content"] for entry in call("list_memories", laptop)["entries"]] == [GATE]
    assert [hit["content"] for hit in call("recall_memory", laptop, query="code of the gate")["hits"]] == [GATE]
    person = one.own(phone)[0]
    for theme in ("ops", chat(one, "telegram", OTHER).session.allowed_theme() or ""):
        for scope in (person, person.upper(), phone, "all"):
            assert not call("recall_memory", theme, query="code of the gate", scope=scope).get("hits")
        assert "no such entry" in call("forget", theme, id=kept["id"])["error"]
    assert call("forget", laptop, id=kept["id"])["status"] == "forgotten"


def test_an_event_in_the_spool_of_another_home_follows_the_link(
    run: Run, open_home: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_home("one"), open_home("two")
    assert two.writer.flush(20)
    two.writer.stop(5)
    with monkeypatch.context() as stopped:
        stopped.setattr(two.writer, "wake", lambda **_: None)
        conversation = chat(two, "discord", DISCORD)
        conversation.take_turn(BOAT, f"It is noted that {BOAT}")
        assert two.writer.counters.pending == 1
        assert run("link", "--yes", typed=BOTH).code == 0
    assert two.writer.flush(20)
    (person,) = themes(database)
    assert person.startswith("dm-person-")
    theme = chat(one, "telegram", TELEGRAM).session.allowed_theme()
    assert theme
    wait_for(lambda: len(one.own(theme)) == 3)
    assert BOAT in recalled(one, "telegram", TELEGRAM, "Where does the boat lie?")


def test_rows_of_an_agent_that_knows_no_links_are_recalled_and_moved_by_the_next_link(
    run: Run, open_home: Callable[..., Runtime], database: str
) -> None:
    one = open_home()
    assert run("link", "--yes", typed=BOTH).code == 0
    theme = chat(one, "telegram", TELEGRAM).session.allowed_theme()
    assert theme
    with psycopg.connect(database) as connection:
        # As release 2.0.0 does.
        statement = "insert into conversations (agent_identity, session_id, role, content) values (%s, 's', 'user', %s)"
        connection.execute(statement, [theme, GATE])
    wait_for(lambda: GATE in recalled(one, "discord", DISCORD, "What is the code of the gate?"))
    listed = run("list", "--json").document["links"]
    assert {link["account"]: link["turns"] for link in listed}[theme] == 1
    again = run("link", "--yes", "--json", typed=BOTH)
    assert again.document["moved"][theme] == 1
    assert set(themes(database)) == {one.own(theme)[0]}


@not_on_citus.per_theme
def test_links_add_no_statement_to_a_recall(
    run: Run, open_home: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_home()
    say(one, "telegram", TELEGRAM, GATE)
    theme = chat(one, "telegram", TELEGRAM).session.allowed_theme()
    assert theme

    def statements() -> int:
        recalled(one, "telegram", TELEGRAM, "What is the code of the gate?")
        with counted(monkeypatch) as found:
            assert GATE in recalled(one, "telegram", TELEGRAM, "What is the code of the gate?")
        return found[0]

    before = statements()
    assert before > 4
    assert run("link", "--yes", typed=BOTH).code == 0
    wait_for(lambda: len(one.own(theme)) == 3)
    assert statements() == before


def test_a_link_that_another_command_ends_moves_no_more_rows(
    run: Run, open_home: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = open_home()
    for number in range(6):
        say(runtime, "telegram", TELEGRAM, f"The gate number {number} of the orchard has the code 471{number}")
    [account] = themes(database)
    is_linked, calls = person_links.is_linked, list[str]()

    def separated_after_a_batch(connection: Any, linked: str, person: str) -> bool:
        calls.append(linked)
        if calls.count(account) == 2:
            with runtime.database.transaction(10, 20) as others:
                person_links.unlink(others, linked)
        return is_linked(connection, linked, person)

    monkeypatch.setattr(moves, "ROWS_MAX", 4)
    monkeypatch.setattr(person_links, "is_linked", separated_after_a_batch)
    assert run("link", "--yes", typed=BOTH).code == 0
    assert calls.count(account) == 2
    assert themes(database) == {account: 12}
