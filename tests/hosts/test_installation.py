"""The command that gets this package tells the place that it came from, never its name alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from hermes_memory_pgvector.hosts import installation


class Installed:
    """A distribution as pip leaves it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return json.dumps({"url": self._url}) if self._url else None


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
    monkeypatch.setattr(installation, "__file__", str(folder / "hermes_memory_pgvector" / "hosts" / "installation.py"))
    monkeypatch.setattr("importlib.metadata.distribution", lambda _name: Installed(url))


def test_the_source_of_a_clone_is_the_clone() -> None:
    root = Path(__file__).resolve().parents[2]
    assert shlex.split(installation.pip_install("embedded")) == ["pip", "install", f"{root}[embedded]"]


def test_the_source_of_an_installed_package_is_the_folder_of_pip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    install(monkeypatch, tmp_path, clone.as_uri())
    assert shlex.split(installation.pip_install()) == ["pip", "install", str(clone)]
    there = ["/opt/hermes/bin/python", "-m", "pip", "install", f"{clone}[embedded]"]
    assert shlex.split(installation.pip_install("embedded", there[0])) == there


@pytest.mark.parametrize("url", ["", "file:///gone", "git+https://example.org/x.git"])
def test_without_a_source_the_command_names_the_readme(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    install(monkeypatch, tmp_path, url)
    assert installation.pip_install("embedded") == f"pip install '.[embedded]', {installation.UNKNOWN}"


@pytest.mark.parametrize(("module", "told"), [("hermes_pgvector", "1.0.0"), ("hermes_memory_pgvector", "")])
def test_the_other_project_of_the_same_name_is_told_from_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, told: str
) -> None:
    described = tmp_path / "hermes_memory_pgvector-1.0.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-memory-pgvector\nVersion: 1.0.0\n")
    (described / "entry_points.txt").write_text(f"[hermes_agent.memory_providers]\npgvector = {module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installation.namesake() == told
