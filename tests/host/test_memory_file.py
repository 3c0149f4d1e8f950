"""The host's memory tool and a relief change one file at the same time, each under the same lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Host


def test_the_tool_of_the_host_and_a_relief_lose_no_entry_of_each_other(host: Host, home: Path) -> None:
    found = host.script("write_memory_at_once.py", home=home)
    assert found["refused"] == []
    assert found["files"] == ["MEMORY.md", "MEMORY.md.lock"]
    entries = [entry for entry in [*found["taken"], *found["left"]] if entry.startswith("process ")]
    turns = {(words[1], words[3]) for words in map(str.split, entries)}
    # Each process removes a fifth of its entries, unless they have left the file before.
    expected = {(str(n), str(turn)) for n in range(found["processes"]) for turn in range(found["turns"])}
    assert turns <= expected
    assert {key for key in expected if int(key[1]) % 5 != 3} <= turns
    # A change of an entry never leaves both texts in the file, and nothing is taken out twice.
    assert len(set(found["taken"])) == len(found["taken"])
    assert len(found["taken"]) > found["processes"]
