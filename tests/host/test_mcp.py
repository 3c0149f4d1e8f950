"""The MCP client of a host, and the server in the same environment, with the SDK that the host pins."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml
from hostrig.marks import one_server
from loopback import Endpoint
from manuals import blocks
from mcprig.client import Sdk
from mcprig.memory import Memory

if TYPE_CHECKING:
    from conftest import Host

pytestmark = one_server
HEADER_BYTES_MAX = 4 << 20

# The extra `mcp` of each host.
PINNED = {"a": ["mcp==1.26.0"], "b": ["mcp==2.2.0", "httpx2==2.12.0"]}


def configurations() -> list[dict[str, Any]]:
    """The configurations of Hermes in the manual."""
    found = [yaml.safe_load(block) for block in blocks("docs/mcp.md", "yml")]
    return [shown for shown in found if "mcp_servers" in shown]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_server_and_host_share_an_environment_and_the_host_finds_the_tools_as_the_manual_says(
    host: Host, make_environment: Callable[..., Host], source: Path, tmp_path: Path, database: str, endpoint: Endpoint
) -> None:
    layer = make_environment(host, tmp_path / "host")
    wanted = [f"{source}[embedded,mcp]", *PINNED[host.name]]
    pip = [layer.python.with_name("pip"), "install", "--disable-pip-version-check", *wanted]
    installed = subprocess.run(pip, capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    user = tmp_path / "user"
    user.mkdir()
    with Memory(tmp_path / "served", dsn=database, embed_url=endpoint.url) as memory:
        beside = Sdk(layer.python)
        url, token = memory.served(beside), memory.token("garden")
        here = {
            "/path/to/hermes-pgvector": beside.program, "/home/me/.hermes": str(memory.home),
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


@pytest.mark.main_host("a")
def test_a_header_without_an_end_is_refused_also_beside_the_http_parser_of_a_host(
    host: Host, tmp_path: Path, database: str, endpoint: Endpoint
) -> None:
    (parser,) = host.python.parents[1].glob("lib/python*/site-packages/httptools")
    (tmp_path / "httptools").symlink_to(parser)
    with Memory(tmp_path / "served", dsn=database, embed_url=endpoint.url) as memory:
        memory.environment["PYTHONPATH"] = str(tmp_path)
        address, sent = ("127.0.0.1", urlsplit(memory.served()).port), 0
        with socket.create_connection(address, timeout=30) as client, suppress(ConnectionError):
            client.sendall(b"POST /mcp HTTP/1.1\r\n")
            while sent <= HEADER_BYTES_MAX:
                client.sendall(b"X: a\r\n" * 1000)
                sent += 6000
    assert sent <= HEADER_BYTES_MAX
