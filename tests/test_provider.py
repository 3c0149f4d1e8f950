"""The hooks of a process that has just started, called as a host calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

# Modules of a host are missing, all of them or the parts of a real one. Printed is what the hooks looked for on the
# agent's thread, by hook, and what any thread looked for more than once. Hosts call `prefetch` on a thread of its own.
HOOKS = """
import json, sys, threading, time, types
from collections import Counter
from pathlib import Path
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
looked, elsewhere, hook, everywhere, made = {}, [], "", Counter(), None
class Finder:
    def find_spec(self, name, path=None, target=None):
        everywhere[name] += 1
        if threading.current_thread() is threading.main_thread():
            looked.setdefault(hook, []).append(name)
        else:
            elsewhere.append(name)
sys.meta_path.insert(0, Finder())
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
provider, home = PgvectorMemoryProvider(), sys.argv[1]
session = {"hermes_home": home, "platform": "api_server", "gateway_session_key": "garden", "agent_context": "primary"}
looked.clear()
found = {}
for name, *arguments in [("is_available",), ("get_tool_schemas",), ("initialize", "s1"), ("system_prompt_block",)]:
    hook = name
    found[name] = getattr(provider, name)(*arguments, **(session if name == "initialize" else {}))
begin = dict(looked)
question, answer = "Which mountain is the highest of the Alps?", "It is Mont Blanc, with 4806 metres."
said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
calls = [
    ("on_turn_start", 1, question), ("sync_turn", question, answer), ("queue_prefetch", question),
    ("on_memory_write", "add", "memory", "The bridge is made of wood."), ("prefetch", "thanks!"),
    ("on_memory_write", "remove", "memory", "", {"old_text": "bridge"}), ("recall_status",),
    ("on_delegation", question, answer), ("on_session_end", said), ("on_pre_compress", []),
    ("on_session_switch", "s2"), ("on_turn_start", 2, question), ("sync_turn", question, answer),
]
looked.clear()
for name, *arguments in calls:
    hook = name
    if name == "sync_turn" and made is None:
        until = time.monotonic() + 30  # as for the answer of a model
        while provider._deferred._calls and time.monotonic() < until:
            time.sleep(0.01)
        files = set(Path(home).rglob("*"))
    if name == "prefetch":
        threading.Thread(target=provider.prefetch, args=arguments).start()
    else:
        getattr(provider, name)(*arguments)
    if name == "sync_turn" and made is None:
        made = sorted(str(path.relative_to(home)) for path in set(Path(home).rglob("*")) - files)
looked, until = dict(looked), time.monotonic() + 30
while "numpy" not in sys.modules and time.monotonic() < until:
    time.sleep(0.01)
hosts = ("agent", "gateway", "hermes_cli", "hermes_constants")
print(json.dumps({
    "begin": begin, "looked": looked, "made": made, "offered": provider._session.runtime.writer.counters.offered,
    "available": found["is_available"],
    "tools": len(found["get_tool_schemas"]), "prompt": found["system_prompt_block"], "elsewhere": elsewhere,
    "again": [name for name, times in everywhere.items() if times > 1 and name.partition(".")[0] in hosts],
}))
import os
sys.stdout.flush()
os._exit(0)
"""
AVAILABLE = """
import json, sys, types
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
before, available = set(sys.modules), PgvectorMemoryProvider().is_available()
print(json.dumps({"available": available, "imported": list(set(sys.modules) - before)}))
"""

# Imports of the driver are slow here, so that the tool is called in the middle of them.
TOOL = """
import json, sys, time, types
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
class Slow:
    def find_spec(self, name, path=None, target=None):
        time.sleep(0.05 if name.startswith("psycopg.") else 0)
sys.meta_path.insert(0, Slow())
provider, until = PgvectorMemoryProvider(), time.monotonic() + 30
provider.initialize("s1", hermes_home=sys.argv[1], platform="api_server", gateway_session_key="garden")
while "psycopg" not in sys.modules and time.monotonic() < until:
    time.sleep(0.001)
print(provider.handle_tool_call("forget", {"id": 1}))
import os
sys.stdout.flush()
os._exit(0)
"""
# The session would begin late here. Printed are modules of a session that `initialize` imported, and the events that
# were accepted after a turn off the record and after one on it.
EARLY = """
import json, sys, types
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
from hermes_memory_pgvector import provider as module
module.BEGIN_AFTER_S = 60
provider = module.PgvectorMemoryProvider()
provider.initialize("s1", hermes_home=sys.argv[1], platform="api_server", gateway_session_key="garden")
found = {"imported": [name for name in sys.modules if name.endswith((".conversation", ".memory_queue"))]}
question, answer = "Which mountain is the highest of the Alps?", "It is Mont Blanc, with 4806 metres."
for number, (name, asked) in enumerate({"off": "Off the record: " + question, "on": question}.items(), 1):
    provider.on_turn_start(number, asked)
    provider.sync_turn(asked, answer)
    found[name] = provider._session.runtime.writer.counters.offered
print(json.dumps(found))
import os
sys.stdout.flush()
os._exit(0)
"""


HEAVY = {"psycopg", "psycopg_pool", "pgvector", "numpy", "httpx", "asyncio"}
HEAVY_OF_OURS = ("write.", "embedding.", "store.connection.database", "recall.recaller", "text.sanitize")
DSN = "postgresql://nobody:p%40ss@127.0.0.1:1/none?sslmode=disable"


def heavy(names: Iterable[str]) -> set[str]:
    """The modules among these that take long to import. A package alone is looked for to see whether it is there."""
    parts = {name: name.split(".") for name in names if "." in name}
    return {name for name, part in parts.items() if part[0] in HEAVY or ".".join(part[1:]).startswith(HEAVY_OF_OURS)}


def run(probe: str, home: Path, dsn: str, **settings: str) -> dict[str, Any]:
    environment = {
        **{f"HERMES_PGVECTOR_{name.upper()}": value for name, value in settings.items()},
        "HERMES_HOME": str(home), "HERMES_PGVECTOR_DSN": dsn, "HERMES_PGVECTOR_EMBED_URL": "http://127.0.0.1:1/v1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", probe, str(home)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What HOOKS prints."""
    return run(HOOKS, tmp_path_factory.mktemp("home"), DSN)


def test_the_start_of_a_session_imports_nothing_heavy_on_the_agents_thread(hooks: dict[str, Any]) -> None:
    assert hooks["available"]
    assert hooks["tools"] == 2
    assert hooks["prompt"]
    assert not heavy(name for names in hooks["begin"].values() for name in names)
    assert not hooks["begin"].get("initialize")
    assert len(hooks["begin"]["get_tool_schemas"]) < 12
    assert {"psycopg", "hermes_memory_pgvector.write.writer", "numpy"} <= set(hooks["elsewhere"])


@pytest.mark.parametrize("dsn", ["", DSN, "host=/tmp port=5432 dbname='my memory' user=me", "host = db"])
def test_whether_the_memory_is_available_is_answered_without_the_driver(tmp_path: Path, dsn: str) -> None:
    found = run(AVAILABLE, tmp_path, dsn)
    assert found["available"]
    assert bool(heavy(found["imported"])) == (dsn == "host = db"), "libpq itself is asked about unusual strings only"


def test_no_hook_after_the_start_imports_more_than_small_modules_or_makes_folders(hooks: dict[str, Any]) -> None:
    assert hooks["offered"] == 6
    assert {name for names in hooks["looked"].values() for name in names} <= {"agent.redact", "encodings.ascii"}
    assert hooks["again"] == []
    assert hooks["made"] == []


def test_a_hook_that_comes_before_the_session_has_begun_begins_it(tmp_path: Path) -> None:
    found = run(EARLY, tmp_path, DSN)
    assert found == {"imported": [], "off": 0, "on": 1}


def test_a_tool_that_is_called_while_the_driver_is_imported_waits_for_it(tmp_path: Path) -> None:
    answer = run(TOOL, tmp_path, DSN, tools="all", recall_budget_s="0.5")
    assert "the memory failed" not in answer["error"]
