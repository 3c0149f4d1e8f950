"""Each row says in a word where it comes from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hermes_memory_pgvector.model import Hit, Recall
from hermes_memory_pgvector.recall.render import block
from hermes_memory_pgvector.text.provenance import described, is_outside, source_of
from hermes_memory_pgvector.tools.answers import of_recall


@pytest.mark.parametrize(
    ("role", "metadata", "source", "outside"),
    [
        ("user", {}, "user", False),
        ("assistant", {"author": "x"}, "assistant", False),
        ("assistant", {"tools": ["web_extract"]}, "tools", True),
        ("user", {"tools": ["web_extract"]}, "user", False),
        ("assistant", {"replayed": {}}, "assistant", False),
        ("user", {"delegated_to": ""}, "agent", True),
        ("assistant", {"origin": "import"}, "import", True),
        ("user", {"origin": "state.db"}, "user", False),
        ("", {}, "database", False),
        ("", {"released": "x"}, "database", False),
        ("", {"tool_name": "memory"}, "memory tool", False),
        ("", {"origin": "file"}, "file", False),
        ("", {"origin": "remember"}, "remember", False),
        ("", {"origin": "remember", "client": "mcp"}, "mcp", False),
        ("", {"origin": "import"}, "import", True),
    ],
)
def test_the_source_of_a_row_is_a_word(role: str, metadata: dict[str, Any], source: str, outside: bool) -> None:
    assert (source_of(role, metadata), is_outside(role, metadata)) == (source, outside)


def test_what_comes_from_outside_says_so_before_a_turn_and_in_answers_of_tools() -> None:
    common: dict[str, Any] = {"theme": "t", "at": datetime(2026, 5, 1, tzinfo=UTC), "session_id": "s"}
    said = Hit(id=1, content="The gate is green.", role="assistant", **common)
    read = Hit(id=2, content="The fence is red.", role="assistant", metadata={"tools": ["web_extract"]}, **common)
    text = block(Recall((said, read)), chars_max=500)
    assert "- [2026-05-01, assistant in session s] The gate is green." in text
    assert "- [2026-05-01, assistant in session s, from tools] The fence is red." in text
    hits = of_recall(Recall((said, read)), query="q", scope="", chars_max=2000)["hits"]
    assert [hit.get("source") for hit in hits] == [None, "tools"]


def test_an_operator_is_told_the_tools() -> None:
    assert described("conversation", "assistant", {"tools": ["a", "b"]}) == "conversation, from tools (a, b)"
    assert described("conversation", "assistant", {"tools": 7}) == "conversation, from tools"
    assert described("import", "user", {"origin": "import"}) == "import"
    assert described("delegation", "user", {"delegated_to": "x"}) == "delegation, from agent"
    assert described("conversation", "user", {}) == "conversation"
