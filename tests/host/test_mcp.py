"""The MCP client of a host, with the SDK that the host pins, on a memory that another environment serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hostrig.marks import one_server
from loopback import Endpoint
from manuals import blocks
from mcprig.client import sdk
from mcprig.memory import Memory

if TYPE_CHECKING:
    from conftest import Host

pytestmark = [one_server, pytest.mark.slow]

# The extra `mcp` of each host.
PINNED = {"a": ["mcp==1.26.0"], "b": ["mcp==2.2.0", "httpx2==2.12.0"]}


def configurations() -> list[dict[str, Any]]:
    """The configurations of Hermes in the manual."""
    found = [yaml.safe_load(block) for block in blocks("docs/mcp.md", "yml")]
    return [shown for shown in found if "mcp_servers" in shown]


def test_the_client_of_a_host_finds_the_tools_as_the_manual_says(
    host: Host, make_environment: Callable[..., Host], tmp_path: Path, database: str, endpoint: Endpoint
) -> None:
    layer = make_environment(host, tmp_path / "host")
    installed = layer.run("pip", "install", "--disable-pip-version-check", *PINNED[host.name], home=tmp_path)
    assert installed.returncode == 0, installed.stderr
    user = tmp_path / "user"
    user.mkdir()
    with Memory(tmp_path / "served", dsn=database, embed_url=endpoint.url) as memory:
        url, token = memory.served(), memory.token("garden")
        here = {
            "/path/to/hermes-pgvector": sdk(2).program, "/home/me/.hermes": str(memory.home),
            "http://127.0.0.1:8765/mcp": url,
        }  # fmt: skip
        for configuration in configurations():
            text = yaml.safe_dump(configuration)
            for shown, own in here.items():
                text = text.replace(shown, own)
            (user / "config.yaml").write_text(text)
            (user / ".env").write_text(f"MEMORY_TOKEN={token}\n")
            tested = layer.run("hermes", "mcp", "test", "memory", home=user)
            assert "recall_memory" in tested.stdout, tested.stdout + tested.stderr
