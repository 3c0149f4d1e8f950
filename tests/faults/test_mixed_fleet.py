"""Agents of release 2.0.0 and of this one share homes and a database. What they said is there once."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.releases import HookAgent, command_line, release_2_0_0
from host_record import Record
from hostrig.marks import one_server
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.store.schema.verification import LATEST

VALUES = {
    "tools": "all", "embed_model": "test", "batch_linger_s": "0", "heal_interval_s": "1", "adopt_interval_s": "1",
    "retry_max_s": "0.3", "recall_budget_s": "20", "prefetch_budget_s": "5", "embed_wait_s": "0.3",
    "person_key": "5e" * 32, "cross_theme_recall": "all",
}  # fmt: skip
ACTS = 40
# The sessions of an agent, by the owner of what is said in them. Alice's two accounts will be linked.
# As the hosts call a home outside of ~/.hermes, and the command line too.
PROFILE = {"agent_identity": "default"}
OWNERS = {
    "ops": {"agent_identity": "ops"},
    "wiki": {"platform": "api_server", "gateway_session_key": "wiki"},
    "phone": {"platform": "telegram", "gateway_session_key": "agent:main:telegram:dm:111", "chat_id": "111", **PROFILE},
    "tablet": {"platform": "discord", "gateway_session_key": "agent:main:discord:dm:222", "chat_id": "222", **PROFILE},
    "bob": {"platform": "telegram", "gateway_session_key": "agent:main:telegram:dm:333", "chat_id": "333", **PROFILE},
}
ALICE = ("phone", "tablet")
_OWNER = re.compile(r"owner-(\w+)")


class Fleet:
    """Homes with an agent of each release, and what must be stored of what they say."""

    def __init__(self, old: Path, folder: Path, values: dict[str, str]) -> None:
        self.paths: dict[str, Path | None] = {"old": old, "new": None}
        self.values, self.folder = values, folder
        self.records: dict[Path, Record] = {}
        self.agents: dict[tuple[str, str], Speaker] = {}
        self.lock = threading.RLock()
        # Texts by owner, with how often; entries by owner with their tags; ids of entries that may be changed.
        self.turns: Counter[tuple[str, str]] = Counter()
        self.entries: dict[tuple[str, str], tuple[str, ...]] = {}
        self.ids: list[tuple[int, str, str]] = []
        self.edges: Counter[str] = Counter()
        self.acts: Counter[tuple[str, str]] = Counter()
        self.linked: tuple[str, ...] = ()

    def start(self, home: str, release: str) -> Speaker:
        path = self.folder / home
        if path not in self.records:
            (path / "memories").mkdir(parents=True)
            self.records[path] = Record(path)
        self.agents[home, release] = speaker = Speaker(
            self, path, release, HookAgent(self.paths[release], path, self.values)
        )
        return speaker

    def together(self, acts: int, *homes: str) -> None:
        """All agents act at the same time."""
        some = [agent for (home, _), agent in self.agents.items() if not homes or home in homes]
        with ThreadPoolExecutor(len(some)) as pool:
            list(pool.map(lambda agent: agent.live(acts), some))

    def end(self) -> None:
        """End all agents, and store what they have left in their spools."""
        for agent in self.agents.values():
            agent.process.end()
        for path in self.records:
            code, shown = self.run("new", path.name, "spool", "flush", "--wait", "60")
            assert code == 0, shown
        self.agents.clear()

    def run(self, release: str, home: str, *arguments: str, typed: str = "") -> tuple[int, str]:
        return command_line(self.paths[release], self.folder / home, self.values, *arguments, typed=typed)


class Speaker:
    """What one agent does, and what it must see."""

    def __init__(self, fleet: Fleet, home: Path, release: str, process: HookAgent) -> None:
        self.fleet, self.home, self.release, self.process = fleet, home, release, process
        self.random = random.Random(f"{home.name} {release} {len(fleet.acts)}")
        self.name, self.count = f"{home.name}-{release}-{process.process.pid}", 0
        self.said: dict[str, list[tuple[str, str]]] = {owner: [] for owner in OWNERS}
        for owner, identity in OWNERS.items():
            process.begin(self.session(owner), **identity)

    def session(self, owner: str) -> str:
        return f"{self.name}-{owner}"

    def text(self, owner: str, about: str) -> str:
        self.count += 1
        return f"The {about} number {self.count} of {self.name} is kept by owner-{owner} in the harbour"

    def live(self, acts: int) -> None:
        choices: dict[Callable[[str], None], int] = {
            self.take_turn: 8, self.remember: 4, self.forget: 2, self.delegate: 1, self.replay: 1, self.undo: 1,
            self.recall: 2, self.edit_file: 3, self.correct: 4 if self.release == "new" else 0,
        }  # fmt: skip
        for _ in range(acts):
            act = self.random.choices(list(choices), list(choices.values()))[0]
            act(self.random.choice(list(OWNERS)))
            with self.fleet.lock:
                self.fleet.acts[self.release, act.__name__] += 1

    def call(self, owner: str, hook: str, *arguments: Any, **named: Any) -> Any:
        return self.process.call(self.session(owner), hook, *arguments, **named)

    def take_turn(self, owner: str, *, missed: bool = False) -> None:
        """A turn; the host has not handed over one that was missed, but replays it."""
        turn = (self.text(owner, "question"), self.text(owner, "answer"))
        if not missed:
            self.call(owner, "on_turn_start", len(self.said[owner]) + 1, turn[0])
            self.call(owner, "sync_turn", *turn)
        with self.fleet.lock:
            self.fleet.records[self.home].say(self.session(owner), turn)
        self.said[owner].append(turn)
        self._count(owner, turn, 1)

    def _count(self, owner: str, turn: tuple[str, str], times: int) -> None:
        with self.fleet.lock:
            for side in turn:
                self.fleet.turns[owner, side] += times

    def replay(self, owner: str) -> None:
        if self.said[owner]:
            self.take_turn(owner, missed=True)
        messages = [
            {"role": role, "content": side}
            for turn in self.said[owner]
            for role, side in zip(("user", "assistant"), turn, strict=True)
        ]
        for _ in range(2):
            self.call(owner, "on_session_end", messages)

    def undo(self, owner: str) -> None:
        if not self.said[owner]:
            return
        turn = self.said[owner].pop()
        with self.fleet.lock:
            self.fleet.records[self.home].undo(self.session(owner))
        self.call(owner, "on_session_switch", self.session(owner), rewound=True)
        self._count(owner, turn, -1)

    def delegate(self, owner: str) -> None:
        task, result = self.text(owner, "task"), self.text(owner, "result")
        self.call(owner, "on_delegation", task, result, child_session_id="child")
        self._count(owner, (task, result), 1)
        with self.fleet.lock:
            self.fleet.edges[task] += 1

    def remember(self, owner: str, *, sync: bool = True, **more: Any) -> None:
        content = self.text(owner, "fact")
        if self.release == "new" and not more and self.random.random() < 0.5:
            more = {"tags": ["boats", self.home.name], "expires": "14d"}
        answer = self.process.tool(self.session(owner), "remember", content=content, sync=sync, **more)
        assert answer.get("status") in ("stored", "accepted"), answer
        with self.fleet.lock:
            self.fleet.entries[owner, content] = tuple(sorted(more.get("tags", ())))
            if "id" in answer:
                self.fleet.ids.append((answer["id"], owner, content))

    def _take(self, owner: str) -> tuple[int, str, str] | None:
        """An entry of an owner that no other agent changes meanwhile."""
        with self.fleet.lock:
            found = [known for known in self.fleet.ids if known[1] == owner]
            if not found:
                return None
            self.fleet.ids.remove(found[0])
            return found[0]

    def forget(self, owner: str) -> None:
        known = self._take(owner)
        if known is None:
            return
        answer = self.process.tool(self.session(owner), "forget", id=known[0])
        if answer.get("status") == "forgotten":
            with self.fleet.lock:
                del self.fleet.entries[owner, known[2]]
        else:
            # An agent of 2.0.0 does not see what moved to the person.
            assert (self.release, owner in self.fleet.linked) == ("old", True), answer

    def correct(self, owner: str) -> None:
        known = self._take(owner)
        if known is None:
            return
        number, _, old = known
        content = self.text(owner, "correction")
        if self.random.random() < 0.5:
            answer = self.process.tool(self.session(owner), "update", id=number, content=content)
        else:
            answer = self.process.tool(
                self.session(owner), "remember", content=content, supersedes=number, tags=["fixed"], sync=True
            )
        if "error" in answer:
            # What an agent of 2.0.0 stored of a linked account can be corrected once it is the person's.
            assert owner in self.fleet.linked, answer
            assert "has no such entry" in answer["error"], answer
            return
        with self.fleet.lock:
            tags = self.fleet.entries.pop((owner, old))
            self.fleet.entries[owner, content] = (
                ("fixed",) if "status" in answer and "fixed" in json.dumps(answer) else tags
            )
            if "id" in answer:
                self.fleet.ids.append((answer["id"], owner, content))

    def begin_corrections(self, owner: str, spool: Path) -> None:
        """Correct two entries while nothing can be stored; `update` waits for it, so its answer is not read."""
        for place, (number, _, old) in enumerate(filter(None, (self._take(owner), self._take(owner)))):
            content = self.text(owner, "late correction")
            with self.fleet.lock:
                tags = self.fleet.entries.pop((owner, old))
                self.fleet.entries[owner, content] = tags
            if place == 0:
                arguments = {"content": content, "supersedes": number}
                answer = self.process.tool(self.session(owner), "remember", **arguments)
                assert answer.get("status") == "accepted", answer
            else:
                self.process.send(self.session(owner), "handle_tool_call", "update", {"id": number, "content": content})
                wait_for(
                    lambda content=content: any(content.encode() in path.read_bytes() for path in spool.glob("*/*.log"))
                )

    def edit_file(self, _: str) -> None:
        """Change MEMORY.md as a host does, then tell the memory."""
        path, owner = self.home / "memories" / "MEMORY.md", "ops"
        new = self.text(owner, "line")
        with self.fleet.lock:
            present = path.read_text().split("\n§\n") if path.exists() and path.read_text() else []
            action = self.random.choice(["add", "replace", "remove"]) if len(present) > 2 else "add"
            old = "" if action == "add" else self.random.choice(present)
            after = [line for line in present if line != old] + ([] if action == "remove" else [new])
            # In one step, as hosts do: an agent that begins compares the file at the same time.
            fresh = path.with_suffix(".new")
            fresh.write_text("\n§\n".join(after))
            fresh.replace(path)
            told = {"old_text": old, "previous_content": old} if old else {}
            self.call(owner, "on_memory_write", action, "memory", "" if action == "remove" else new, told)
            if old:
                del self.fleet.entries[owner, old]
            if action != "remove":
                self.fleet.entries[owner, new] = ()

    def recall(self, owner: str) -> None:
        """Ask in every way; nothing of another owner comes."""
        query = "Which things are kept in the harbour?"
        shown = [
            self.call(owner, "prefetch", query),
            *(
                json.dumps(self.process.tool(self.session(owner), tool, query=query, scope=scope, limit=50))
                for tool in ("recall_memory", "recall_conversation")
                for scope in ("current", "all")
            ),
            json.dumps(self.process.tool(self.session(owner), "list_memories", limit=50)),
        ]
        person = set(ALICE) if owner in self.fleet.linked and self.release == "new" else {owner}
        for place, text in enumerate(shown):
            named = {"ops", "wiki"} if place in (2, 4) else set()
            seen = set(_OWNER.findall(text))
            assert seen <= person | named, (self.release, owner, seen, place)


@pytest.fixture
def fleet(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Fleet]:
    (tmp_path / "release").mkdir()
    values = {**VALUES, "dsn": database, "embed_url": endpoint.url}
    made = Fleet(release_2_0_0(tmp_path / "release"), tmp_path, values)
    yield made
    for agent in made.agents.values():
        agent.process.kill()


def psql(fleet: Fleet, statement: str) -> list[Any]:
    with psycopg.connect(fleet.values["dsn"]) as connection:
        return connection.execute(statement.encode()).fetchall()


def compare(fleet: Fleet) -> None:
    """Assert that the rows are those that were said, each once, under the theme of its owner."""
    for table in ("conversations", "memory_entries"):
        themes: dict[str, set[str]] = {}
        for theme, content in psql(fleet, f"select agent_identity, content from {table}"):
            themes.setdefault(theme, set()).update(_OWNER.findall(content))
        allowed = [{owner} for owner in OWNERS if owner not in fleet.linked] + [set(fleet.linked)]
        for owners in themes.values():
            assert any(owners <= each for each in allowed), (table, themes)
        assert sum(map(len, themes.values())) == len(set().union(*themes.values())), (table, themes)
    stored: Counter[tuple[str, str]] = Counter(
        (_OWNER.findall(content)[0], content) for (content,) in psql(fleet, "select content from conversations")
    )
    wanted = +fleet.turns
    assert not wanted - stored, f"{(wanted - stored).total()} of {wanted.total()} lost: {list(wanted - stored)[:6]}"
    assert not stored - wanted, f"{(stored - wanted).total()} beyond {wanted.total()}: {list(stored - wanted)[:6]}"
    entries = psql(fleet, "select content, coalesce(tags, '{}') from memory_entries")
    found = {(_OWNER.findall(content)[0], content): tuple(tags) for content, tags in entries}
    assert len(entries) == len(found), "an entry is there twice"
    assert found == fleet.entries
    assert Counter(task for (task,) in psql(fleet, "select task from memory_agent_edges")) == fleet.edges


def document(shown: str) -> Any:
    """The JSON document that a command printed before its messages."""
    return json.JSONDecoder().raw_decode(shown)[0]


def everyone(fleet: Fleet) -> None:
    for home in ("one", "two"):
        for release in ("old", "new"):
            fleet.start(home, release)


def link(fleet: Fleet, command: str) -> None:
    code, shown = fleet.run("new", "one", "person", command, "--yes", typed="telegram 111\ndiscord 222\n\n")
    assert code == 0, shown


def wait_for_links(fleet: Fleet, *, linked: bool) -> None:
    """Wait until the agents of this release know whether Alice's accounts are linked."""
    query = {"query": "What is kept by owner-tablet in the harbour?", "limit": 50}

    def knows(agent: Speaker) -> bool:
        hits = agent.process.tool(agent.session("phone"), "recall_conversation", **query)["hits"]
        # So many texts are cut, and an answer that is degraded may have no hits at all.
        owners = {hit["session_id"].rpartition("-")[2] for hit in hits}
        return "tablet" in owners if linked else "phone" in owners and "tablet" not in owners

    for (_, release), agent in fleet.agents.items():
        if release == "new":
            wait_for(partial(knows, agent))


def kill_with_events(fleet: Fleet, home: str, victim: str, heir: str) -> None:
    """Kill an agent whose events wait in its spool; the agent of the other release takes the spool over."""
    killed = fleet.agents.pop((home, victim))
    spool = fleet.folder / home / "pgvector" / "spool"
    with psycopg.connect(fleet.values["dsn"]) as connection:
        connection.execute("lock table memory_events in access exclusive mode")
        for owner in OWNERS:
            for _ in range(5):
                killed.take_turn(owner)
            killed.remember(owner, sync=False)
            killed.delegate(owner)
            killed.replay(owner)
            killed.undo(owner)
            killed.edit_file(owner)
        if victim == "new":
            killed.remember("wiki", sync=False, tags=["boats"], expires="14d")
            killed.begin_corrections("wiki", spool)
        killed.process.kill()
    assert (home, heir) in fleet.agents
    wait_for(lambda: len([path for path in spool.glob("[!.]*") if any(path.glob("*.log"))]) <= 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@one_server
def test_a_fleet_of_two_releases_loses_nothing_repeats_nothing_and_shows_nothing_to_others(fleet: Fleet) -> None:
    everyone(fleet)
    fleet.together(ACTS)
    kill_with_events(fleet, "one", "old", "new")
    code, shown = fleet.run("new", "one", "spool", "list", "--json")
    assert (code, document(shown)["aside"]) == (0, []), shown
    kill_with_events(fleet, "two", "new", "old")
    code, shown = fleet.run("new", "two", "spool", "list", "--json")
    letters = document(shown)["aside"]
    assert letters
    assert all(letter["id"].startswith("damaged-") for letter in letters)
    code, shown = fleet.run("new", "two", "spool", "retry", "--all")
    assert code == 0, shown
    assert f"{len(letters)} events stored, 0 dead letters left" in shown
    fleet.end()
    compare(fleet)

    everyone(fleet)
    fleet.together(ACTS)
    link(fleet, "link")
    fleet.linked = ALICE
    wait_for_links(fleet, linked=True)
    fleet.together(ACTS)
    kill_with_events(fleet, "two", "old", "new")
    kill_with_events(fleet, "one", "new", "old")
    code, shown = fleet.run("new", "one", "spool", "retry", "--all")
    assert code == 0, shown
    fleet.end()
    link(fleet, "link")
    compare(fleet)

    everyone(fleet)
    link(fleet, "unlink")
    fleet.linked = ()
    wait_for_links(fleet, linked=False)
    fleet.together(ACTS)
    fleet.end()
    compare(fleet)
    print(sorted(fleet.acts.items()), len(fleet.entries), (+fleet.turns).total())


@one_server
def test_the_commands_of_2_0_0_work_on_the_newest_schema(fleet: Fleet) -> None:
    fleet.start("one", "new").take_turn("ops")
    fleet.end()
    code, shown = fleet.run("old", "one", "status", "--json")
    assert code == 0, shown
    assert '"turns": 2' in shown
    shown = fleet.run("old", "one", "doctor", "--json")[1]
    checks = {check["name"]: check for check in document(shown)["checks"]}
    assert checks["schema"]["found"].startswith(f"version {LATEST}")
    # The test has installed no plugin.
    assert {name for name, check in checks.items() if check["verdict"] == "problem"} == {"plugin", "provider"}
