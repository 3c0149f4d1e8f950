from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dotenv import load_dotenv
from pydantic import ValidationError

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.hosts.config import ENV_PREFIX, environment
from hermes_memory_pgvector.settings import Settings, load
from hermes_memory_pgvector.store.connection.dsn import unusable

# Lowest first: each writes a value of `pool_max` to the place where that layer is read from.
LAYERS: dict[str, Callable[[Path, dict[str, str], int], None]] = {
    "plugins.pgvector": lambda home, env, value: add_yaml(home, "plugins", {"pool_max": value}),
    "config.json": lambda home, env, value: write_json(home, {"pool_max": value}),
    "memory.pgvector": lambda home, env, value: add_yaml(home, "memory", {"pool_max": value}),
    ".env": lambda home, env, value: write_env(home, f"HERMES_PGVECTOR_POOL_MAX={value}\n"),
    "environment": lambda home, env, value: env.update(HERMES_PGVECTOR_POOL_MAX=str(value)),
}


def add_yaml(home: Path, section: str, values: dict[str, Any]) -> None:
    # JSON is YAML, too.
    path = home / "config.yaml"
    document = json.loads(path.read_text()) if path.exists() else {"model": {"default": "x"}}
    document[section] = {"provider": "pgvector", "pgvector": values}
    path.write_text(json.dumps(document))


def write_json(home: Path, values: Any) -> None:
    (home / "pgvector").mkdir(exist_ok=True)
    (home / "pgvector" / "config.json").write_text(json.dumps(values))


def write_env(home: Path, text: str) -> None:
    (home / ".env").write_text(text)


def message(home: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(home, environ or {})
    return str(caught.value)


MANUAL = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
LIMITS = re.findall(r"^\| `(\w+)` \|.*\| (-?[\d.,]+) to ([\d.,]+) \|", MANUAL.read_text(), re.MULTILINE)


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(("key", "lowest", "highest"), LIMITS)
def test_a_number_is_accepted_within_the_limits_in_the_manual_only(key: str, lowest: str, highest: str) -> None:
    for within in (number(lowest), number(highest)):
        assert getattr(Settings.model_validate({key: within}), key) == within
    for outside in (number(lowest) - 1, number(highest) + 1):
        with pytest.raises(ValidationError):
            Settings.model_validate({key: outside})


def test_without_any_layer_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path, {}).model_dump() == Settings().model_dump()
    assert load(tmp_path / "nowhere", {}).model_dump() == Settings().model_dump()


@pytest.mark.parametrize("highest", range(len(LAYERS)))
def test_a_higher_layer_wins_over_all_lower_ones(tmp_path: Path, highest: int) -> None:
    environ: dict[str, str] = {}
    for value, write in enumerate(list(LAYERS.values())[: highest + 1], start=4):
        write(tmp_path, environ, value)
    assert load(tmp_path, environ).pool_max == 4 + highest


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_alone_is_enough(tmp_path: Path, layer: str) -> None:
    environ: dict[str, str] = {}
    LAYERS[layer](tmp_path, environ, 7)
    assert load(tmp_path, environ).pool_max == 7


def test_layers_are_merged_key_by_key(tmp_path: Path) -> None:
    add_yaml(tmp_path, "plugins", {"pool_max": 4, "batch_max": 5, "prefetch_limit": 6})
    write_json(tmp_path, {"batch_max": 7})
    settings = load(tmp_path, {"HERMES_PGVECTOR_PREFETCH_LIMIT": "8"})
    assert (settings.pool_max, settings.batch_max, settings.prefetch_limit) == (4, 7, 8)


def test_an_empty_value_means_unset(tmp_path: Path) -> None:
    add_yaml(tmp_path, "plugins", {"pool_max": 4, "batch_max": None})
    write_env(tmp_path, "HERMES_PGVECTOR_POOL_MAX=\n")
    settings = load(tmp_path, {"HERMES_PGVECTOR_POOL_MAX": ""})
    assert (settings.pool_max, settings.batch_max) == (4, Settings().batch_max)
    write_env(tmp_path, "HERMES_PGVECTOR_POOL_MAX=9\n")
    assert load(tmp_path, {"HERMES_PGVECTOR_POOL_MAX": ""}).pool_max == 9


def test_a_home_does_not_have_what_its_gateway_took_from_the_env_file_of_another_home(tmp_path: Path) -> None:
    """A gateway of several profiles has the `.env` of its own home in its environment."""
    gateway, work = tmp_path / "gateway", tmp_path / "work"
    for home in (gateway, work):
        home.mkdir()
    write_env(gateway, "HERMES_PGVECTOR_EMBED_MODEL=of-gateway\nHERMES_PGVECTOR_PERSON_KEY=k1\nTHE_KEY=1\n")
    environ = {
        "HERMES_HOME": str(gateway), "HERMES_PGVECTOR_EMBED_MODEL": "of-gateway", "HERMES_PGVECTOR_PERSON_KEY": "k1",
        "HERMES_PGVECTOR_POOL_MAX": "7", "THE_KEY": "1",
    }  # fmt: skip
    assert load(gateway, environ).embed_model == "of-gateway"
    assert load(work, environ).embed_model == ""
    # What somebody has exported holds for all of them.
    assert load(work, environ).pool_max == 7
    assert environment(work, environ).get("HERMES_PGVECTOR_PERSON_KEY") is None
    write_env(work, "HERMES_PGVECTOR_EMBED_MODEL=of-work\nHERMES_PGVECTOR_POOL_MAX=8\nTHE_KEY=2\n")
    assert (load(work, environ).embed_model, load(work, environ).pool_max) == ("of-work", 7)
    assert environment(work, environ)["THE_KEY"] == "2"


def test_a_gateway_has_the_env_file_of_its_start_and_other_homes_have_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts resolve `${…}` in the file, and read it once when they serve several profiles."""
    monkeypatch.setitem(sys.modules, "gateway.run", SimpleNamespace(_gateway_runner_ref=object))
    gateway, work = tmp_path / "gateway", tmp_path / "work"
    for home in (gateway, work):
        home.mkdir()
    write_env(gateway, "HERMES_PGVECTOR_EMBED_MODEL=first\nHERMES_PGVECTOR_EMBED_URL=http://${NODE}:1\n")
    environ = {
        "HERMES_HOME": str(gateway), "HERMES_PGVECTOR_EMBED_MODEL": "first", "NODE": "n1", "THE_KEY": "exported",
        "HERMES_PGVECTOR_EMBED_URL": "http://n1:1",
    }  # fmt: skip
    assert load(gateway, environ).embed_url == "http://n1:1"
    for changed in ("HERMES_PGVECTOR_EMBED_MODEL=second\n", ""):
        write_env(gateway, changed)
        assert (load(work, environ).embed_model, load(work, environ).embed_url) == ("", "")
    assert environment(work, environ)["THE_KEY"] == "exported"


def test_the_key_of_a_home_is_that_of_its_own_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "gateway"))
    monkeypatch.setenv("THE_KEY", "of-gateway")
    for name in ("gateway", "work"):
        (tmp_path / name).mkdir()
        write_env(tmp_path / name, f"THE_KEY=of-{name}\n")
    assert load(tmp_path / "work").key_in("THE_KEY") == "of-work"
    (tmp_path / "work" / ".env").unlink()
    assert load(tmp_path / "work").key_in("THE_KEY") == ""
    assert load(tmp_path / "gateway").key_in("THE_KEY") == Settings().key_in("THE_KEY") == "of-gateway"


def test_an_env_file_is_taken_as_it_stands(tmp_path: Path) -> None:
    write_env(
        tmp_path,
        "# a comment\nOTHER=x\nexport HERMES_PGVECTOR_EMBED_MODEL='my model'\n"
        "HERMES_PGVECTOR_DSN=postgresql://u:pa$HOME$$w@h/d\n",
    )
    settings = load(tmp_path, {})
    assert settings.embed_model == "my model"
    assert settings.dsn.get_secret_value() == "postgresql://u:pa$HOME$$w@h/d"


def test_unknown_keys_and_foreign_sections_are_ignored(tmp_path: Path) -> None:
    write_json(tmp_path, {"unknown": 1, "pool_max": 5})
    (tmp_path / "config.yaml").write_text("memory: [1, 2]\nplugins: text\n")
    assert load(tmp_path, {"HERMES_PGVECTOR_NO_SUCH_KEY": "1", "HERMES_HOME": "x"}).pool_max == 5


@pytest.mark.parametrize("section", ["memory", "plugins"])
@pytest.mark.parametrize("written", ["[{keep: owner}]", "'keep: owner'", "false"])
def test_rules_in_a_section_of_another_form_are_not_ignored(tmp_path: Path, section: str, written: str) -> None:
    (tmp_path / "config.yaml").write_text(f"{section}: {{pgvector: {written}}}\n")
    assert f"{section}.pgvector" in message(tmp_path)


def test_lists_and_mappings_come_from_the_environment_as_json(tmp_path: Path) -> None:
    environ = {
        "HERMES_PGVECTOR_ALLOWED_THEMES": '["ops", "billing"]',
        "HERMES_PGVECTOR_THEME_ALIASES": '{"operations": "ops"}',
        "HERMES_PGVECTOR_CROSS_THEME_RECALL": '{"ops": ["billing"]}',
    }
    settings = load(tmp_path, environ)
    assert settings.allowed_themes == ["ops", "billing"]
    assert settings.theme_aliases == {"operations": "ops"}
    assert settings.cross_theme_recall == {"ops": ["billing"]}
    assert load(tmp_path, {"HERMES_PGVECTOR_CROSS_THEME_RECALL": "none"}).cross_theme_recall == "none"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("no", False), ("False", False)])
def test_switches_come_from_the_environment_as_words(tmp_path: Path, text: str, value: bool) -> None:
    assert load(tmp_path, {"HERMES_PGVECTOR_SPOOL_FSYNC": text}).spool_fsync is value


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("pool_max", "0", "greater than or equal to 2"),
        ("pool_max", "many", "valid integer"),
        ("prefetch_budget_s", "99", "less than or equal to 7"),
        ("embed_url", "localhost:11434", "must start with http:// or https://"),
        ("embed_api", "grpc", "'auto', 'openai' or 'ollama'"),
        ("scope_default", "mine", "'current', 'session' or 'all'"),
        ("sync_turns", "perhaps", "must be true or false"),
        ("allowed_themes", "ops,billing", "valid list"),
        ("allowed_themes", '["ops"', "not valid JSON"),
        ("theme_aliases", '["ops"]', "valid dictionary"),
        ("cross_theme_recall", "some", "'all' or 'none'"),
        ("min_similarity", "2", "less than or equal to 1"),
    ],
)
def test_a_bad_value_is_reported_with_its_key_and_the_allowed_values(
    tmp_path: Path, key: str, value: str, allowed: str
) -> None:
    told = message(tmp_path, {f"{ENV_PREFIX}{key.upper()}": value})
    assert f"{ENV_PREFIX}{key.upper()}" in told
    assert value in told
    assert allowed in told


@pytest.mark.parametrize("layer", ["plugins.pgvector", "config.json", "memory.pgvector"])
def test_a_bad_value_is_reported_with_its_source(tmp_path: Path, layer: str) -> None:
    LAYERS[layer](tmp_path, {}, 1000)
    told = message(tmp_path)
    assert "pool_max in" in told
    assert layer in told
    assert "1000" in told


def test_all_bad_values_are_reported_at_once(tmp_path: Path) -> None:
    told = message(tmp_path, {"HERMES_PGVECTOR_POOL_MAX": "0", "HERMES_PGVECTOR_BATCH_MAX": "-3"})
    assert "POOL_MAX is '0'" in told
    assert "BATCH_MAX is '-3'" in told


def test_a_long_bad_value_is_cut(tmp_path: Path) -> None:
    assert len(message(tmp_path, {"HERMES_PGVECTOR_EMBED_API": "x" * 100_000})) < 500


@pytest.mark.parametrize("key", ["dsn", "recall_dsn"])
def test_the_dsn_is_never_shown(tmp_path: Path, key: str) -> None:
    add_yaml(tmp_path, "memory", {key: ["postgresql://u:hunter2@h/d"]})
    told = message(tmp_path)
    assert f"{key} in memory.pgvector is (hidden)" in told
    assert "hunter2" not in told
    environ = {f"HERMES_PGVECTOR_{key.upper()}": "postgresql://u:hunter2@h/d"}
    assert "hunter2" not in message(tmp_path, {**environ, "HERMES_PGVECTOR_POOL_MAX": "0"})
    settings = load(tmp_path / "nowhere", environ)
    for shown in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump())):
        assert "hunter2" not in shown


@pytest.mark.parametrize("key", ["spool_dir", "data_dir"])
@pytest.mark.parametrize("folder", ["spool", "./spool", "~nobody-of-this-name/spool"])
def test_a_relative_folder_is_refused(tmp_path: Path, key: str, folder: str) -> None:
    name = f"HERMES_PGVECTOR_{key.upper()}"
    told = message(tmp_path, {name: folder})
    assert told.startswith(f"{name} is {folder!r}: ")
    assert "must be an absolute path" in told
    assert getattr(load(tmp_path, {name: "~/spool"}), key) == "~/spool"


@pytest.mark.parametrize("secret", ["user:hunter2@host/v1", "user:a/hunter2@host/v1", "host/v1?key=hunter2"])
def test_a_secret_in_a_wrong_url_is_not_shown(tmp_path: Path, secret: str) -> None:
    told = message(tmp_path, {"HERMES_PGVECTOR_EMBED_URL": f"ftp://{secret}"})
    assert "hunter2" not in told
    assert "host/v1" in told


DEEP = pytest.param(b"[" * 100_000, id="nested too deep")
DEEP_LISTS = pytest.param(b"- " * 100_000, id="lists nested too deep")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[1]", b'"text"', DEEP])
def test_a_json_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pgvector").mkdir()
    (tmp_path / "pgvector" / "config.json").write_bytes(content)
    assert "config.json" in message(tmp_path)


def test_a_folder_in_the_place_of_the_json_file_is_named(tmp_path: Path) -> None:
    """A container makes one when it mounts a file that is not there."""
    (tmp_path / "pgvector" / "config.json").mkdir(parents=True)
    assert "config.json cannot be read: IsADirectoryError" in message(tmp_path)


BAD_YAML = [b"a: [", b"\xff\xff", b"a: b: c", b"{hunter2: [", b"hunter2: 2026-13-45", b"a: 0b_", DEEP, DEEP_LISTS]


@pytest.mark.parametrize("content", BAD_YAML)
def test_a_yaml_file_that_cannot_be_read_is_named_without_its_content(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    told = message(tmp_path)
    assert "config.yaml" in told
    assert "hunter2" not in told


def test_variables_in_an_env_file_are_filled_in_as_hosts_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text(
        "DB_PASSWORD=of-the-file\n"
        'HERMES_PGVECTOR_DSN="postgresql://me:${DB_PASSWORD}@${DB_HOST}/${DB_NAME:-memory}"\n'
        "HERMES_PGVECTOR_HOME_LABEL='${NOWHERE}$5'\n"
    )
    monkeypatch.setenv("DB_PASSWORD", "exported")
    monkeypatch.setenv("DB_HOST", "db.example")
    settings = load(tmp_path)
    assert settings.dsn.get_secret_value() == "postgresql://me:of-the-file@db.example/memory"
    assert settings.home_label == "$5"
    with monkeypatch.context() as patch:
        for name in ("HERMES_PGVECTOR_DSN", "HERMES_PGVECTOR_HOME_LABEL"):
            patch.setenv(name, "")
        load_dotenv(tmp_path / ".env", override=True)
        assert os.environ["HERMES_PGVECTOR_DSN"] == settings.dsn.get_secret_value()
        assert os.environ["HERMES_PGVECTOR_HOME_LABEL"] == settings.home_label


def test_an_env_file_in_latin_1_is_read_as_hosts_read_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"# caf\xe9\nHERMES_PGVECTOR_EMBED_MODEL=caf\xe9\n")
    assert load(tmp_path).embed_model == "caf\xe9"


def test_an_env_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes("HERMES_PGVECTOR_DSN=caf\xe9\n".encode("utf-16"))
    told = message(tmp_path)
    assert ".env" in told
    assert "caf" not in told


def test_settings_are_frozen_and_every_one_is_described() -> None:
    with pytest.raises(ValidationError):
        Settings().pool_max = 5  # type: ignore[misc]
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.strip() == field.description


def test_every_default_passes_its_own_check() -> None:
    defaults = {name: field.get_default(call_default_factory=True) for name, field in Settings.model_fields.items()}
    assert Settings(**defaults) == Settings()


@pytest.mark.parametrize(
    ("dsn", "recall_dsn", "told"),
    [
        ("host=a dbname=m", "host=b,c dbname=m target_session_attrs=standby", ""),
        ("host=a dbname=m", "postgresql://u:p@ss/word@h/m", "HERMES_PGVECTOR_RECALL_DSN is not a connection string"),
        ("host=a dbname=m", "host=b dbname=m options='-c jit=off'", "HERMES_PGVECTOR_RECALL_DSN holds `options=`"),
        ("", "host=b dbname=m", "the embedded server has no standby"),
    ],
)
def test_the_address_of_the_standby_is_checked_as_that_of_the_primary(dsn: str, recall_dsn: str, told: str) -> None:
    why = unusable(Settings(dsn=dsn, recall_dsn=recall_dsn))  # type: ignore[arg-type]
    assert told in why
    assert bool(why) == bool(told)
