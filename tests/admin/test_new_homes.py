"""Homes that this release begins keep their themes apart; those of earlier releases go on as they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commandline import Outcome, hermes_pgvector

from hermes_memory_pgvector.admin import configuration
from hermes_memory_pgvector.admin.doctor import themes
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.settings import Settings, load
from hermes_memory_pgvector.tools.schemas import schemas

DATA = Path(__file__).parent.parent / "data"
SETTING = "cross_theme_recall"


def peer(home: Path) -> None:
    (home / "config.yaml").write_text("plugins: {pgvector: {dsn: 'postgresql://db/memory'}}\n")


def saved(home: Path) -> None:
    (home / "pgvector").mkdir()
    (home / "pgvector" / "config.json").write_text('{"prefetch_limit": 3}')


EARLIER: dict[str, Callable[[Path], object]] = {
    "of 2.0.0": lambda home: shutil.copytree(DATA / "home-2.0.0", home, dirs_exist_ok=True),
    "of 1.0": peer,
    "set up and never started": saved,
}


def run(home: Path, *arguments: str) -> Outcome:
    return hermes_pgvector("--home", str(home), *arguments)


def rule(home: Path) -> object:
    return load(home, {}).cross_theme_recall


@pytest.mark.parametrize("begin", ["start", "settings"])
def test_a_new_home_keeps_its_themes_apart_at_its_first_start_and_later(tmp_path: Path, begin: str) -> None:
    assert rule(tmp_path) == "none"
    if begin == "start":
        assert Home(tmp_path).id
    else:
        configuration.write_config(tmp_path, {"prefetch_limit": 3})
        assert Home(tmp_path).id
    assert rule(tmp_path) == "none"
    (tmp_path / "config.yaml").write_text("memory: {pgvector: {tools: all}}\n")
    assert rule(tmp_path) == "none"
    assert themes.readable(load(tmp_path, {}), tmp_path).verdict == "ok"


@pytest.mark.parametrize("made", EARLIER.values(), ids=EARLIER)
def test_a_home_of_an_earlier_release_goes_on_until_somebody_decides(
    tmp_path: Path, made: Callable[[Path], object]
) -> None:
    made(tmp_path)
    assert rule(tmp_path) == "all"
    assert Home(tmp_path).id
    assert rule(tmp_path) == "all"
    check = themes.readable(load(tmp_path, {}), tmp_path)
    assert (check.verdict, check.remedy) == ("warning", f"hermes-pgvector settings set {SETTING} none")
    listed = {each["key"]: each for each in run(tmp_path, "--json", "settings", "list", "--all").document}
    assert listed[SETTING]["from"] == "default of earlier releases"
    assert run(tmp_path, *check.remedy.split()[1:]).code == 0
    assert rule(tmp_path) == "none"
    assert themes.readable(load(tmp_path, {}), tmp_path).verdict == "ok"
    # The home does not become a new one.
    assert run(tmp_path, "settings", "unset", SETTING).code == 0
    assert rule(tmp_path) == "all"


@pytest.mark.parametrize("made", [lambda home: None, *EARLIER.values()], ids=["new", *EARLIER])
@pytest.mark.parametrize("value", ["all", "none", {"ops": ["house"]}])
def test_an_explicit_value_counts_in_every_home(tmp_path: Path, made: Callable[[Path], object], value: object) -> None:
    made(tmp_path)
    variable = {"HERMES_PGVECTOR_CROSS_THEME_RECALL": value if isinstance(value, str) else json.dumps(value)}
    assert load(tmp_path, variable).cross_theme_recall == value
    assert Home(tmp_path).id
    assert load(tmp_path, variable).cross_theme_recall == value


def test_what_an_earlier_home_may_read_is_not_copied_to_others(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    saved(old)
    assert run(old, "settings", "copy", "--to", str(new), "--yes").code == 0
    assert (load(new, {}).prefetch_limit, rule(new), rule(old)) == (3, "none", "all")


def test_the_tools_say_which_scopes_there_are() -> None:
    def told(**changed: object) -> set[str]:
        settings = Settings(**changed)  # type: ignore[arg-type]
        return {each["parameters"]["properties"]["scope"]["description"] for each in schemas(settings)}

    (alone,), (beside,), (every,) = told(), told(also_recall={"ops": ["house"]}), told(cross_theme_recall="all")
    assert alone.endswith("no other theme may be read")
    assert beside.endswith("the name of a theme that is read with this one")
    assert "all: every theme that may be read" in every
