"""The commands of README.md and docs/, typed into a shell as they are printed there.

Only names of machines are replaced: db.example is the Postgres of the tests, ollama.example an embedding endpoint on
loopback, and port 8642 another one when it is taken.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import ModelEndpoint
from hostrig.rows import Rows
from hostrig.shell import Shell
from loopback import Endpoint
from manuals import blocks, commands
from psycopg.conninfo import conninfo_to_dict
from servers import Server

if TYPE_CHECKING:
    from conftest import Host

pytestmark = one_server

ANSWER = "The invoices are in the database ledger-3 on bill-02."
TOLD = "Who restarted the importer yesterday? Dana did, on bill-02, at noon."


@pytest.fixture
def ollama() -> Iterator[Endpoint]:
    endpoint = Endpoint(dimensions=768)
    yield endpoint
    endpoint.close()


@pytest.fixture
def user(users_host: Host, model: ModelEndpoint, outdoors: Path) -> Hermes:
    """A host that has a model and does not know this package."""
    return Hermes(users_host.name, users_host.python, outdoors / "user", model).without_memory()


@pytest.fixture
def db_example(server: Server) -> Iterator[str]:
    """The host of a Postgres as in a URL. Its administrator is `admin`; what the manuals make on it is removed."""
    if server.bin is None:
        pytest.skip("the names in the manuals may be taken on the server of PG_TEST_DSN")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE admin SUPERUSER LOGIN")
        yield quote(str(conninfo_to_dict(server.dsn)["host"]), safe="")
        connection.execute("DROP DATABASE IF EXISTS memory WITH (FORCE)")
        connection.execute("DROP ROLE IF EXISTS admin, hermes, hermes_admin")


@pytest.fixture
def shell(user: Hermes, server: Server, source: Path, tmp_path: Path, outdoors: Path) -> Iterator[Shell]:
    """A shell in a clone, with the programs of the host and of Postgres."""
    clone = shutil.copytree(source, tmp_path / "clone")
    environment = user.environment(
        API_SERVER_PORT=str(api_port(user)),
        HERMES_PGVECTOR_DATA_DIR=str(outdoors / "server"),
        OLLAMA_HOST="127.0.0.1:9",
    )
    with Shell(clone, {**environment, "PATH": f"{environment['PATH']}:{server.bin}"}) as shell:
        yield shell


def api_port(user: Hermes) -> int:
    """The port of the host's API server: its default if that is free and no test of the other host may need it."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 8642 if user.host == "a" else 0))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.main_host("a")
def test_the_readme_leads_from_a_clone_to_a_fleet_that_recalls(
    user: Hermes, db_example: str, shell: Shell, model: ModelEndpoint, ollama: Endpoint
) -> None:
    def here(text: str) -> str:
        port = shell.environment["API_SERVER_PORT"]
        ours = {"db.example": db_example, "ollama.example:11434": urlsplit(ollama.url).netloc, ":8642/": f":{port}/"}
        for theirs, own in ours.items():
            text = text.replace(theirs, own)
        return text

    _, install, tables, settings, requests = map(here, blocks("README.md", "sh"))
    pip, link, config, doctor = commands(install)
    assert "Successfully installed hermes-memory-pgvector" in shell.run(pip)
    assert "plugins/pgvector -> " in shell.run(link)
    assert "memory.provider = pgvector" in shell.run(config)
    assert "0 problems" in shell.run(doctor)

    create, migrate = commands(tables)
    assert "CREATE ROLE" in shell.run(create, ("Enter new password", "password"), ("again", "password"))
    assert "role hermes may read and write the memory" in shell.run(migrate)
    (user.home / ".env").write_text(settings)
    checked = shell.run(doctor)
    assert "nomic-embed-text fits the database" in checked
    assert "hermes may read and write rows" in checked

    export, gateway, health, chat, search = commands(requests)
    shell.run(export)
    shell.run(gateway)
    assert '"status": "ok"' in shell.run(health)
    model.says(ANSWER)
    assert f'"content": "{ANSWER}"' in shell.run(chat)
    assert {"recall_memory", "recall_conversation"} <= set(model.requests[-1].tools)
    # A host hands over a turn a moment after it has answered.
    Rows(f"postgresql://admin@{db_example}/memory").wait(lambda rows: len(rows.turns("billing")) == 2)
    found = shell.run(search)
    assert "billing" in found
    assert ANSWER in found
    assert user.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("host", ["a"], indirect=True)
def test_the_manuals_lead_one_host_from_the_set_up_to_the_removal(host: Host, user: Hermes, shell: Shell) -> None:
    data = {"HERMES_PGVECTOR_DATA_DIR": shell.environment["HERMES_PGVECTOR_DATA_DIR"]}
    two_defaults = (("Where should the memory be stored?", ""), ("Which model should turn texts", ""))
    pip, link, setup = commands(blocks("docs/hosts.md", "sh")[0])
    shell.run(pip)
    shell.run(link)
    try:
        assert "an entry was stored, recalled by meaning" in shell.run(setup, *two_defaults)
        user.ask(TOLD, **data)
        doctor, status, everything = commands(blocks("docs/operations.md", "sh")[0])
        assert "fits the database" in shell.run(doctor)
        assert "2 turns in 1 theme" in shell.run(status)
        assert "Show the version" in shell.run(everything)
        look_at_the_memory(shell)
        search = commands(blocks("docs/recall.md", "sh")[0])[0]
        assert TOLD in (found := shell.run(search))
        assert "plan: exact" in found
        one_setting, listing, change, setup, doctor = commands(blocks("docs/configuration.md", "sh")[0])
        shell.run(one_setting)
        assert "prefetch_limit" in shell.run(listing)
        assert "recall_mode" in shell.run(change)
        assert "provider is pgvector" in shell.run(setup, *two_defaults)
        assert "settings: valid" in shell.run(doctor)
        restore_a_backup(shell)
        assert TOLD in shell.run(search)
        remove(shell)
    finally:
        host.run("hermes-pgvector", "server", "stop", "--mode", "immediate", home=user.home, **data)
    assert list((user.home / "plugins").iterdir()) == []


def look_at_the_memory(shell: Shell) -> None:
    add, themes, listing, show, sessions, browse, preview, stats = commands(blocks("docs/operations.md", "sh")[1])
    # The turn of the user may have come first.
    number = re.search(r"as entry (\d+)", shell.run(add))
    assert number
    entry = "Staging runs on port 5433."
    assert "ops" in shell.run(themes)
    assert entry in shell.run(listing)
    assert entry in shell.run(show.replace("show 1", f"show {number[1]}"))
    assert "has no sessions" in shell.run(sessions)
    since = len(shell.text)
    shell.type(f"{browse}\n")
    shell.wait("Ctrl-C quit", since=since)
    shell.type("\x03")
    shell.wait("<ended 0> ", since=since)
    assert entry in shell.run(preview)
    assert "Tokens a turn gets" in shell.run(stats)


def restore_a_backup(shell: Shell) -> None:
    """Make a backup, lose the server, and type how the backup is restored."""
    shell.run("hermes backup")
    shell.run("hermes-pgvector server stop")
    shell.run("rm -r $HERMES_PGVECTOR_DATA_DIR")
    (restore,) = commands(blocks("docs/hosts.md", "sh")[1])
    assert "restored" in shell.run(restore)


def remove(shell: Shell) -> None:
    block = next(block for block in blocks("docs/operations.md", "sh") if "pip uninstall" in block)
    *without_package, pip = commands(block)
    assert "Data" in "".join([shell.run(command) for command in without_package])
    assert "Successfully uninstalled hermes-memory-pgvector" in shell.run(pip, ("Proceed", "y"))


@pytest.mark.slow
@pytest.mark.parametrize("host", ["a"], indirect=True)
def test_an_administrator_without_superuser_creates_the_tables_with_psql(
    user: Hermes, db_example: str, shell: Shell
) -> None:
    def here(text: str) -> str:
        return text.replace("db.example", db_example).replace("admin@", "hermes_admin@")

    memory = f"postgresql://hermes_admin@{db_example}/memory"
    dimensions, files = commands(blocks("docs/schema.md", "sh")[1])
    prepare, grant, *_others = blocks("docs/schema.md", "sql")
    shell.run(f"psql -v ON_ERROR_STOP=1 postgresql://admin@{db_example}/postgres <<'END'\n{prepare}END")
    shell.run(dimensions)
    shell.run(here(files))
    shell.run(f"psql -v ON_ERROR_STOP=1 {memory} <<'END'\n{grant}END")
    shell.run(commands(blocks("README.md", "sh")[1])[0])
    assert "nothing to do" in shell.run(here(commands(blocks("docs/schema.md", "sh")[0])[0]))
    (user.home / ".env").write_text(f"HERMES_PGVECTOR_DSN=postgresql://hermes@{db_example}/memory\n")
    checked = shell.run("hermes-pgvector doctor", code=None)
    assert "hermes may read and write rows" in checked
    assert "vectors of 768 dimensions" in checked
    removal, other_model = blocks("docs/operations.md", "sql")
    for statements in (other_model, removal):
        shell.run(f"psql -v ON_ERROR_STOP=1 {memory} <<'END'\n{statements}END")
