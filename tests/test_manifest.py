"""What hosts read without running us: plugin.yaml and the panel of settings."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from annotated_types import Ge, Le
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hermes_memory_pgvector
from hermes_memory_pgvector.hosts.config import ENV_PREFIX
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.version import __version__

PACKAGE = Path(hermes_memory_pgvector.__file__ or "").resolve().parent
PROJECT = PACKAGE.parent / "pyproject.toml"
OF_HOSTS = {"agent", "gateway", "hermes_cli", "hermes_constants", "plugins"}
# Their import names differ, so one host would install them anew each time; hosts need both themselves.
LEFT_OUT = {"pyyaml", "python-dotenv"}
# The extras of the environment of CI.
LOCKED = ("embedded", "mcp", "web", "plot", "test", "quality")
KINDS = ("text", "select", "secret", "bool", "number", "json")


@dataclass(frozen=True)
class Option:
    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class Field:
    """As the older of the two hosts has it."""

    key: str
    label: str
    kind: str = "text"
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[Option, ...] = ()
    env_key: str | None = None
    aliases: tuple[str, ...] = ()
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    group: str = ""
    info: str = ""
    scope: str = "host"


@dataclass(frozen=True)
class Panel:
    name: str
    label: str
    storage: str = "flat_json"
    docs_url: str = ""
    fields: tuple[Field, ...] = field(default_factory=tuple)


@pytest.fixture
def panel(monkeypatch: pytest.MonkeyPatch) -> Panel:
    """The panel, run by its path as hosts do."""
    module: Any = types.ModuleType("plugins.memory.config_schema")
    module.ProviderConfigSchema, module.ProviderField, module.ProviderFieldOption = Panel, Field, Option
    for kind in KINDS:
        setattr(module, f"KIND_{kind.upper()}", kind)
    for name in ("plugins", "plugins.memory"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = runpy.run_path(str(PACKAGE / "config_schema.py"))["CONFIG_SCHEMA"]
    assert isinstance(found, Panel)
    return found


def manifest() -> dict[str, Any]:
    document = yaml.safe_load((PACKAGE / "plugin.yaml").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def requirement(text: str) -> tuple[str, str]:
    """Normalised name and extras."""
    name, extras = re.match(r"([\w.-]+)(\[[^]]*\])?", text).groups()  # type: ignore[union-attr]
    return re.sub(r"[-_.]+", "-", name).lower(), extras or ""


def test_every_field_of_the_panel_is_a_setting_with_the_same_words(panel: Panel) -> None:
    assert panel.name == manifest()["name"]
    for shown in panel.fields:
        assert shown.description == Settings.model_fields[shown.key].description, shown.key


def test_every_field_of_the_panel_shows_the_default_of_the_setting(panel: Panel) -> None:
    for shown in panel.fields:
        default = Settings.model_fields[shown.key].get_default(call_default_factory=True)
        match shown.kind:
            case "secret" | "json":
                assert shown.default == "", shown.key
            case "bool":
                assert shown.default == str(default).lower(), shown.key
            case _:
                assert shown.default == str(default), shown.key


def test_numbers_of_the_panel_tell_their_bounds(panel: Panel) -> None:
    numbers = [shown for shown in panel.fields if shown.kind == "number"]
    assert numbers
    for shown in numbers:
        metadata = Settings.model_fields[shown.key].metadata
        least = next(bound.ge for bound in metadata if isinstance(bound, Ge))
        most = next(bound.le for bound in metadata if isinstance(bound, Le))
        assert shown.info == f"{least} to {most}", shown.key


def test_choices_of_the_panel_are_those_of_the_setting(panel: Panel) -> None:
    for shown in panel.fields:
        allowed = get_args(Settings.model_fields[shown.key].annotation) if shown.kind == "select" else ()
        assert tuple(option.value for option in shown.options) == allowed, shown.key


def test_secrets_of_the_panel_go_where_settings_are_read(panel: Panel) -> None:
    secrets = [shown for shown in panel.fields if shown.kind == "secret"]
    assert {shown.key for shown in secrets} == {"dsn"}
    for shown in panel.fields:
        assert shown.env_key == (f"{ENV_PREFIX}{shown.key.upper()}" if shown.kind == "secret" else None)


def test_the_manifest_has_the_version_of_the_package() -> None:
    assert manifest()["version"] == __version__


def test_the_manifest_names_the_dependencies_of_the_project() -> None:
    with PROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = {requirement(text) for text in project["dependencies"]}
    assert {requirement(text) for text in manifest()["pip_dependencies"]} == {
        (name, extras) for name, extras in wanted if name not in LEFT_OUT
    }
    assert {name for name, _ in wanted} >= LEFT_OUT


def test_the_manifest_repeats_the_versions_of_the_dependencies_for_the_host_that_compares_them() -> None:
    assert manifest()["python_dependencies"] == tomllib.loads(PROJECT.read_text())["project"]["dependencies"]


def test_the_manifest_admits_the_oldest_host_of_the_tests_and_none_before() -> None:
    hosts = (PROJECT.parent / "scripts" / "environment").read_text()
    oldest = min(tuple(map(int, found.split("."))) for found in re.findall(r"hermes-agent\S*==(\d+\.\d+)", hosts))
    assert manifest()["requires_hermes"] == f">={'.'.join(map(str, oldest))}"


def test_what_the_package_imports_it_depends_on() -> None:
    """Another dependency may bring a library today, and no more tomorrow."""
    with PROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    optional = ("embedded", "mcp", "completion", "web", "plot")
    texts = [*project["dependencies"], *(text for extra in optional for text in extras[extra])]
    declared = {requirement(text)[0] for text in texts}
    distributions = packages_distributions()
    imported = {name for path in PACKAGE.rglob("*.py") for name in imports(path)}
    brought = {requirement(one)[0] for name in imported for one in distributions.get(name, [])}
    assert brought <= declared
    assert brought >= {"numpy", "httpx", "psycopg"}
    assert {name for name in imported if name not in distributions} <= sys.stdlib_module_names | OF_HOSTS


def imports(path: Path) -> Iterator[str]:
    """The first names of what a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_every_dependency_is_written_so_that_a_host_can_find_it_installed() -> None:
    for text in manifest()["pip_dependencies"]:
        __import__(text.replace("-", "_").split("[")[0])


def test_every_dependency_has_an_upper_bound_and_one_locked_version_within_it() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = [Requirement(text) for text in project["dependencies"]]
    extras = {name: [Requirement(text) for text in texts] for name, texts in project["optional-dependencies"].items()}
    for each in (*wanted, *(each for extra in extras.values() for each in extra)):
        assert any(bound.operator in ("<", "==") for bound in each.specifier), each
    text = (PROJECT.parent / ".ci" / "lock.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("--hash=sha256:" in line for line in lines)
    versions = {canonicalize_name(line.split("==")[0]): line.split("==")[1].split()[0] for line in lines}
    for each in (*wanted, *(each for name in LOCKED for each in extras[name])):
        assert versions[canonicalize_name(each.name)] in each.specifier, each


def test_the_manifest_keeps_hosts_from_making_an_environment_of_their_own() -> None:
    assert manifest()["python_runtime"] == "external"
    assert "hooks" not in manifest()


def test_every_folder_of_the_package_is_in_the_wheel() -> None:
    files = [path for suffix in ("py", "sql") for path in PACKAGE.rglob(f"*.{suffix}")]
    folders = {".".join(("hermes_memory_pgvector", *path.parent.relative_to(PACKAGE).parts)) for path in files}
    listed = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted({*folders, "hermes_memory_pgvector.migrations"})
