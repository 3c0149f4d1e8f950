"""The documents say what the code does: commands parse, links lead somewhere, tables are those of the code."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import yaml
from manuals import blocks, commands

import hermes_memory_pgvector
from hermes_memory_pgvector.cli import register_cli
from hermes_memory_pgvector.hosts.config import ENV_PREFIX
from hermes_memory_pgvector.settings import Settings, load
from hermes_memory_pgvector.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(hermes_memory_pgvector.__file__ or "").parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# A plan names commands that do not exist yet.
MANUALS = [path for path in DOCUMENTS if path.name not in ("ROADMAP.md", "CHANGELOG.md")]
PROGRAM = "hermes-pgvector"


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_of(text: str) -> Iterator[str]:
    """The lines of code blocks, continued ones joined, and the code inside sentences."""
    block = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for found in block.finditer(text):
        yield from re.sub(r"\\\n\s*", "", found[1]).splitlines()
    yield from re.findall(r"`([^`\n]+)`", block.sub("", text))


def commands_in(text: str) -> Iterator[list[str]]:
    """The arguments of each `hermes-pgvector …` in the code of a text.

    `[optional]` counts as given, `a|b` as one command for each choice, a lone capital as a number; what follows a pipe,
    `;` or `#` is cut off.
    """
    for code in code_of(text):
        found = re.search(rf"(?:^|[\s;&|(]){PROGRAM}(?:\s+(.*))?$", code.strip())
        if not found:
            continue
        line = re.split(r"\s+[|;&]+\s+|;|\s#|\s*[)>]|\s*…", found[1] or "")[0].replace("[", "").replace("]", "")
        words = ["1" if re.fullmatch("[A-Z]", word) else word for word in shlex.split(line) if word != "COMMAND"]
        yield from map(list, product(*([word] if " " in word else word.split("|") for word in words)))


@cache
def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, allow_abbrev=False)
    register_cli(parser)
    return parser


def known_commands() -> set[str]:
    trees = [action for action in command_line()._actions if isinstance(action, argparse._SubParsersAction)]
    return {name for tree in trees for name in tree.choices}


@pytest.mark.parametrize("path", MANUALS, ids=shown)
def test_every_command_in_a_manual_parses(path: Path) -> None:
    refused = []
    for arguments in commands_in(text_of(path)):
        try:
            command_line().parse_args(arguments)
        except SystemExit as end:
            if end.code:
                refused.append(shlex.join([PROGRAM, *arguments]))
    assert not refused


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    text = "Run `hermes-pgvector doctor`, then\n\n```sh\nhermes-pgvector search 'a b' \\\n  --json | less  # all\n```\n"
    assert list(commands_in(text)) == [["search", "a b", "--json"], ["doctor"]]
    assert list(commands_in("`hermes-pgvector server start|stop [--json]`")) == [
        ["server", "start", "--json"],
        ["server", "stop", "--json"],
    ]


def test_every_command_has_its_place_in_the_manual_of_operations() -> None:
    manual = text_of(ROOT / "docs/operations.md")
    named = {arguments[0] for arguments in commands_in(manual) if arguments}
    assert known_commands() <= named


@pytest.mark.parametrize("folder", ["pgvector", "migrations"])
def test_every_command_that_a_message_names_exists(folder: str) -> None:
    known = known_commands()
    named = {
        (path.name, command)
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql")
        for command in re.findall(rf"\b{PROGRAM} ([a-z]+)", text_of(path))
    }
    assert {(name, command) for name, command in named if command not in known} == set()


def test_nothing_tells_to_install_the_earlier_package_of_the_same_name() -> None:
    found = [path for folder in ("pgvector", "scripts", "docs") for path in (ROOT / folder).rglob("*")]
    # What Python compiled may be older than its source.
    places = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in [*places, *DOCUMENTS]}
    by_name = re.compile(r"pip install ['\"]?hermes-memory-pgvector(?!==)")
    assert not [shown(path) for path, text in texts.items() if by_name.search(text)]


def test_the_demo_ends_with_commands_that_make_a_sound_fleet() -> None:
    box = re.search(
        r'^CONNECT = """(.*?)"""', text_of(ROOT / "scripts/demonstration/demo.py"), re.DOTALL | re.MULTILINE
    )
    assert box
    block = "```\n" + box[1].replace("\\\\\n", "\\\n") + "\n```"
    (migrate,) = (arguments for arguments in commands_in(block) if arguments[0] == "migrate")
    told = command_line().parse_args(migrate)
    assert f"HERMES_PGVECTOR_DSN=postgresql://{told.runtime_role}:" in box[1]
    assert told.dimensions, "the vectors get the length of this host's embedder, which may be another"
    assert ":" not in told.dsn.removeprefix("postgresql://"), "a password on a command line is seen by all"


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_no_example_sends_a_chat_more_than_once(path: Path) -> None:
    assert not [code for code in code_of(text_of(path)) if "--retry" in code and "chat/completions" in code]


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/*.md")), ids=shown)
def test_every_page_begins_with_what_to_type(path: Path) -> None:
    title, _, begin, *_ = text_of(path).splitlines()
    assert (title[:2], begin) == ("# ", "```sh")


def test_the_commands_of_the_readme_have_no_comments() -> None:
    # zsh, the shell of macOS, passes them on as arguments.
    assert [command for block in blocks("README.md", "sh") for command in commands(block) if " #" in command] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_every_script_named_in_a_document_can_be_run(path: Path) -> None:
    named = {name for code in code_of(text_of(path)) for name in re.findall(r"(?<![\w/.-])scripts/[\w.-]*\w", code)}
    for name in named:
        assert (ROOT / name).is_file(), f"{name} is not there"
        assert name.endswith(".py") or os.access(ROOT / name, os.X_OK), f"{name} is not executable"


@pytest.mark.parametrize("name", ["bench", "check", "demo", "environment", "install.sh", "test"])
def test_a_script_prints_its_usage_and_builds_nothing(name: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HERMES_PGVECTOR_VENV": str(tmp_path / "venv")}
    command = [ROOT / "scripts" / name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"scripts/{name}" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{target} is not there"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(linked), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_every_row_of_a_table_has_the_cells_of_its_head(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", text_of(path), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert cells == cells[:1] * len(cells), table


def test_grants_are_changed_as_an_administrator() -> None:
    # The role of agents, whose address is in the settings, may not even read them.
    for block in blocks("docs/security.md", "sh"):
        bare = [code for code in commands(block) if f"{PROGRAM} grants" in code and "--dsn" not in code]
        assert not bare or f"{ENV_PREFIX}ADMIN_DSN=" in block.partition(bare[0])[0]


def test_every_key_and_variable_named_in_a_manual_exists() -> None:
    known = {f"{ENV_PREFIX}{key.upper()}" for key in Settings.model_fields}
    read = {name for path in PACKAGE.rglob("*.py") for name in re.findall(rf"\b{ENV_PREFIX}[A-Z_]+\b", text_of(path))}
    scripts = {name for path in (ROOT / "scripts").iterdir() if path.is_file() for name in
               re.findall(rf"\b{ENV_PREFIX}[A-Z_]+\b", text_of(path))}  # fmt: skip
    for path in MANUALS:
        assert set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z]\b", text_of(path))) <= known | read | scripts, shown(path)
        assert set(re.findall(r"\bmemory\.pgvector\.(\w+)", text_of(path))) <= set(Settings.model_fields), shown(path)


@pytest.mark.parametrize("path", MANUALS, ids=shown)
def test_examples_of_settings_are_valid(path: Path, tmp_path: Path) -> None:
    text = text_of(path)
    for example in re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        given = yaml.safe_load(example)["memory"]["pgvector"]
        assert set(given) <= set(Settings.model_fields)
        (tmp_path / "config.yaml").write_text(example, encoding="utf-8")
        assert load(tmp_path, {}).model_fields_set == set(given)
    (tmp_path / "config.yaml").unlink(missing_ok=True)
    names = "|".join(Settings.model_fields).upper()
    lines = [line for line in code_of(text) if re.match(rf"{ENV_PREFIX}({names})=", line)]
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")
    keys = {line.partition("=")[0].removeprefix(ENV_PREFIX).lower() for line in lines}
    assert load(tmp_path, {}).model_fields_set == keys


def test_the_chinese_readme_has_the_same_commands_settings_and_links() -> None:
    english, chinese = text_of(ROOT / "README.md"), text_of(ROOT / "README.zh-CN.md")
    assert blocks("README.zh-CN.md", "sh") == blocks("README.md", "sh")
    for same in (r"^\| `(\w+)` \|", r"\]\(((?!README)[^)]+)\)"):
        assert sorted(re.findall(same, chinese, re.MULTILINE)) == sorted(re.findall(same, english, re.MULTILINE))


def test_the_readme_shows_settings_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", text_of(ROOT / "README.md"), re.MULTILINE)
    assert rows, "the table of the README is gone"
    manual = text_of(ROOT / "docs/configuration.md")
    for key, default in rows:
        assert f"| `{key}` | `{ENV_PREFIX}{key.upper()}` | {default.strip()} |" in manual


def test_the_manual_lists_the_checks_of_doctor() -> None:
    section = text_of(ROOT / "docs/operations.md").split("### `hermes-pgvector doctor")[1].split("\n### ")[0]
    listed = {
        name for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    code = "\n".join(map(text_of, [*(PACKAGE / "admin/doctor").glob("*.py"), PACKAGE / "admin/standby.py"]))
    assert set(re.findall(r"Check\(\s*\"([^\"]+)\"", code)) <= listed
    assert [name for name in listed if f'"{name}"' not in code] == []


def test_all_places_agree_on_the_version() -> None:
    assert yaml.safe_load(text_of(PACKAGE / "plugin.yaml"))["version"] == __version__
    latest = re.search(r"^## (\d[\w.]*)(, not released yet)?$", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert latest
    # An operator tells what is installed from a release by its version.
    assert latest[1] + (".dev0" if latest[2] else "") == __version__


def test_the_changelog_and_the_license_are_there() -> None:
    assert text_of(ROOT / "LICENSE").startswith("BSD 3-Clause License")
    assert len(text_of(ROOT / "README.md").splitlines()) <= 120
