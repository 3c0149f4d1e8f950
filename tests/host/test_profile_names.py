"""The profile of a home, whose name is its theme, has the name that the host gives it, also where no host is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_memory_pgvector.hosts.environment import profile_name

if TYPE_CHECKING:
    from conftest import Host


def test_the_profile_of_a_home_has_the_name_that_the_host_gives_it(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, other = tmp_path / ".hermes", tmp_path / "data"
    below = ("", "profiles/work", "profiles/Work", "profiles/.work", "profiles/work/below", "elsewhere")
    homes = [root / name for root in (usual, other) for name in below]
    homes += [usual / "elsewhere" / "profiles" / "work", tmp_path / "profiles" / "garden"]
    (tmp_path / "link").symlink_to(usual / "profiles" / "work")
    # Profiles on another disk.
    (tmp_path / "disk").mkdir()
    for root in (usual, other):
        (root / "profiles").mkdir(parents=True)
        (root / "profiles" / "moved").symlink_to(tmp_path / "disk")
    homes += [tmp_path / "link", *(root / "profiles" / "moved" for root in (usual, other))]
    for home in homes:
        home.mkdir(parents=True, exist_ok=True)
    found = host.script("profile_names.py", json.dumps([str(home) for home in homes]), home=tmp_path)
    names = dict(zip(homes, [each["theirs"] for each in found], strict=True))
    assert dict(zip(homes, [each["ours"] for each in found], strict=True)) == names
    assert [names[home] for home in (usual, other, other / "profiles" / "work")] == ["default", "default", "work"]
    # This environment has no host.
    monkeypatch.setenv("HOME", str(tmp_path))
    for home, name in names.items():
        monkeypatch.setenv("HERMES_HOME", str(home))
        assert profile_name(home.resolve()) == name


def test_a_gateway_names_a_profile_on_another_disk_as_its_host_does(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "disk").mkdir()
    for root in (tmp_path / ".hermes", tmp_path / "data"):
        (root / "profiles" / "work").mkdir(parents=True)
        (root / "profiles" / "moved").symlink_to(tmp_path / "disk")
        homes = [root, root / "profiles" / "work", root / "profiles" / "moved"]
        listed = json.dumps([str(home) for home in homes])
        found = host.script("profile_names.py", listed, str(root), home=tmp_path)
        assert [each["theirs"] for each in found] == ["default", "work", "custom"]
        assert [each["ours"] for each in found] == ["default", "work", "custom"]
        monkeypatch.setenv("HERMES_HOME", str(root))
        assert [profile_name(home.resolve()) for home in homes] == ["default", "work", "custom"]
