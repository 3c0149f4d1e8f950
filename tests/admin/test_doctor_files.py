"""What doctor says of the files of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_memory_pgvector.admin.doctor.files import exported_otherwise, local_files, names_of_settings
from hermes_memory_pgvector.files import LastingMarks
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.settings import Settings


def test_a_home_that_can_keep_no_session_off_the_record_any_more_is_a_problem(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def verdict() -> str:
        checks = {check.name: check for check in local_files(home, Settings())}
        return checks["off the record"].verdict

    assert verdict() == "ok"
    LastingMarks(home.state / "off_record", 2, "").change("ab", marked=True)
    assert verdict() == "problem"


def test_a_mistyped_name_of_a_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> tuple[str, str]:
        check = names_of_settings(tmp_path, Settings(embed_key_env="HERMES_PGVECTOR_EMBED_KEY"))
        return check.verdict, check.found

    (tmp_path / "config.yaml").write_text("memory: {pgvector: {prefetch_limit: 3}}")
    monkeypatch.setenv("HERMES_PGVECTOR_SERVE_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_KEY", "sk-1")
    monkeypatch.setenv("HERMES_PGVECTOR_PREFETCH_LIMIT", "4")
    assert found() == ("ok", "valid")
    (tmp_path / "config.yaml").write_text("memory: {pgvector: {allowed_theme: [billing], 7: x}}")
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_OFF_RECORDS=true\nHERMES_PGVECTOR_DNS=host=a\n")
    verdict, told = found()
    assert verdict == "warning"
    for name in ("allowed_theme in memory.pgvector (did you mean allowed_themes?)", "7 in memory.pgvector"):
        assert name in told
    assert "HERMES_PGVECTOR_OFF_RECORDS in the environment or .env (did you mean off_record?)" in told
    assert "HERMES_PGVECTOR_DNS in the environment or .env (did you mean dsn?)" in told
    assert "billing" not in told


def test_a_variable_that_hosts_take_from_the_env_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_DSN=host=a password=hunter2\nHERMES_PGVECTOR_TOOLS=all\nOTHER=1\n")
    monkeypatch.setenv("HERMES_PGVECTOR_TOOLS", "all")
    monkeypatch.setenv("OTHER", "2")
    assert list(exported_otherwise(tmp_path)) == []
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", "host=b password=hunter3")
    (check,) = exported_otherwise(tmp_path)
    assert (check.verdict, "of HERMES_PGVECTOR_DSN: hosts take those of .env" in check.found) == ("warning", True)
    assert check.remedy.endswith("unset HERMES_PGVECTOR_DSN")
    assert "hunter" not in check.found + check.remedy
