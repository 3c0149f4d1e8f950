"""People and rooms of a messenger beside themes of the API server, in one real gateway with one home and one MEMORY.md.

The messenger is Signal on loopback, through the hosts' own adapters: they make the session keys.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, zip_longest

import pytest
from hostrig.gateway import KEY as GATEWAY_KEY
from hostrig.hermes import Hermes
from hostrig.marks import one_server, with_and_without_row_security
from hostrig.messenger import ACCOUNT, ANSWER_S_MAX, Messenger, Person
from hostrig.model import Call, ModelEndpoint, Reply, Request
from hostrig.rows import Rows
from logins import with_row_security
from servers import Server
from traces import dump, titles
from waiting import wait_for

pytestmark = one_server

ANN = Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer")
BEN = Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner")
CAT = Person("+491701110022", "2c3d4e5f-bbbb-4ccc-9ddd-23456789abcd", "Cat Casutt")
GROUP = "c2lnbmFsLWdyb3VwLXRlc3Q="
SAME = "Please note what I tell you about the door code of my house"
THEMES = ("garden", "kitchen", "cellar")
ABOUT_ANN = "What is the door code of Ann, and what of the barrel?"
PASSWORD, KEY = "vertraulich-7731", "sk-proj-" + "a1B2c3D4" * 6


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


def asked(request: Request) -> str:
    # The host greets who writes for the very first time.
    return request.user.split("<memory-context>")[0].split("[System note:")[0].strip()


def is_stored(text: str, rows: Rows) -> bool:
    return text in rows.said()


def is_asked(model: ModelEndpoint, words: str) -> bool:
    return any(words in request.user for request in model.requests)


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


def leaks(hermes: Hermes, rows: Rows, *more: str) -> list[str]:
    """What tells who it was in the traces and in `more`: numbers, ids, names, session keys, the home, and secrets."""
    persons = [part for person in (ANN, BEN) for part in (person.number, person.number[1:], person.uuid, person.name)]
    rooms = [GROUP, GROUP[:-1], ACCOUNT, "agent:main", "signal:dm", "signal:group", str(hermes.folder)]
    rooms += [KEY, KEY[-20:], PASSWORD]
    left = "\n".join([traces(hermes, rows), *more]).casefold()
    return [name for name in (*persons, *rooms) if name.casefold() in left]


@with_and_without_row_security
def test_persons_rooms_and_themes_of_one_gateway_keep_to_themselves_and_leave_no_name(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger, server: Server
) -> None:
    def shows_a_key(request: Request) -> Reply:
        reply = saving(request)
        return f"{reply} OPENAI_API_KEY={KEY}" if reply == answer_to(ABOUT_ANN) else reply

    model.script = shows_a_key
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
        write("ben", BEN, ABOUT_ANN)
        assert not any("Fact:" in recalled for recalled in model.requests[-1].recalled)
        write("ann", ANN, "What is the door code of Ann, and what of the barrel that leaks?")
        assert "barrel of the neighbours" not in "".join(model.requests[-1].recalled)
        gateway.ask("What is the door code of Ann, the neighbours' barrel?", key="cellar")
        said["cellar"].append("What is the door code of Ann, the neighbours' barrel?")
        assert not any("Fact:" in recalled for recalled in model.requests[-1].recalled)
        rows.wait(lambda rows: len(rows.turns()) >= 2 * sum(map(len, said.values())))
        rows.wait(lambda rows: len(rows.entries()) == 2)
        shown = "\n".join(titles(rows.dsn, gateway.pid).values())
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
    assert "hermes-pgvector" in shown
    dumped = dump(rows.dsn, server.bin)
    # Hosts may write stars in its place.
    assert re.search(r"OPENAI_API_KEY=(\*|\[masked)", rows.text())
    assert leaks(hermes, rows, shown, dumped) == []
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_turn_that_was_taken_back_or_asked_again_in_a_messenger_is_withdrawn_with_the_next_message(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    numbers = count(1)
    model.script = lambda request: f"Answer {next(numbers)}, which nobody knew before: {asked(request)}."
    first, undone, last = (f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed"))
    with hermes.gateway(**messenger.environment) as gateway:
        for text in (first, undone):
            messenger.write(ANN, text, until=text)
        rows.wait(lambda rows: len(rows.turns()) == 4)
        messenger.write(ANN, "/undo", until="")
        messenger.write(ANN, last, until=last)
        rows.wait(lambda rows: [turn.content for turn in rows.turns() if turn.role == "user"] == [first, last])
        messenger.write(ANN, "/retry", until="Answer 4")
        rows.wait(lambda rows: any("Answer 4" in turn.content for turn in rows.turns()))
        messenger.write(ANN, undone, until="Answer 5")
        # One host then has neither in its record.
        messenger.write(ANN, "/undo", until="")
        messenger.write(ANN, "/retry", until="Answer 6")
        rows.wait(lambda rows: any("Answer 6" in turn.content for turn in rows.turns()))
        gateway.stop()
    assert [turn.content[:8] for turn in rows.turns()] == [first[:8], "Answer 1", last[:8], "Answer 6"]


@pytest.mark.main_host("a")
def test_every_session_that_a_killed_gateway_goes_on_with_has_a_memory(
    hermes: Hermes, model: ModelEndpoint, messenger: Messenger, rows: Rows
) -> None:
    people, ended = (ANN, BEN, CAT), threading.Event()

    def script(request: Request) -> Reply:
        if "slowly" in asked(request):
            ended.wait(ANSWER_S_MAX)
        return answer_to(asked(request))

    model.script = script
    with hermes.gateway(**messenger.environment) as gateway:
        for person in people:
            messenger.send(person, f"Please tell me slowly what {person.name} said about the lake")
        for person in people:
            wait_for(partial(is_asked, model, f"slowly what {person.name}"))
        os.killpg(gateway.pid, signal.SIGKILL)
        gateway.process.wait()
        ended.set()
    sent = len(messenger.sent)
    with hermes.gateway(**messenger.environment):
        # The host begins the agents of all of them at once.
        for person in people:
            messenger.wait(answer_to(f"Please tell me slowly what {person.name} said about the lake"), since=sent)
        for person in people:
            said = f"Please tell me what {person.name} said about the sea"
            messenger.write(person, said, until=answer_to(said))
            rows.wait(partial(is_stored, answer_to(said)))


def test_a_message_that_interrupts_a_turn_is_stored_as_it_was_written_and_what_it_interrupts_is_not_lost(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    """By default, one host corrects the turn with it, behind the ids of the chat; the other one begins another turn."""
    bronze, pin = "No, I meant the bell of bronze", "off the record: the PIN of the house with the bell is 4711"
    stopped, instead = "Our bell is of 1840.", "Tell me of the clock of the house instead, please"
    ended = threading.Event()

    def script(request: Request) -> Reply:
        if not any(said in request.user for said in (bronze, pin, instead)):
            ended.wait(ANSWER_S_MAX)
        return "The answer of which nothing has to be known."

    model.script = script
    with hermes.gateway(**{**messenger.environment, "HERMES_GATEWAY_BUSY_INPUT_MODE": "interrupt"}) as gateway:
        for person, said in ((ANN, bronze), (BEN, pin)):
            question = f"Who can mend the cracked bell of {person.name[:3]}?"
            messenger.send(person, question)
            wait_for(partial(is_asked, model, question))
            messenger.write(person, said, until="The answer")
        messenger.send(CAT, stopped)
        wait_for(partial(is_asked, model, stopped))
        messenger.write(CAT, "/stop", until="")
        messenger.write(CAT, instead, until="The answer")
        gateway.stop()
        ended.set()
    assert [sum(words in said for said in rows.said()) for words in (bronze, "of Ann?", stopped, instead)] == [1] * 4
    assert [words for words in ("message origin", "PIN of the house", "of Ben?") if words in rows.text()] == []
    done = hermes.run(
        "import", "--from", "state-db", str(hermes.home / "state.db"), "--json", program="hermes-pgvector"
    )
    assert json.loads(done.stdout)["rows"]["turn"]["new"] == 0
    assert leaks(hermes, rows) == []
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_what_is_delivered_into_a_chat_from_elsewhere_is_part_of_none_of_its_turns(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    """By the agent in another session, and by a job: the hosts merge it with the messages before and after it."""
    model.script = lambda request: f"Noted, and this is the end of what I noted of: {asked(request)[-20:]}"
    told = [f"Where in the house of my uncle is the {thing}?" for thing in ("tap", "bell", "stove", "boat")]
    texts = (
        ("The parcel has come.", "assistant"),
        ("[Cron delivery: rain]\nIt will\n\nrain.", "user"),
        ("It did.", "assistant"),
    )

    def deliver(text: str, role: str) -> None:
        call = f"m('signal', {ANN.number!r}, {text!r}, role={role!r})"
        done = hermes.run("-c", f"from gateway.mirror import mirror_to_session as m; print({call})", program="python")
        assert done.stdout.strip() == "True", done.stderr

    with hermes.gateway(**messenger.environment) as gateway:
        for question, delivery in zip_longest(told, texts):
            messenger.write(ANN, question, until=question[-20:])
            if delivery:
                deliver(*delivery)
        rows.wait(lambda rows: len(rows.turns()) == 8)
        messenger.write(ANN, "off the record", until="off the record")
        deliver("[Cron delivery: rain]\non the record", "user")
        messenger.write(ANN, "/branch", until="ranch")
        messenger.write(ANN, "The PIN of the house is 4711.", until="4711")
        messenger.write(ANN, "/new", until="")
        gateway.stop()
    assert "PIN of the house" not in rows.text()
    hermes.ask("Say something about the weather of tomorrow")
    assert [turn.content for turn in rows.turns() if turn.role == "user"][:-1] == told
    assert len(rows.turns()) == 10
    done = hermes.run(
        "import", "--from", "state-db", str(hermes.home / "state.db"), "--json", program="hermes-pgvector"
    )
    assert json.loads(done.stdout)["rows"]["turn"]["new"] == 0
    assert hermes.complaints() == []


@pytest.mark.slow
def test_a_branch_in_a_messenger_is_a_session_of_the_same_person(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = saving
    trunk, branch, other, hidden, last = (
        f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed", "gold", "banks")
    )
    with hermes.gateway(**messenger.environment) as gateway:
        messenger.write(ANN, trunk, until=trunk)
        messenger.write(ANN, "/branch", until="ranch")
        messenger.write(ANN, branch, until=branch)
        messenger.write(BEN, other, until=other)
        rows.wait(lambda rows: len(rows.turns()) == 6)
        # The branch of a session off the record is off it, too.
        messenger.write(BEN, "off the record", until="off the record")
        messenger.write(BEN, "/branch", until="ranch")
        for text in (hidden, "on the record", last):
            messenger.write(BEN, text, until=text)
        rows.wait(lambda rows: len(rows.turns()) == 8)
        gateway.stop()
    (first, *_, second, _), bens = rows.turns(theme_of(rows, trunk)), rows.turns(theme_of(rows, other))
    assert [first.content, second.content] == [trunk, branch]
    assert first.session != second.session
    assert [turn.content for turn in bens] == [other, answer_to(other), last, answer_to(last)]
    assert len(rows.turns()) == 8


@pytest.mark.slow
def test_a_terminal_that_goes_on_with_the_session_of_a_person_repeats_nothing_of_it(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = lambda request: answer_to(asked(request))
    source, mouth, bed, gold, banks = (
        f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed", "gold", "banks")
    )
    with hermes.gateway(**messenger.environment) as gateway:
        messenger.write(ANN, source, until=source)
        (session,) = hermes.sessions()
        with hermes.chat("--resume", session) as chat:
            chat.ask(mouth)
            messenger.write(ANN, bed, until=bed)
            messenger.write(ANN, "off the record", until="off the record")
            chat.ask(gold)
            messenger.write(ANN, "on the record", until="on the record")
            assert chat.leave() == 0
        messenger.write(ANN, banks, until=banks)
        messenger.write(ANN, "/new", until="")
        gateway.stop()
    anns = theme_of(rows, source)
    assert {turn.content: turn.theme for turn in rows.turns() if turn.role == "user"} == {
        source: anns, mouth: "default", bed: anns, banks: anns,
    }  # fmt: skip
    assert len(rows.turns()) == 8
    done = hermes.run(
        "import", "--from", "state-db", str(hermes.home / "state.db"), "--json", program="hermes-pgvector"
    )
    assert json.loads(done.stdout)["rows"]["turn"]["new"] == 0
    assert hermes.complaints() == []


@pytest.mark.slow
def test_a_chat_that_a_terminal_hands_its_session_to_repeats_nothing_of_it(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = lambda request: answer_to(asked(request))
    source, mouth, bed = (f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed"))
    variables = {**messenger.environment, "SIGNAL_HOME_CHANNEL": ANN.number}
    with hermes.gateway(**variables) as gateway:
        messenger.write(ANN, source, until=source)
        with hermes.chat(**variables) as chat:
            chat.ask(mouth)
            sent = len(messenger.sent)
            chat.command("/handoff signal")
            messenger.wait("Noted", since=sent)
        messenger.write(ANN, bed, until=bed)
        messenger.write(ANN, "/new", until="")
        gateway.stop()
    said = [(turn.content, turn.theme == "default") for turn in rows.turns() if turn.role == "user"]
    assert said == [(source, False), (mouth, True), (bed, False)]
    assert len(rows.turns()) == 6
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_a_branch_and_an_undo_in_a_profile_of_a_gateway_are_those_of_its_record(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    """Host A records the sessions of all profiles in the home of the gateway."""
    model.script = saving
    trunk, branch, undone, last = (
        f"Tell me about the {what} of the river Aare, please" for what in ("source", "mouth", "bed", "banks")
    )
    hermes = make_hermes({"gateway": {"multiplex_profiles": True}})
    work = hermes.named("work")
    for profile, variables in ((hermes, {"API_SERVER_KEY": GATEWAY_KEY}), (work, messenger.environment)):
        with (profile.home / ".env").open("a") as file:
            file.writelines(f"\n{name}={value}" for name, value in variables.items())

    def said(rows: Rows) -> list[str]:
        return [turn.content for turn in rows.turns() if turn.role == "user"]

    with hermes.gateway() as gateway:
        messenger.write(ANN, trunk, until=trunk)
        messenger.write(ANN, "/branch", until="ranch")
        for text in (branch, undone):
            messenger.write(ANN, text, until=text)
        rows.wait(lambda rows: said(rows) == [trunk, branch, undone])
        messenger.write(ANN, "/undo", until="")
        gateway.stop()
    with hermes.gateway() as gateway:
        messenger.write(ANN, last, until=last)
        rows.wait(lambda rows: said(rows) == [trunk, branch, last])
        gateway.stop()
    assert len(rows.turns()) == 6
    watch = hermes.run("--home", str(work.home), "watch", "--skip-host", program="hermes-pgvector")
    assert watch.returncode == 0, watch.stderr


def theme_of(rows: Rows, text: str) -> str:
    (theme,) = {turn.theme for turn in rows.turns() if turn.content == text}
    return str(theme)


@with_row_security(pytest.mark.slow)
@pytest.mark.main_host("b")
@pytest.mark.parametrize("rounds", [pytest.param(5), pytest.param(50, marks=pytest.mark.slow)])
def test_clients_persons_and_a_room_at_once_are_each_filed_and_recalled_under_their_own(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger, rounds: int
) -> None:
    """Both clients begin each of their sessions with the same words: the hosts give these the same session ids."""
    model.script = saving
    clients, weather = THEMES[:2], "Say something about the weather of tomorrow"
    said: dict[str, list[str]] = {THEMES[2]: [weather]}

    def client(theme: str) -> None:
        for n in range(rounds):
            opening = f"Note number {n} of the day, what shall it be about?"
            # Every tenth is saved: MEMORY.md holds some two thousand characters, and the host refuses more.
            text = f"{'Tell me of' if n % 10 else 'Keep'} note number {n} of the {theme}, please"
            begun = [{"role": "user", "content": opening}, {"role": "assistant", "content": "About what you say next."}]
            answer = gateway.complete([*begun, {"role": "user", "content": text}], key=theme)
            assert answer["choices"][0]["message"]["content"].strip() == answer_to(text)
            said.setdefault(theme, []).append(text)

    def people() -> None:
        for n in range(max(2, rounds // 10)):
            for who, person, group in (("ann", ANN, ""), ("ben", BEN, ""), ("room", (ANN, BEN)[n % 2], GROUP)):
                text = f"{'Tell me of' if n else 'Keep'} note number {n} of the {who} of us, please"
                messenger.write(person, text, group=group, until=text)
                said.setdefault(who, []).append(text)

    with hermes.gateway(**messenger.environment) as gateway:
        # One host gives no provider to requests that come while the first one still loads the plugin.
        gateway.ask(weather, key=THEMES[2])
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(people), *(pool.submit(client, theme) for theme in clients)]:
                done.result()
        rows.wait(lambda rows: len(rows.turns()) >= 2 * sum(map(len, said.values())))
        gateway.stop()
    facts = {who: [f"Fact: {text}" for text in texts if text.startswith("Keep")] for who, texts in said.items()}
    filed = {theme: rows.said(theme) for theme in {turn.theme for turn in rows.turns()}}
    assert sorted(filed.values()) == sorted(
        [told for text in texts for told in (text, answer_to(text))] for texts in said.values()
    )
    whose = {texts[0]: theme for theme, texts in filed.items()}
    for who, texts in said.items():
        assert rows.entries(theme=whose[texts[0]]) == facts[who]
        assert who not in THEMES or whose[texts[0]] == who
    assert sorted(hermes.entries("memory")) == sorted(fact for own in facts.values() for fact in own)
    sessions = [{turn.session for turn in rows.turns(theme)} for theme in clients]
    assert sessions[0] == sessions[1]
    assert len(sessions[0]) == rounds
    for who, texts in said.items():
        others = tuple(f"of the {other}" for other in said if other != who)
        for request in model.requests:
            if asked(request) in texts:
                assert [other for other in others if other in "".join(request.recalled)] == []
    # The check above is only worth something where something was recalled.
    assert any(f"of the {theme}" in "".join(r.recalled) for theme in clients for r in model.requests)
    assert leaks(hermes, rows) == []
    assert hermes.complaints() == []


def test_a_task_in_the_background_belongs_to_the_person_who_gave_it(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    model.script = lambda request: answer_to(asked(request))
    said = {ANN: "Find out what the boat of my uncle in Thun needs", BEN: "Find out who can mend a bell of bronze"}
    with hermes.gateway(**messenger.environment) as gateway:
        for person, text in said.items():
            messenger.write(
                person, f"Hello, my number {person.number[-4:]} is only mine to know", until=person.number[-4:]
            )
            messenger.write(person, f"/bg {text}", until=answer_to(text))
        rows.wait(lambda rows: len(rows.turns()) >= 8)
        gateway.stop()
    themes = {person: {turn.theme for turn in rows.turns() if text in turn.content} for person, text in said.items()}
    chats = {person: {turn.theme for turn in rows.turns() if person.number[-4:] in turn.content} for person in said}
    assert themes == chats
    assert len(set().union(*themes.values())) == 2
    assert hermes.complaints() == []
