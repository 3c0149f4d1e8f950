"""Two persons talk in a messenger and use its commands in a random order; what stands at the end is stored, once.

PG_TEST_TALK_SEED and PG_TEST_TALK_STEPS say which order it is, and how long.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hostrig.gateway import Gateway
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.messenger import Messenger, Person
from hostrig.model import ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = [one_server, pytest.mark.slow]

SEED = int(os.environ.get("PG_TEST_TALK_SEED", "4"))
STEPS = int(os.environ.get("PG_TEST_TALK_STEPS", "40"))
PERSONS = (
    Person("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11", "Ann Aebischer"),
    Person("+491709998877", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc", "Ben Brunner"),
)
# How often each is done.
WEIGHTS = {
    "say": 30, "aside": 4, "go_off": 3, "go_on": 6, "undo": 6, "retry": 5, "anew": 4, "compress": 3, "branch": 4,
    "restart": 4,
}  # fmt: skip
ANSWER = re.compile(r"Answer <\d+>[^\n]*")
# A gateway looks after its sessions when it has started, and sends in the background.
SETTLED_S, SENT_S = 2, 0.1


@dataclass
class Turn:
    """A turn of a session: its texts, whether they are to be stored, and whether it was said in this session."""

    question: str
    answer: str
    stored: bool
    own: bool = True


@dataclass
class Talk:
    """What a person does; each method is one thing. `ended` are turns of earlier sessions of the chat.

    `unsure` are turns that may be stored or not: those that were taken back in a branch stand in its trunk, one host
    keeps the first answer of `/retry`, and after a compression or a restart the plugin does.
    """

    person: Person
    messenger: Messenger
    numbers: Iterator[int]
    turns: list[Turn] = field(default_factory=list)
    ended: list[Turn] = field(default_factory=list)
    unsure: list[Turn] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    off: bool = False

    def say(self) -> None:
        self._ask(f"Tell me about {self._thing()} of the river Aare, please", stored=not self.off)

    def aside(self) -> None:
        self._ask(f"off the record: the PIN of the house at {self._thing()} is 4711", stored=False)

    def go_off(self) -> None:
        self.off = True
        self._ask("off the record", stored=False)

    def go_on(self) -> None:
        if self.off:
            self.off = False
            self._ask("on the record", stored=False)

    def undo(self) -> None:
        if self.turns:
            self._write("/undo")
            turn = self.turns.pop()
            self.unsure += [] if turn.own else [turn]

    def retry(self) -> None:
        if self.turns:
            before = self.turns.pop()
            self.unsure.append(before)
            self.turns.append(Turn(before.question, self._write("/retry", until="Answer <"), before.stored))

    def anew(self) -> None:
        self._write("/new")
        self.ended, self.turns, self.off = self.ended + self.turns, [], False

    def compress(self) -> None:
        self._write("/compress")

    def branch(self) -> None:
        if self.turns:
            self._write("/branch", until="ranch")
            self.ended = self.ended + self.turns
            self.turns = [Turn(turn.question, turn.answer, turn.stored, own=False) for turn in self.turns]

    def wrong(self, rows: Rows) -> list[str]:
        """What is stored more or less often than it should be."""
        said = rows.said()
        unsure = {text for turn in self.unsure for text in (turn.question, turn.answer)}
        standing = [turn for turn in (*self.ended, *self.turns) if turn.own and turn.stored]
        sides = {text for turn in standing for text in (turn.question, turn.answer)} - unsure
        return [f"{said.count(text)} times: {text}" for text in sides if said.count(text) != 1]

    def _thing(self) -> str:
        return f"stone {next(self.numbers)}x"

    def _ask(self, text: str, *, stored: bool) -> None:
        self.hidden += [] if stored else re.findall(r"stone \d+x", text)
        self.turns.append(Turn(text, self._write(text, until="Answer <"), stored))

    def _write(self, text: str, *, until: str = "") -> str:
        seen = len(self.messenger.sent)
        self.messenger.write(self.person, text, until=until)
        time.sleep(SENT_S)
        sent = "\n".join(message["message"] for message in self.messenger.sent[seen:])
        print(f"{self.person.name}: {text}\n    {sent[:100]!r}")
        return (ANSWER.findall(sent) or [""])[-1]


@pytest.fixture
def messenger() -> Iterator[Messenger]:
    network = Messenger()
    yield network
    network.close()


@pytest.mark.timeout(120 + 15 * STEPS)
def test_what_stands_at_the_end_of_random_talks_is_stored_once_and_nothing_off_the_record(
    hermes: Hermes, model: ModelEndpoint, rows: Rows, messenger: Messenger
) -> None:
    choice, answers, numbers = random.Random(SEED), count(1), count(1)
    model.errand = "A summary: stones of a river were discussed, and of none is anything known."

    def script(request: Request) -> str:
        asked = re.findall(r"stone \d+x|record", request.user.split("<memory-context>")[0])
        return f"Answer <{next(answers)}>, which nobody knew before: it is about the {' '.join(asked[-1:])}."

    model.script = script
    talks = [Talk(person, messenger, numbers) for person in PERSONS]
    running: list[Gateway] = []

    def stop() -> None:
        running[-1].stop()
        running.pop().__exit__(None, None, None)

    def start() -> None:
        running.append(hermes.gateway(**messenger.environment).__enter__())
        time.sleep(SETTLED_S)

    def restart() -> None:
        stop()
        start()

    start()
    try:
        for action in choice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
            step: Callable[[], None] = restart if action == "restart" else getattr(choice.choice(talks), action)
            step()
        for talk in talks:
            talk.say()
        stop()
    finally:
        for gateway in running:
            gateway.__exit__(None, None, None)

    def check() -> None:
        assert [wrong for talk in talks for wrong in talk.wrong(rows)] == []
        everywhere = rows.text() + "".join(map(_text, (hermes.home / "pgvector").rglob("*")))
        assert [name for talk in talks for name in talk.hidden if name in everywhere] == []

    check()
    done = hermes.run("import", "--from", "state-db", str(hermes.home / "state.db"), program="hermes-pgvector")
    assert done.returncode == 0, done.stderr
    check()
    wanted = {text for talk in talks for turn in (*talk.ended, *talk.turns, *talk.unsure)
              for text in (turn.question, turn.answer)}  # fmt: skip
    assert set(rows.said()) <= wanted
    assert hermes.complaints() == []


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1") if path.is_file() else ""
