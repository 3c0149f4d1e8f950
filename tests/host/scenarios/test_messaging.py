"""People and rooms of a messenger beside themes of the API server, in one real gateway with one home and one MEMORY.md.

The messenger is Signal on loopback, through the hosts' own adapters: they make the session keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.messenger import ACCOUNT, Messenger, Person
from hostrig.model import Call, ModelEndpoint, Reply, Request
from hostrig.rows import Rows

pytestmark = one_server

ANN = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
BEN = Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner")
GROUP = "c2lnbmFsLWdyb3VwLXRlc3Q="
SAME = "Please note what I tell you about the door code of my house"
THEMES = ("garden", "kitchen", "cellar")


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


def asked(request: Request) -> str:
    # The host greets who writes for the very first time.
    return request.user.split("<memory-context>")[0].split("[System note:")[0].strip()


def answer_to(prompt: str) -> str:
    return f"Noted, and these are the words that I noted: {prompt}."


def saving(request: Request) -> Reply:
    """Save what the user asks to be kept, then repeat it."""
    prompt = asked(request)
    if prompt.startswith("Keep") and not request.results:
        return Call("memory", {"action": "add", "target": "memory", "content": f"Fact: {prompt}"})
    return answer_to(prompt)


def traces(hermes: Hermes, rows: Rows) -> str:
    """All that the plugin left behind but the texts that people typed: every other column, its files, its log lines."""
    tables = rows(
        "SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind = 'r' AND n.nspname = 'public'"
    )
    texts = "'{content,task,result,search,embedding}'::text[]"
    kept = [
        row.kept
        for table in tables
        for row in rows(f'SELECT (to_jsonb(t) - {texts})::text AS kept FROM "{table.name}" t')
    ]
    files = [path.read_bytes().decode("latin-1") for path in (hermes.home / "pgvector").rglob("*") if path.is_file()]
    names = [str(path.relative_to(hermes.home)) for path in (hermes.home / "pgvector").rglob("*")]
    logged = [line for line in hermes.logs().splitlines() if "hermes.pgvector" in line]
    return "\n".join([*kept, *files, *names, *logged])


def identifiers(hermes: Hermes) -> list[str]:
    """What tells who it was: numbers, ids, names of profiles, session keys, the home."""
    persons = [part for person in (ANN, BEN) for part in (person.number, person.number[1:], person.uuid, person.name)]
    return [*persons, GROUP, GROUP[:-1], ACCOUNT, "agent:main", "signal:dm", "signal:group", str(hermes.folder)]


def test_persons_rooms_and_themes_of_one_gateway_keep_to_themselves_and_leave_no_name(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = saving
    said: dict[str, list[str]] = {}

    def write(who: str, person: Person, text: str, group: str = "") -> None:
        messenger.write(person, text, group=group, until=text)
        said.setdefault(who, []).append(text)

    with hermes.gateway(**messenger.environment) as gateway:
        write("ann", ANN, SAME)
        write("ben", BEN, SAME)
        for theme in THEMES:
            gateway.ask(SAME, key=theme)
            said[theme] = [SAME]
        write("ann", ANN, "Keep in mind that the door code of Ann is 4711")
        write("room", ANN, "Keep in mind that the barrel of the neighbours leaks", GROUP)
        write("room", BEN, "Which barrel of us is it that leaks, do you know?", GROUP)
        write("ben", BEN, "What is the door code of Ann, and what of the barrel?")
        assert not any("Fact:" in recalled for recalled in model.requests[-1].recalled)
        write("ann", ANN, "What is the door code of Ann, and what of the barrel that leaks?")
        assert "barrel of the neighbours" not in "".join(model.requests[-1].recalled)
        gateway.ask("What is the door code of Ann, the neighbours' barrel?", key="cellar")
        said["cellar"].append("What is the door code of Ann, the neighbours' barrel?")
        assert not any("Fact:" in recalled for recalled in model.requests[-1].recalled)
        rows.wait(lambda rows: len(rows.turns()) >= 2 * sum(map(len, said.values())))
        rows.wait(lambda rows: len(rows.entries()) == 2)
        gateway.stop()
    by_theme: dict[str, list[str]] = {}
    for turn in rows.turns():
        if turn.role == "user":
            by_theme.setdefault(turn.theme, []).append(turn.content)
    assert sorted(by_theme.values()) == sorted(said.values())
    whose = {json.dumps(texts): theme for theme, texts in by_theme.items()}
    ann, ben, room = (whose[json.dumps(said[who])] for who in ("ann", "ben", "room"))
    assert ann.startswith("dm-signal-")
    assert ben.startswith("dm-signal-")
    assert room.startswith("group-signal-")
    assert {theme for theme in by_theme if theme in THEMES} == set(THEMES)
    assert rows.entries(theme=ann) == ["Fact: Keep in mind that the door code of Ann is 4711"]
    assert rows.entries(theme=room) == ["Fact: Keep in mind that the barrel of the neighbours leaks"]
    authors = [turn.metadata.get("author") for turn in rows.turns(room)]
    assert [len(set(authors)), None in authors, authors[0] == authors[1]] == [2, False, True]
    assert not any("author" in turn.metadata for turn in rows.turns() if turn.theme != room)
    left = traces(hermes, rows)
    assert [name for name in identifiers(hermes) if name.casefold() in left.casefold()] == []
    assert hermes.complaints() == []


def test_a_turn_that_was_taken_back_in_a_messenger_is_withdrawn_with_the_next_message(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = saving
    first, undone, last = (f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed"))
    with hermes.gateway(**messenger.environment) as gateway:
        for text in (first, undone):
            messenger.write(ANN, text, until=text)
        rows.wait(lambda rows: len(rows.turns()) == 4)
        messenger.write(ANN, "/undo", until="")
        messenger.write(ANN, last, until=last)
        rows.wait(lambda rows: [turn.content for turn in rows.turns() if turn.role == "user"] == [first, last])
        gateway.stop()
    assert [turn.content for turn in rows.turns()] == [first, answer_to(first), last, answer_to(last)]


@pytest.mark.parametrize("rounds", [pytest.param(5), pytest.param(50, marks=pytest.mark.slow)])
def test_clients_at_once_are_each_filed_and_recalled_under_their_own(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, rounds: int
) -> None:
    """Both begin each of their sessions with the same words, so that the hosts give them the same session ids."""
    hermes = make_hermes()
    model.script = saving
    themes = THEMES[:2]
    shared = [f"Note number {n} of the day, please keep what it says" for n in range(rounds)]

    def client(theme: str) -> None:
        for text in shared:
            answer = gateway.ask(text, key=theme, session="") if theme == themes[0] else gateway.stream(text, key=theme)
            assert answer.strip() == answer_to(text)

    with hermes.gateway() as gateway:
        # One host gives no provider to requests that come while the first one still loads the plugin.
        gateway.ask("Say something about the weather of tomorrow", key="weather")
        with ThreadPoolExecutor(len(themes)) as pool:
            list(pool.map(client, themes))
        rows.wait(lambda rows: len(rows.turns()) >= 2 * 2 * rounds + 2)
        gateway.stop()
    for theme in themes:
        assert rows.said(theme) == [text for prompt in shared for text in (prompt, answer_to(prompt))]
    sessions = {theme: {turn.session for turn in rows.turns(theme)} for theme in themes}
    assert sessions[themes[0]] == sessions[themes[1]]
    other = {themes[0]: themes[1], themes[1]: themes[0]}
    for request in model.requests:
        told = "".join(request.recalled)
        assert not all(f"theme {theme}" in told for theme in other), told
    assert hermes.complaints() == []
