"""Each row says in a word where it comes from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from hermes_memory_pgvector.hosts.provenance import described, is_outside, is_trusted, source_of
from hermes_memory_pgvector.model import Hit, Outside, Recall
from hermes_memory_pgvector.recall.render import block
from hermes_memory_pgvector.tools.answers import of_recall


@pytest.mark.parametrize(
    ("role", "metadata", "source", "outside"),
    [
        ("user", {}, "user", False),
        ("assistant", {"author": "x"}, "assistant", False),
        ("assistant", {"tools": ["web_extract"]}, "third parties", True),
        ("assistant", {"tools": ["terminal", "read_file"]}, "tools", True),
        ("assistant", {"tools": ["terminal", "mcp_mail_read"]}, "third parties", True),
        ("assistant", {"tools": "terminal"}, "third parties", True),
        ("user", {"tools": ["web_extract"]}, "user", False),
        ("user", {"tools": ["attachment"]}, "third parties", True),
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


@pytest.mark.parametrize(
    ("role", "metadata", "allowed"),
    [
        ("user", {}, ["all", "local", "none"]),
        ("assistant", {"tools": ["terminal"]}, ["all", "local"]),
        ("assistant", {"tools": ["terminal", "web_search"]}, ["all"]),
        ("user", {"delegated_to": "x"}, ["all", "local"]),
        ("assistant", {"delegated_to": "x"}, ["all"]),
        ("", {"origin": "import"}, ["all", "local"]),
        ("", {"origin": "remember", "client": "mcp"}, ["all", "local", "none"]),
    ],
)
def test_a_setting_says_which_sources_are_trusted(role: str, metadata: dict[str, Any], allowed: list[str]) -> None:
    assert [name for name in get_args(Outside) if is_trusted(role, metadata, name)] == allowed


def test_what_comes_from_outside_says_so_before_a_turn_and_in_answers_of_tools() -> None:
    common: dict[str, Any] = {"theme": "t", "at": datetime(2026, 5, 1, tzinfo=UTC), "session_id": "s"}
    said = Hit(id=1, content="The gate is green.", role="assistant", **common)
    read = Hit(id=2, content="The fence is red.", role="assistant", metadata={"tools": ["web_extract"]}, **common)
    text = block(Recall((said, read)), chars_max=500)
    assert "- [2026-05-01, assistant in session s] The gate is green." in text
    assert "- [2026-05-01, assistant in session s, from third parties] The fence is red." in text
    hits = of_recall(Recall((said, read)), query="q", scope="", chars_max=2000)["hits"]
    assert [hit.get("source") for hit in hits] == [None, "third parties"]


def test_an_operator_is_told_the_tools() -> None:
    assert described("conversation", "assistant", {"tools": ["terminal"]}) == "conversation, from tools (terminal)"
    assert described("conversation", "assistant", {"tools": ["a", "b"]}) == "conversation, from third parties (a, b)"
    assert described("conversation", "assistant", {"tools": 7}) == "conversation, from third parties"
    assert described("import", "user", {"origin": "import"}) == "import"
    assert described("delegation", "user", {"delegated_to": "x"}) == "delegation, from agent"
    assert described("conversation", "user", {}) == "conversation"
