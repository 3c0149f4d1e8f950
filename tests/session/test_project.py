"""The project of a folder, against real git; the program itself runs without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.session.project import FOLDERS_MAX, NAME_FILE, project_of
from hermes_memory_pgvector.session.themes import templated_theme
from hermes_memory_pgvector.settings import Settings, load
from hermes_memory_pgvector.text.theme_names import DEFAULT_THEME, THEME_CHARS_MAX, reserved, segment


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "Beehive"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
    return folder


def test_a_folder_of_a_checkout_belongs_to_the_repository(checkout: Path) -> None:
    deep = checkout / "src" / "comb"
    deep.mkdir(parents=True)
    assert project_of(checkout) == project_of(deep) == "Beehive"
    assert project_of(checkout.parent) == ""
    assert project_of(None) == ""


def test_all_work_trees_of_a_repository_are_one_project(checkout: Path) -> None:
    git(checkout, "worktree", "add", "-q", "../swarm", "-b", "swarm")
    assert project_of(checkout.parent / "swarm") == "Beehive"


def test_a_bare_repository_is_named_without_its_ending_and_a_submodule_by_itself(checkout: Path) -> None:
    git(checkout.parent, "clone", "-q", "--bare", "Beehive", "honey.git")
    git(checkout.parent / "honey.git", "worktree", "add", "-q", "../jar", "-b", "jar")
    assert project_of(checkout.parent / "jar") == "honey"
    git(checkout, "submodule", "add", "-q", str(checkout.parent / "honey.git"), "smoker")
    assert project_of(checkout / "smoker") == "smoker"


def test_the_name_in_the_file_is_kept_when_the_checkout_is_moved_or_renamed(checkout: Path) -> None:
    (checkout / NAME_FILE).write_text("apiary\nthe rest is ignored\n")
    moved = checkout.rename(checkout.parent / "elsewhere")
    assert project_of(moved) == "apiary"
    (moved / NAME_FILE).unlink()
    assert project_of(moved) == "elsewhere"


def test_the_search_ends_after_a_bounded_number_of_folders(checkout: Path) -> None:
    deep = checkout.joinpath(*["d"] * FOLDERS_MAX)
    assert project_of(deep) == ""
    assert project_of(deep.parent) == "Beehive"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda git_path: git_path.write_bytes(b"\0\xff" * 5000),
        lambda git_path: git_path.write_text("gitdir: \0nowhere"),
        lambda git_path: git_path.write_text("gitdir:\n"),
        lambda git_path: git_path.symlink_to(git_path),
        lambda git_path: (git_path.write_text("gitdir: loop"), (git_path.parent / "loop").symlink_to("loop")),
        lambda git_path: git_path.mkdir(),
        lambda git_path: os.mkfifo(git_path),
    ],
    ids=["bytes", "NUL", "empty", "loop", "named loop", "empty folder", "pipe"],
)  # fmt: skip
def test_a_broken_git_folder_is_no_project_and_blocks_nothing(tmp_path: Path, spoil: object) -> None:
    spoil(tmp_path / ".git")  # type: ignore[operator]
    assert project_of(tmp_path) == ""
    os.mkfifo(tmp_path / NAME_FILE)
    assert project_of(tmp_path) == ""


def theme(template: str, project: str = "", **settings: object) -> str:
    identity = Identity(agent_identity="Work", platform="cli", project=project)
    return templated_theme(identity, Settings(theme_template=template, **settings))


def test_a_template_is_filled_in_with_normalised_values() -> None:
    assert theme("{profile}/{project}@{platform}", "Bee  Hive/One:Two") == "work/bee-hive-one-two@cli"
    assert theme("{project}", "Beehive") == "beehive"
    assert theme("team") == "team"
    assert theme("{project}", "beehive", theme_aliases={"beehive": "apiary"}) == "apiary"


@pytest.mark.parametrize("project", ["", " \u200b", "///", ".."])
def test_without_a_project_the_theme_is_that_of_the_home(project: str) -> None:
    assert theme("", project) == theme("project/{project}", project) == "work"


@pytest.mark.parametrize("name", ["default", " ＤＥＦＡＵＬＴ", "shared", "SHA\u200bRED", "common", "company"])
def test_a_project_does_not_take_the_name_of_a_theme_that_others_read_or_write(name: str) -> None:
    found = theme("{project}", name, also_recall={"*": ["shared"]}, also_write={"ops": ["Common"]},
                  theme_aliases={"shared": "company"})  # fmt: skip
    assert found == f"project-{segment(name)}"


@given(st.text(alphabet=st.characters(exclude_categories=())), st.sampled_from(["{project}", "dm-x-{project}"]))
def test_no_project_has_a_reserved_name_and_every_name_is_bounded(name: str, template: str) -> None:
    for project in (name, "0123456789abcdef", "dm-telegram-0123456789abcdef"):
        found = theme(template, project)
        assert not reserved(found)
        assert found != DEFAULT_THEME
        assert 1 <= len(found) <= THEME_CHARS_MAX
        assert len(segment(project)) <= 64
        assert not set("/:{}") & set(segment(project))
    assert segment(f"{name}a" * 40) != segment(f"{name}a" * 41)


@pytest.mark.parametrize("template", ["{projekt}", "{project", "{project.__class__}", "}", "{}", "{0}"])
def test_a_template_with_another_name_in_braces_is_refused(template: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"THEME_TEMPLATE.*\{project\}, \{profile\} and \{platform\}"):
        load(tmp_path, {"HERMES_PGVECTOR_THEME_TEMPLATE": template})
