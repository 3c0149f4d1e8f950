"""Which sessions a session continues, by the records that the hosts themselves write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Host


def test_a_branch_and_what_follows_a_compression_go_on_and_a_child_or_a_new_session_does_not(
    host: Host, tmp_path: Path
) -> None:
    assert host.script("continue_sessions.py", home=tmp_path) == {
        "compressed": ["first"], "child": [], "branch": ["first", "compressed"], "new": [],
    }  # fmt: skip
