"""Settings that the set-up saves, and their restoration when it does not finish."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from hermes_memory_pgvector.admin.configuration import (
    change_env_file,
    check_saved,
    exported,
    quoted,
    restored_on_error,
    save,
)
from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.settings import load

DSN = "HERMES_PGVECTOR_DSN"
VALUES = {"embed_url": "http://127.0.0.1:9/v1", "embed_model": "some-model"}


def test_other_lines_of_the_env_file_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# keys\nOPENAI_API_KEY=abc\n\nexport HERMES_PGVECTOR_DSN=old\nLAST='x y'")
    change_env_file(path, {DSN: "postgresql://new@host/db"})
    assert path.read_text() == (
        "# keys\nOPENAI_API_KEY=abc\n\nHERMES_PGVECTOR_DSN=postgresql://new@host/db\nLAST='x y'\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_variable_that_is_set_twice_is_set_once_afterwards(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"{DSN}=first\nOTHER=1\n{DSN}=second\n")
    change_env_file(path, {DSN: "third"})
    assert path.read_text() == f"{DSN}=third\nOTHER=1\n"


def test_an_empty_value_removes_the_variable(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"A=1\n{DSN}=old\n")
    change_env_file(path, {DSN: ""})
    assert path.read_text() == "A=1\n"


def test_nothing_to_save_creates_no_file(tmp_path: Path) -> None:
    change_env_file(tmp_path / ".env", {DSN: ""})
    assert not (tmp_path / ".env").exists()


def test_a_link_to_an_env_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("A=1\n")
    (tmp_path / ".env").symlink_to(tmp_path / "real")
    change_env_file(tmp_path / ".env", {DSN: "x"})
    assert (tmp_path / ".env").is_symlink()
    assert (tmp_path / "real").read_text() == f"A=1\n{DSN}=x\n"


def test_a_value_of_two_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="line break"):
        change_env_file(tmp_path / ".env", {DSN: "a\nLD_PRELOAD=b"})


def test_a_value_that_hosts_would_read_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="which hosts fill in when they read"):
        change_env_file(tmp_path / ".env", {DSN: "host=h password=a${b}c"})
    assert not (tmp_path / ".env").exists()


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f\x85\xa0\xad"))


@given(PRINTABLE)
def test_a_value_is_read_back_as_it_was_saved(value: str) -> None:
    from io import StringIO

    assert dotenv_values(stream=StringIO(f"A={quoted(value)}\n"), interpolate=False) == {"A": value}


@pytest.mark.parametrize("value", ["postgresql://a:b%40c@h/d", "host=/tmp password='x y'", 'say "hi" \\ there', "#a"])
def test_a_shell_reads_the_same_value(tmp_path: Path, value: str) -> None:
    change_env_file(tmp_path / ".env", {"A": value})
    shown = subprocess.run(
        ["/bin/sh", "-c", '. "$0"; printf %s "$A"', str(tmp_path / ".env")], capture_output=True, text=True, timeout=10
    )
    assert shown.stdout == value


def test_what_is_saved_is_what_the_settings_say(tmp_path: Path) -> None:
    with restored_on_error(tmp_path):
        save(tmp_path, VALUES, {DSN: "postgresql://me@host/db"})
        check_saved(tmp_path, {"dsn": SecretStr("postgresql://me@host/db"), **VALUES})
    settings = load(tmp_path)
    assert settings.dsn.get_secret_value() == "postgresql://me@host/db"
    assert settings.embed_url == VALUES["embed_url"]
    assert "postgresql" not in (tmp_path / "pgvector" / "config.json").read_text()


def test_the_embedded_server_overrides_an_address_of_lower_precedence(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("plugins: {pgvector: {dsn: postgresql://old@host/db}}\n")
    (tmp_path / ".env").write_text(f"{DSN}=postgresql://older@host/db\n")
    save(tmp_path, VALUES, {DSN: ""})
    check_saved(tmp_path, {"dsn": SecretStr("")})
    assert load(tmp_path).dsn.get_secret_value() == ""


def test_other_settings_of_the_file_stay(tmp_path: Path) -> None:
    (tmp_path / "pgvector").mkdir()
    (tmp_path / "pgvector" / "config.json").write_text('{"prefetch_limit": 3, "dsn": "postgresql://plain@host/db"}')
    save(tmp_path, VALUES, {DSN: ""})
    assert load(tmp_path).prefetch_limit == 3
    assert load(tmp_path).dsn.get_secret_value() == ""


def test_after_an_error_everything_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text(f"{DSN}=old\n")
    (tmp_path / ".env").chmod(0o640)
    # A host puts the lines of the file into the environment when it starts.
    monkeypatch.setenv(DSN, "old")
    with contextlib.suppress(KeyboardInterrupt), restored_on_error(tmp_path):
        save(tmp_path, VALUES, {DSN: "new"})
        assert load(tmp_path).dsn.get_secret_value() == "new"
        raise KeyboardInterrupt
    assert (tmp_path / ".env").read_text() == f"{DSN}=old\n"
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o640
    assert os.environ[DSN] == "old"
    assert not (tmp_path / "pgvector" / "config.json").exists()


def test_a_setting_that_the_environment_overrides_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "another")
    assert exported(tmp_path, ("dsn", "embed_model")) == ["embed_model"]
    save(tmp_path, VALUES, {})
    with pytest.raises(SettingsError, match="remove there: embed_model"):
        check_saved(tmp_path, VALUES)


def test_a_broken_file_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pgvector" / "config.json"
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(SettingsError, match=r"config\.json"), restored_on_error(tmp_path):
        save(tmp_path, VALUES, {DSN: "x"})
    assert path.read_text() == "{"
    assert not (tmp_path / ".env").exists()


def test_the_file_of_settings_is_private(tmp_path: Path) -> None:
    save(tmp_path, VALUES, {})
    saved = tmp_path / "pgvector" / "config.json"
    assert saved.stat().st_mode & 0o777 == 0o600
    assert json.loads(saved.read_text())["embed_model"] == "some-model"
