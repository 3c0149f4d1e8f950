"""Settings that hosts show and save."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hermes_memory_pgvector.admin import panel
from hermes_memory_pgvector.settings import Settings, load


def test_every_field_is_a_setting_with_its_default() -> None:
    for field in panel.fields():
        setting = Settings.model_fields[field["key"]]
        assert field["description"] == setting.description
        if field["key"] == "dsn":
            assert field["secret"]
            assert field["env_var"] == "HERMES_PGVECTOR_DSN"
            assert "default" not in field
        else:
            assert field["default"] == setting.default
    assert next(field["key"] for field in panel.fields()) == "dsn"


def test_choices_and_limits_are_those_of_the_settings() -> None:
    fields = {field["key"]: field for field in panel.fields()}
    assert fields["embed_api"]["choices"] == ["auto", "openai", "ollama"]
    assert (fields["prefetch_limit"]["minimum"], fields["prefetch_limit"]["maximum"]) == (0, 20)
    assert fields["sync_turns"]["type"] == "boolean"


def test_values_are_saved_in_their_own_types_and_beside_the_others(tmp_path: Path) -> None:
    panel.save({"prefetch_limit": "7", "sync_turns": "false", "dsn": "secret", "unknown": 1}, tmp_path)
    panel.save({"embed_url": "http://127.0.0.1:9/"}, tmp_path)
    document = json.loads((tmp_path / "pgvector" / "config.json").read_text())
    assert document == {"prefetch_limit": 7, "sync_turns": False, "embed_url": "http://127.0.0.1:9"}
    assert load(tmp_path).prefetch_limit == 7


def test_an_emptied_number_is_the_default_again(tmp_path: Path) -> None:
    panel.save({"prefetch_limit": 7}, tmp_path)
    panel.save({"prefetch_limit": ""}, tmp_path)
    assert load(tmp_path).prefetch_limit == Settings().prefetch_limit


def test_a_value_that_is_not_allowed_is_an_error_and_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="prefetch_limit"):
        panel.save({"prefetch_limit": 99}, tmp_path)
    assert not (tmp_path / "pgvector").exists()


def test_a_value_that_another_place_overrides_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("memory: {pgvector: {prefetch_limit: 1}}\n")
    with pytest.raises(ValueError, match="remove there: prefetch_limit"):
        panel.save({"prefetch_limit": 2}, tmp_path)


def test_a_damaged_file_is_an_error_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "pgvector" / "config.json"
    path.parent.mkdir()
    path.write_text('{"prefetch_limit": 3,}')
    with pytest.raises(ValueError, match=r"config\.json cannot be read.*delete the file"):
        panel.save({"turn_min_chars": 50}, tmp_path)
    assert path.read_text() == '{"prefetch_limit": 3,}'


def test_a_folder_that_cannot_be_written_is_an_error_and_nothing_is_reported_as_saved(tmp_path: Path) -> None:
    (tmp_path / "pgvector").write_text("a file where the folder belongs")
    with pytest.raises(ValueError, match=r"config\.json cannot be used") as caught:
        panel.save({"prefetch_limit": 3}, tmp_path)
    assert "saved" not in str(caught.value)


def test_the_status_shows_no_password(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "HERMES_PGVECTOR_DSN=postgresql://me:hunter2@host/db\nHERMES_PGVECTOR_EMBED_URL=http://me:hunter2@host/v1\n"
    )
    shown = panel.status(tmp_path)
    assert shown["database"] == "me@host:5432/db"
    assert shown["embedder"] == "http://host/v1"
    assert "hunter2" not in str(shown)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@host/v1?key=hunter2#hunter2",
        "http://host/v1?key=me@hunter2",
        "http://me:11/hunter2@host/v1",
        "http://me:11?hunter2@host/v1",
        "http://me:11#hunter2@host/v1",
    ],
)
def test_the_status_shows_no_secret_of_an_endpoint(tmp_path: Path, url: str) -> None:
    (tmp_path / ".env").write_text(f"HERMES_PGVECTOR_DSN=host=h\nHERMES_PGVECTOR_EMBED_URL='{url}'\n")
    shown = panel.status(tmp_path)
    assert shown["embedder"] in ("http://host/v1", "http://… (its password or key is not percent-encoded)")
    assert "hunter2" not in str(shown)


@pytest.mark.parametrize("line", ["HERMES_PGVECTOR_POOL_MAX=0", "HERMES_PGVECTOR_DSN=hunter2 is no address"])
def test_the_status_of_wrong_settings_is_the_problem_alone(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(f"{line}\n")
    shown = panel.status(tmp_path)
    assert list(shown) == ["problem"]
    assert line.partition("=")[0] in shown["problem"]
    assert "hunter2" not in shown["problem"]


@pytest.mark.parametrize(
    "deciding",
    ["theme_aliases: {bills: billing}", "bench_themes: [trial-*]", "off_record: true", "recall_mode: tools"],
)
def test_the_identity_changes_with_the_settings_that_decide_on_themes_and_tools(tmp_path: Path, deciding: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("memory: {pgvector: {prefetch_limit: 1}}\n")
    first = panel.identity(tmp_path)
    json.dumps(first)
    config.write_text("memory: {pgvector: {prefetch_limit: 2}}\nother: 1\n")
    assert panel.identity(tmp_path) == first
    config.write_text(f"memory: {{pgvector: {{{deciding}}}}}\n")
    assert panel.identity(tmp_path) != first


def test_the_identity_reads_no_file_that_did_not_change(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("memory: {pgvector: {allowed_themes: [a]}}\n")
    first = panel.identity(tmp_path)
    seen = config.stat()
    # Another text of the same size and time: only who opens the file can see the difference.
    config.write_text("memory: {pgvector: {allowed_themes: [b]}}\n")
    os.utime(config, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert panel.identity(tmp_path) == first


def test_only_the_embedded_server_is_backed_up(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HERMES_PGVECTOR_DSN=postgresql://me@host/db\n")
    assert panel.backups(tmp_path) == []


def test_a_home_without_a_server_has_nothing_to_back_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DATA_DIR", str(tmp_path / "server"))
    assert panel.backups(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
