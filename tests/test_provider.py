"""The hooks of a process that has just started, called as a host calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Modules of a host are missing, all of them or the parts of a real one. Printed is what the hooks after `initialize`
# looked for on their own thread, by hook, and what any thread looked for more than once.
PROBE = """
import json, sys, threading, types
from collections import Counter
from pathlib import Path
agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})
sys.modules |= {"agent": agent, "agent.memory_provider": base}
looked, hook, everywhere, made = {}, "", Counter(), None
class Finder:
    def find_spec(self, name, path=None, target=None):
        everywhere[name] += 1
        if threading.current_thread() is threading.main_thread():
            looked.setdefault(hook, []).append(name)
sys.meta_path.insert(0, Finder())
from hermes_memory_pgvector.provider import PgvectorMemoryProvider
provider, home = PgvectorMemoryProvider(), sys.argv[1]
provider.initialize(
    "s1", hermes_home=home, platform="api_server", gateway_session_key="garden", agent_context="primary"
)
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
files = set(Path(home).rglob("*"))
for name, *arguments in calls:
    hook = name
    getattr(provider, name)(*arguments)
    if name == "sync_turn" and made is None:
        made = sorted(str(path.relative_to(home)) for path in set(Path(home).rglob("*")) - files)
hosts = ("agent", "gateway", "hermes_cli", "hermes_constants")
print(json.dumps({
    "looked": looked, "made": made, "offered": provider._session.runtime.writer.counters.offered,
    "again": [name for name, times in everywhere.items() if times > 1 and name.partition(".")[0] in hosts],
}))
import os
sys.stdout.flush()
os._exit(0)
"""


def test_no_hook_after_the_start_imports_more_than_small_modules_or_makes_folders(tmp_path: Path) -> None:
    environment = {
        "HERMES_HOME": str(tmp_path), "HERMES_PGVECTOR_DSN": "postgresql://nobody@127.0.0.1:1/none",
        "HERMES_PGVECTOR_EMBED_URL": "http://127.0.0.1:1/v1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["offered"] == 6
    assert {name for names in found["looked"].values() for name in names} <= {"agent.redact", "encodings.ascii"}
    assert found["again"] == []
    # The key of persons and rooms is made when the first of them is named.
    assert found["made"] == ["pgvector/person_key.provisional"]
