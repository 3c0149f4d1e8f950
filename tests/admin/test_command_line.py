"""The command line without a database: arguments in, text and exit codes out."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import replace
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_type_hints

import pytest
from commandline import Outcome, hermes_pgvector

import hermes_memory_pgvector
from hermes_memory_pgvector import cli
from hermes_memory_pgvector.admin.command_groups import GROUPS
from hermes_memory_pgvector.admin.console import Console, rows_table
from hermes_memory_pgvector.admin.doctor import installation
from hermes_memory_pgvector.admin.overview import Overview, observed
from hermes_memory_pgvector.admin.status import facts
from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.embedded.server import ServerStatus

PACKAGE = Path(hermes_memory_pgvector.__file__ or "").resolve().parent
IMPORTED_FROM = os.environ.get("PYTHONPATH", "")
# Nothing listens on the port of the discard protocol.
DEAD_DSN = "postgresql://somebody:hunter2@127.0.0.1:9/nowhere"


def in_a_process(*arguments: str, **environment: str) -> Outcome:
    """Run a command line as a shell does."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_memory_pgvector", *arguments],
        env={**known, "PYTHONPATH": IMPORTED_FROM, **environment},
        capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose database is dead."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", DEAD_DSN)
    return tmp_path


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys, hermes_memory_pgvector.cli as c; print(*sys.modules); c.register_cli"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": IMPORTED_FROM, "PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=60, cwd="/", check=True,
    )  # fmt: skip
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & {"psycopg", "httpx", "rich", "pydantic", "numpy", "yaml", "pgvector"} == set()


def jobs(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The names of the functions that a parser and its sub-parsers run."""
    if job := parser.get_default("pgvector_job"):
        yield job
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from jobs(inner)


def test_every_command_runs_a_function_that_takes_home_console_and_arguments() -> None:
    parser = argparse.ArgumentParser()
    cli.register_cli(parser)
    names = set(jobs(parser))
    assert "status:status" in names
    for name in names:
        handler = resolve_name(f"hermes_memory_pgvector.admin.{name}")
        assert list(signature(handler).parameters) == ["home", "console", "args"]
        types = {"home": Path, "console": Console, "args": argparse.Namespace, "return": int}
        assert get_type_hints(handler) == types, name


def test_without_a_command_the_help_is_shown_on_stderr() -> None:
    shown = hermes_pgvector()
    assert shown.code == 2
    assert shown.out == ""
    assert "doctor" in shown.err


def test_the_help_names_the_exit_codes_and_the_default_of_the_administrators_address() -> None:
    told = " ".join(hermes_pgvector("--help").out.split())
    assert "exit codes: 0 success; 1 a problem was found" in told
    for command in ("migrate", "tune", "reembed", "erase", "grants add", "quarantine drop"):
        told = " ".join(hermes_pgvector(*command.split(), "--help").out.split())
        assert (
            "administrator's connection string (default: HERMES_PGVECTOR_ADMIN_DSN, else that of the settings)" in told
        )


def test_the_help_has_each_command_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    cli.register_cli(parser)
    commands = next(action.choices for action in parser._actions if action.metavar == "COMMAND")
    assert sorted(" ".join(GROUPS.values()).split()) == sorted(commands or ())
    for columns in ("20", "80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        listed = [line.split()[0] for line in hermes_pgvector("--help").out.splitlines() if re.match("  [a-z]", line)]
        assert listed == " ".join(GROUPS.values()).split()


def test_the_host_gets_the_same_commands_under_hermes_pgvector() -> None:
    root = argparse.ArgumentParser(prog="hermes")
    ours = root.add_subparsers(dest="command").add_parser("pgvector")
    cli.register_cli(ours)
    ours.set_defaults(func=cli.pgvector_command)
    args = root.parse_args(["pgvector", "--home", "/tmp", "version", "--json"])
    assert args.func is cli.pgvector_command
    assert args.command == "pgvector"
    out = io.StringIO()
    with redirect_stdout(out):
        args.func(args)
    assert set(json.loads(out.getvalue())) == {"version"}


def test_a_failing_command_of_the_host_ends_with_its_exit_code() -> None:
    parser = argparse.ArgumentParser()
    cli.register_cli(parser)
    with redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as end:
        cli.pgvector_command(parser.parse_args([]))
    assert end.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["backfill", "--batch", "0"],
        ["migrate", "--dimensions", "4001"],
        ["search"],
        ["server"],
        ["nonsense"],
        ["search", "x", "--kind", "z"],
        ["status", "--home", "/etc/passwd"],
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    outcome = hermes_pgvector(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""


@pytest.mark.parametrize(
    "command", ["doctor", "mcp token add --theme t", "mcp token revoke x", "spool drop --all --yes"]
)
def test_a_home_below_a_file_is_one_line_and_no_traceback(tmp_path: Path, command: str) -> None:
    (file := tmp_path / "file").touch()
    outcome = hermes_pgvector(*command.split(), "--home", str(file / "a" / "b"))
    assert outcome == (2, "", f"hermes-pgvector: {file} is not a folder\n")


@pytest.mark.parametrize("command", ["doctor", "status", "mcp token add --theme t", "spool drop --all --yes"])
def test_a_file_in_the_place_of_a_folder_of_the_home_is_no_traceback(tmp_path: Path, command: str) -> None:
    (tmp_path / "pgvector").touch()
    outcome = in_a_process(*command.split(), "--home", str(tmp_path), HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert outcome.code in (0, 1)
    assert "Traceback" not in outcome.err
    if command.startswith("mcp"):
        assert outcome.err == f"hermes-pgvector: {tmp_path}/pgvector cannot be used: File exists; check it\n"


@pytest.mark.parametrize("name", [".env", "config.yaml", "pgvector/config.json", "pgvector/mcp_tokens.json"])
def test_nobody_is_told_to_delete_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    real = io.open

    def refused(file: object, *arguments: Any, **more: Any) -> Any:
        if file == str(tmp_path / name) or file == tmp_path / name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return real(file, *arguments, **more)

    monkeypatch.setattr("io.open", refused)
    monkeypatch.setattr("builtins.open", refused)
    outcome = hermes_pgvector("mcp", "token", "list", "--home", str(tmp_path))
    if name != "pgvector/mcp_tokens.json":
        outcome = hermes_pgvector("settings", "list", "--home", str(tmp_path))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"hermes-pgvector: {tmp_path / name} cannot be read")
    assert outcome.err.endswith("; run as the user who owns it\n")


def test_an_account_without_a_home_folder_is_told_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with an id that no file of accounts has."""

    def unknown(_: int) -> None:
        raise KeyError

    for name in ("HOME", "HERMES_HOME", "XDG_DATA_HOME", "HERMES_PGVECTOR_DSN", "HERMES_PGVECTOR_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("hermes_memory_pgvector.store.embedded.server.as_root", lambda: False)
    outcome = hermes_pgvector("status")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "hermes-pgvector: this account has no home folder; name the home of hermes with --home\n"
    outcome = hermes_pgvector("status", "--home", str(tmp_path))
    assert (outcome.code, outcome.out) == (1, "")
    assert "no home folder: set data_dir" in outcome.err
    assert "no home folder: set data_dir" in hermes_pgvector("doctor", "--home", str(tmp_path)).out.replace("\n", " ")


def test_a_group_without_an_action_prints_its_actions_on_stderr() -> None:
    outcome = hermes_pgvector("mcp", "token")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("usage: hermes-pgvector mcp token ")
    assert re.search(r"^    revoke +delete a token", outcome.err, re.MULTILINE)


def test_an_unknown_option_is_refused_with_the_options_of_the_command() -> None:
    outcome = hermes_pgvector("prune", "--older-than", "7d")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("usage: hermes-pgvector prune ")
    assert outcome.err.endswith("hermes-pgvector prune: error: unrecognized arguments: --older-than 7d\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "  "],
        ["search", "x", "--limit", "51"],
        ["search", "x", "--top-k", "51"],
        ["search", "x", "--target", "memory", "--kind", "turns"],
        ["search", "x", "--role", "user", "--kind", "memory"],
    ],
)
def test_what_only_the_command_can_refuse_exits_with_2_too(home: Path, arguments: list[str]) -> None:
    outcome = hermes_pgvector("--home", str(home), *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("hermes-pgvector: ")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["prune", "--yes"], "--theme"),
        (["prune", "--theme", "ops", "--yes"], "--before"),
        (["dedupe", "--yes"], "--theme"),
        (["erase", "--theme", "ops", "--yes"], "--session"),
        (["erase", "--theme", "ops", "--yes"], "--text"),
        (["erase", "--text", "swordfish", "--yes"], "--theme"),
        (["erase", "--person", "--yes"], "--profile"),
        (["facts", "purge", "--yes"], "--theme"),
        (["facts", "purge", "--yes"], "--scope"),
        (["export", "-"], "--theme"),
        (["import", "-"], "--theme"),
        (["reembed", "--yes"], "--model"),
        (["mcp"], "--theme"),
        (["mcp", "token", "add"], "--theme"),
        (["mcp", "token", "add", "--theme", "ops"], "--expires"),
        (["person", "link", "--yes"], "--profile"),
        (["add", "a text"], "--theme"),
        (["add", "a text", "--theme", "ops"], "--expires"),
        (["erase", "--theme", "ops", "--yes"], "--home"),
        (["status"], "--home"),
        (["setup", "--yes"], "--dsn"),
        (["migrate"], "--dsn"),
        (["migrate"], "--runtime-role"),
        (["migrate"], "--reader-role"),
        (["erase", "1", "--yes"], "--dsn"),
        (["settings", "copy", "--yes"], "--to"),
        (["spool", "retry", "--all"], "--theme"),
        (["quarantine", "drop", "1", "--yes"], "--theme"),
        (["quarantine", "list"], "--theme"),
        (["metrics"], "--textfile"),
        (["watch"], "--metrics"),
    ],
)
def test_an_empty_variable_of_a_script_is_no_condition_less(home: Path, command: list[str], option: str) -> None:
    refused = in_a_process("--home", str(home), *command, f"{option}=", HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert (refused.code, refused.out) == (2, ""), refused.shown
    assert f"argument {option}: '' is empty; give a value, or leave the option out" in refused.err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["migrate"], "--runtime-role"),
        (["migrate"], "--reader-role"),
        (["erase", "--yes"], "--session"),
        (["prune", "--yes"], "--before"),
        (["list"], "--theme"),
    ],
)
def test_an_option_that_takes_one_value_is_not_taken_from_the_last_of_two(
    home: Path, command: list[str], option: str
) -> None:
    refused = in_a_process("--home", str(home), *command, option, "a", option, "b", HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert (refused.code, refused.out) == (2, ""), refused.shown
    assert f"argument {option}: it was given twice and takes one value" in refused.err


@pytest.mark.parametrize("theme", [[], ["--theme", "Bil-ing"]])
def test_search_refuses_a_theme_that_is_not_allowed(
    home: Path, monkeypatch: pytest.MonkeyPatch, theme: list[str]
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["billing"]')
    outcome = hermes_pgvector("--home", str(home), "search", "x", *theme)
    assert outcome.code == 2
    assert "this theme is not in allowed_themes: " in outcome.err


def test_home_and_json_may_stand_before_or_after_the_command(home: Path) -> None:
    before = hermes_pgvector("--home", str(home), "--json", "status")
    after = hermes_pgvector("status", "--home", str(home), "--json")
    assert before.document["home"] == after.document["home"] == str(home)


def test_messages_have_marks_of_ascii_where_the_terminal_has_no_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(tmp_path), "setup"],
        input="2\nnonsense\n", env={**os.environ, "PYTHONPATH": IMPORTED_FROM, "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    assert "x the address is not a connection string" in done.stderr


@pytest.mark.parametrize(("encoding", "marks"), [("ascii", "+!x"), ("latin-1", "+!x"), ("utf-8", "✓!✗")])
def test_the_marks_of_doctor_differ_in_every_encoding(tmp_path: Path, encoding: str, marks: str) -> None:
    known = {"PYTHONPATH": IMPORTED_FROM, "PATH": os.environ["PATH"], "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_memory_pgvector", "doctor", "--home", str(tmp_path)],
        env={**known, "HERMES_PGVECTOR_DSN": DEAD_DSN, "HERMES_PGVECTOR_ALLOWED_THEME": "x"},
        capture_output=True, timeout=60, cwd="/",
    )  # fmt: skip
    shown = done.stdout.decode(encoding)
    assert {line[0] for line in shown.splitlines()} - {" "} == set(marks)
    assert ("  →" if encoding == "utf-8" else "  ->") in shown


def test_status_of_a_dead_database_says_so_and_shows_the_spool(home: Path) -> None:
    spool = Spool(home / "pgvector" / "spool", bytes_max=1 << 20, window_max=5)
    for number in range(7):
        assert spool.append(TurnTaken(theme="t", user=f"question {number}", assistant="answer"))
    outcome = hermes_pgvector("status", "--home", str(home), "--json")
    assert outcome.code == 1
    assert outcome.document["database"]["reachable"] is False
    assert outcome.document["spool"]["events"] == 7
    assert outcome.document["spool"]["processes"] == 1
    assert outcome.document["rows"] is None
    assert "hunter2" not in outcome.out + outcome.err
    told = hermes_pgvector("status", "--home", str(home))
    assert "7 events" in told.out
    assert re.match(rf"Home +{home}\n", told.out)
    assert "cannot be reached" in told.err
    assert f"refused; to do: start Postgres or correct HERMES_PGVECTOR_DSN in {home}/.env; until then" in told.err
    spool.close()


@pytest.mark.parametrize(
    ("running", "account", "told"),
    [(True, "agent", "not reachable"), (False, "agent", "stopped"), (False, "", "not there")],
)
def test_status_tells_an_embedded_server_that_hangs_from_one_that_is_stopped(
    tmp_path: Path, running: bool, account: str, told: str
) -> None:
    server = ServerStatus(running, None, tmp_path, tmp_path, "18", 0, account)
    seen = observed(Settings(dsn=DEAD_DSN), tmp_path, themes_max=0)  # type: ignore[arg-type]
    assert dict(facts(replace(seen, database=Overview("here", server, "no answer"))))["Server"] == told


@pytest.mark.parametrize("command", [["search", "x"], ["migrate"], ["backfill", "--limit", "1"], ["history"]])
def test_a_dead_database_gives_one_line_and_no_traceback(home: Path, command: list[str]) -> None:
    outcome = in_a_process(*command, "--home", str(home), HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("hermes-pgvector: ")
    assert len(outcome.err.splitlines()) == 1
    assert "127.0.0.1" in outcome.err
    assert f"refused; for more: hermes-pgvector --home {home} doctor" in outcome.err
    assert "hunter2" not in outcome.err


def test_doctor_is_not_named_where_the_administrators_address_does_not_answer(home: Path) -> None:
    asked = ("migrate", "--home", str(home))
    for given, outcome in {
        "--dsn": in_a_process(*asked, "--dsn", DEAD_DSN),
        "HERMES_PGVECTOR_ADMIN_DSN": in_a_process(*asked, HERMES_PGVECTOR_ADMIN_DSN=DEAD_DSN),
    }.items():
        assert (outcome.code, "doctor" in outcome.err) == (1, False)
        assert f"refused; start Postgres or correct {given}\n" in outcome.err


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    outcome = in_a_process("migrate", "--home", str(tmp_path), "--dsn", DEAD_DSN, HERMES_PGVECTOR_DEBUG="1")
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert "hunter2" not in outcome.err


def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_POOL_MAX=99\n")
    outcome = in_a_process("status", "--home", str(tmp_path))
    assert outcome.code == 1
    assert "HERMES_PGVECTOR_POOL_MAX" in outcome.err
    assert "99" in outcome.err
    assert "20" in outcome.err


@pytest.mark.parametrize("content", ["HERMES_PGVECTOR_DSN=caf\xe9\n".encode("utf-16"), b"HERMES_PGVECTOR_DSN=ca\0fe\n"])
@pytest.mark.parametrize("command", ["status", "doctor", "watch", "mcp token list"])
def test_an_env_file_that_cannot_be_used_is_one_line(tmp_path: Path, content: bytes, command: str) -> None:
    (tmp_path / ".env").write_bytes(content)
    outcome = in_a_process(*command.split(), "--home", str(tmp_path))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert outcome.err.startswith(f"hermes-pgvector: {tmp_path}/.env cannot be ")
    assert "correct the " in outcome.err
    assert "caf" not in outcome.err


def test_the_environment_file_of_the_home_counts_for_every_variable(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"HERMES_PGVECTOR_ADMIN_DSN={DEAD_DSN}\n")
    outcome = in_a_process("migrate", "--home", str(tmp_path))
    assert outcome.code == 1
    assert "port 9" in outcome.err


def test_a_home_that_may_be_mistyped_is_named(tmp_path: Path) -> None:
    mistyped = tmp_path / "hermse"
    listed = in_a_process("spool", "list", "--home", str(mistyped))
    assert (listed.code, listed.err) == (0, f"hermes-pgvector: {mistyped} does not exist yet\n")
    mistyped.mkdir()
    assert in_a_process("spool", "list", "--home", str(mistyped)).err == ""


def test_hermes_home_is_the_home_when_none_is_named(tmp_path: Path) -> None:
    outcome = in_a_process("status", "--json", HERMES_HOME=str(tmp_path), HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert outcome.document["home"] == str(tmp_path.resolve())


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "hermes_memory_pgvector", "version"],
        env={"PYTHONPATH": IMPORTED_FROM, "PATH": os.environ["PATH"], "HERMES_HOME": str(tmp_path)},
        stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["status", "version"])
def test_a_full_stdout_is_one_line_on_stderr(tmp_path: Path, command: str, unbuffered: str) -> None:
    known = {"PYTHONPATH": IMPORTED_FROM, "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hermes_memory_pgvector", command],
            env={**known, "HERMES_HOME": str(tmp_path)},
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd="/",
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "hermes-pgvector: stdout cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_traceback(tmp_path: Path, closed: str) -> None:
    command = f'"$0" -P -m hermes_memory_pgvector add - --theme ops 2>"$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(tmp_path / "errors")],
        env={
            "PYTHONPATH": IMPORTED_FROM, "PATH": os.environ["PATH"], "HERMES_HOME": str(tmp_path),
            "HERMES_PGVECTOR_DSN": DEAD_DSN,
        },
        stdin=subprocess.DEVNULL, timeout=60, cwd="/",
    )  # fmt: skip
    assert done.returncode == 2  # the text is empty
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_an_interruption_while_the_command_line_is_read_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_parser", interrupted)
    assert cli.main(["version"]) == 130


def test_a_table_that_is_too_wide_keeps_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"Rows": 1234, "First": "2026-01-02 10:00", "Last": "2026-03-04 10:00", "Theme": "a theme " * 4}]
    monkeypatch.setenv("COLUMNS", "20")
    header, first, second = Console(as_json=False).rendered(rows_table(rows)).splitlines()
    assert header.split() == ["Rows", "First", "Last", "Theme"]
    assert first.endswith("2026-03-04 10:00  a theme a theme")
    assert second.strip() == "a theme a theme"
    monkeypatch.setenv("COLUMNS", "70")
    assert len(Console(as_json=False).rendered(rows_table(rows)).splitlines()) == 3


def test_questions_are_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with redirect_stdout(out), redirect_stderr(err):
        console = Console(as_json=False)
        assert console.confirm("Delete it?", default=False)
        with pytest.raises(KeyboardInterrupt):
            console.confirm("Delete the other?", default=False)
    assert out.getvalue() == ""
    ended = "no answer: the input has ended; with --yes nothing is asked"
    assert err.getvalue() == f"Delete it? [y/N]: Delete the other? [y/N]: {ended}\n"


def test_a_question_is_wrong_usage_with_json() -> None:
    with pytest.raises(BadArgument, match="--yes"):
        Console(as_json=True).confirm("Delete it?")


@pytest.mark.parametrize(
    ("given", "remedy", "told"),
    [
        ({"yes": False}, "", "add --yes"),
        ({"yes": False}, "add --yes, after a look", "add --yes, after a look"),
        ({"yes": False, "dry_run": False}, "", "add --dry-run to see the plan, or --yes"),
        ({"yes": False, "dry_run": True}, "", ""),
        ({"yes": True, "dry_run": False}, "", ""),
    ],
)
def test_a_command_that_would_ask_is_told_what_json_needs(given: dict[str, bool], remedy: str, told: str) -> None:
    refused = pytest.raises(BadArgument, match=f"^--json excludes questions; {told}$") if told else nullcontext()
    with refused:
        Console(as_json=True).check_consent(argparse.Namespace(**given), remedy)


@pytest.mark.parametrize(
    "arguments",
    [
        ["erase", "--vacuum", "--yes", "--dsn", "somewhere"],
        ["migrate", "--dsn", "somewhere"],
        ["reembed", "--model", "words", "--dsn", "somewhere"],
        ["reembed"],
        ["tune", "--dsn", "somewhere"],
    ],
)
def test_a_wrong_argument_of_an_administrator_is_wrong_usage(home: Path, arguments: list[str]) -> None:
    refused = hermes_pgvector("--home", str(home), *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("hermes-pgvector: ")
    assert len(refused.err.splitlines()) == 1


def test_piped_output_has_neither_colours_nor_padding(home: Path) -> None:
    outcome = in_a_process("doctor", "--home", str(home), HERMES_PGVECTOR_DSN=DEAD_DSN)
    assert "\x1b" not in outcome.out + outcome.err
    assert [line for line in outcome.out.splitlines() if line != line.rstrip()] == []
    assert "✗ database" in outcome.out


def test_doctor_prints_a_remedy_for_every_problem(home: Path) -> None:
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    checks = {check["name"]: check for check in outcome.document["checks"]}
    assert outcome.code == 1
    assert checks["database"]["verdict"] == "problem"
    assert checks["provider"]["verdict"] == "problem"
    assert checks["plugin"]["verdict"] == "problem"
    assert checks["settings"]["verdict"] == "ok"
    assert all(check["remedy"] for check in checks.values() if check["verdict"] != "ok")


def test_doctor_checks_the_version_of_every_dependency() -> None:
    with (Path(__file__).resolve().parents[2] / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    assert {re.split(r"[\[>=<]", name)[0] for name in dependencies} == set(installation.PACKAGES)


def test_doctor_checks_the_installation_when_a_setting_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_POOL_MAX", "99")
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    checks = {check["name"]: check["verdict"] for check in outcome.document["checks"]}
    assert outcome.code == 1
    assert checks["settings"] == "problem"
    assert checks["package"] == "ok"


def test_doctor_sees_dead_letters_and_an_active_plugin(home: Path) -> None:
    aside = home / "pgvector" / "aside"
    aside.mkdir(parents=True)
    (aside / "1.json").write_text(json.dumps({"reason": "Postgres refuses the data", "event": "{}"}))
    (home / "config.yaml").write_text("memory:\n  provider: pgvector\n")
    assert hermes_pgvector("install", "--home", str(home)).code == 0
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    checks = {check["name"]: check for check in outcome.document["checks"]}
    assert checks["dead letters"]["verdict"] == "warning"
    assert "refuses the data" in checks["dead letters"]["found"]
    assert checks["provider"]["verdict"] == checks["plugin"]["verdict"] == "ok"


def test_doctor_shows_the_beginning_of_a_long_reason(home: Path) -> None:
    aside = home / "pgvector" / "aside"
    aside.mkdir(parents=True)
    (aside / "1.json").write_text(json.dumps({"reason": f"Postgres refuses {'x' * 5_000}", "event": "{}"}))
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    (found,) = (check["found"] for check in outcome.document["checks"] if check["name"] == "dead letters")
    assert "Postgres refuses x" in found
    assert len(found) < 300


def test_doctor_reports_an_embedder_that_the_settings_cannot_make(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_KEY_ENV", "A_KEY_THAT_NOBODY_SET")
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    (check,) = (check for check in outcome.document["checks"] if check["name"] == "embedder")
    assert outcome.code == 1
    assert check["verdict"] == "problem"
    assert "A_KEY_THAT_NOBODY_SET" in check["remedy"]


@pytest.mark.parametrize(
    ("processes", "bytes_each", "verdict"), [(3, 300_000, "ok"), (2, 600_000, "problem")], ids=["many", "full"]
)
def test_doctor_compares_the_spool_of_each_process_with_its_limit(
    home: Path, monkeypatch: pytest.MonkeyPatch, processes: int, bytes_each: int, verdict: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_SPOOL_MAX_MB", "1")
    for _ in range(processes):
        spool = Spool(home / "pgvector" / "spool", bytes_max=1 << 20, window_max=5)
        assert spool.append(TurnTaken(theme="t", user="question", assistant="x" * bytes_each))
        spool.close()
    outcome = hermes_pgvector("doctor", "--home", str(home), "--json")
    (check,) = (check for check in outcome.document["checks"] if check["name"] == "spool")
    assert check["verdict"] == verdict, check["found"]


@pytest.mark.parametrize(
    ("host", "config", "verdict"),
    [
        ("hermes_agent.memory_providers", "{}", "ok"),
        ("hermes_agent.memory_providers", "{plugins: {isolation: host}}", "problem"),
        ("folders only", "{}", "problem"),
    ],
)
def test_without_a_link_the_plugin_is_missing_unless_the_host_finds_its_entry_point(
    home: Path, host: str, config: str, verdict: str
) -> None:
    (home / "config.yaml").write_text(config)
    memory = home / "site" / "plugins" / "memory"
    memory.mkdir(parents=True)
    (memory / "__init__.py").write_text(f"GROUP = {host!r}")
    seen = in_a_process("doctor", "--home", str(home), "--json", PYTHONPATH=f"{memory.parent.parent}:{IMPORTED_FROM}")
    assert {check["name"]: check["verdict"] for check in seen.document["checks"]}["plugin"] == verdict


@pytest.mark.parametrize("command", ["doctor", "install"])
def test_no_remedy_overwrites_a_config_that_cannot_be_read(home: Path, command: str) -> None:
    (home / "config.yaml").write_text("model: x\nmemory: {provider: pgvector\nother: y\n")
    outcome = hermes_pgvector(command, "--home", str(home))
    assert outcome.code == 1
    assert "config.yaml cannot be read: ParserError in line 3; correct the file" in outcome.shown
    assert "config set" not in outcome.shown


def test_the_embedded_server_is_not_started_for_a_home_with_a_server_of_its_own(home: Path) -> None:
    outcome = hermes_pgvector("server", "start", "--home", str(home))
    assert outcome.code == 1
    assert "127.0.0.1" in outcome.err
    assert "hunter2" not in outcome.err


# The link of the plugin


def test_install_links_the_package_and_prints_the_next_step(tmp_path: Path) -> None:
    outcome = hermes_pgvector("install", "--home", str(tmp_path))
    assert outcome.code == 0
    assert (tmp_path / "plugins" / "pgvector").resolve() == PACKAGE
    assert "hermes config set memory.provider pgvector" in outcome.err


def test_installing_twice_changes_nothing(tmp_path: Path) -> None:
    assert hermes_pgvector("install", "--home", str(tmp_path), "--json").document["changed"] is True
    assert hermes_pgvector("install", "--home", str(tmp_path), "--json").document["changed"] is False


def test_a_link_to_a_python_that_is_gone_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "plugins" / "pgvector"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "gone" / "site-packages" / "hermes_memory_pgvector")
    assert hermes_pgvector("install", "--home", str(tmp_path)).code == 0
    assert link.resolve() == PACKAGE


def test_a_link_to_another_copy_of_the_package_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other" / "hermes_memory_pgvector"
    (other / "admin").mkdir(parents=True)
    (other / "admin" / "link.py").touch()
    link = tmp_path / "plugins" / "pgvector"
    link.parent.mkdir()
    link.symlink_to(other)
    assert hermes_pgvector("install", "--home", str(tmp_path)).code == 0
    assert link.resolve() == PACKAGE


@pytest.mark.parametrize(
    "command",
    [
        ["import"], ["import", "--from", "state-db"], ["settings", "copy", "--to"], ["settings", "project"],
        ["metrics", "--textfile"], ["watch", "--skip-host", "--metrics"],
    ],
)  # fmt: skip
def test_a_path_of_an_account_that_does_not_exist_is_named(home: Path, command: list[str]) -> None:
    outcome = hermes_pgvector("--home", str(home), *command, "~nobody-here/x")
    assert outcome.code in (1, 2)
    assert "~nobody-here" in outcome.err.splitlines()[-1]
    assert "there is no account for ~nobody-here" in hermes_pgvector("--home", "~nobody-here", "status").err


@pytest.mark.parametrize("kind", ["folder", "link"])
@pytest.mark.parametrize("extra", [[], ["--remove"]])
def test_another_plugin_is_left_alone(tmp_path: Path, kind: str, extra: list[str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("theirs = 1\n")
    link = tmp_path / "plugins" / "pgvector"
    link.parent.mkdir()
    if kind == "folder":
        foreign.rename(link)
    else:
        link.symlink_to(foreign)
    outcome = hermes_pgvector("install", "--home", str(tmp_path), *extra)
    assert outcome.code != 0
    assert str(link) in outcome.err
    assert (link / "__init__.py").read_text() == "theirs = 1\n"


def test_nothing_is_linked_when_another_hook_is_in_the_way(tmp_path: Path) -> None:
    foreign = tmp_path / "hooks" / "pgvector"
    foreign.mkdir(parents=True)
    for command in (["install"], ["settings", "on"]):
        outcome = hermes_pgvector(*command, "--home", str(tmp_path))
        assert (outcome.code, outcome.out, str(foreign) in outcome.err) == (2, "", True)
        assert list(tmp_path.iterdir()) == [tmp_path / "hooks"]


@pytest.mark.parametrize("python_is_gone", [False, True])
def test_removing_deletes_the_links_and_nothing_else(tmp_path: Path, python_is_gone: bool) -> None:
    hermes_pgvector("install", "--home", str(tmp_path))
    folders = [tmp_path / "plugins", tmp_path / "hooks"]
    for link in [folder / "pgvector" for folder in folders] if python_is_gone else ():
        target = link.readlink().relative_to(PACKAGE.parent)
        link.unlink()
        link.symlink_to(tmp_path / "gone" / "site-packages" / "hermes_memory_pgvector" / Path(*target.parts[1:]))
    assert hermes_pgvector("install", "--remove", "--home", str(tmp_path)).code == 0
    assert [list(folder.iterdir()) for folder in folders] == [[], []]
    assert (PACKAGE / "__init__.py").is_file()
    assert hermes_pgvector("install", "--remove", "--home", str(tmp_path)).code == 0
