"""The two real hosts, each in a virtual environment that is made once, and homes for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostrig.model import ModelEndpoint
from loopback import Endpoint

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 60


@dataclass(frozen=True)
class Host:
    """A host and the Python that it is run with. `name` is `a` (hermes-agent) or `b` (its fork)."""

    name: str
    python: Path

    def run(
        self, command: str, *arguments: str, home: Path, dsn: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in a home, without the settings of the developer."""
        settings = {"HERMES_PGVECTOR_DSN": dsn} if dsn else {}
        return subprocess.run(
            [self.python.with_name(command), *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S_MAX, cwd=home,
            env={
                "PATH": f"{self.python.parent}:{os.environ['PATH']}", "HOME": str(home), "HERMES_HOME": str(home),
                "NO_COLOR": "1", "COLUMNS": "200", **settings, **environment,
            },
        )  # fmt: skip

    def script(self, name: str, *arguments: str, home: Path, **more: str) -> dict[str, Any]:
        """Run a script of this folder in the host's Python and return the JSON on its last line."""
        done = self.run("python", str(Path(__file__).with_name(name)), *arguments, home=home, **more)
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


@pytest.fixture(scope="session", params=["a", "b"], ids=lambda name: f"host-{name}")
def host(request: pytest.FixtureRequest) -> Host:
    """A host whose environment holds this package as an editable installation."""
    return _host_named(request.param)


def _host_named(name: str) -> Host:
    """The host `a` or `b`, whose environment is made if need be."""
    made = subprocess.run([ROOT / "scripts" / "environment", f"host-{name}"], capture_output=True, text=True)
    if made.returncode:
        pytest.fail(f"the environment of the host cannot be made: {made.stderr}")
    return Host(name, Path(made.stdout.strip()))


@pytest.fixture(scope="session")
def bare_host(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The same host with everything that it needs, without this package."""
    return _layer(host, tmp_path_factory.mktemp(f"bare-{host.name}"))


@pytest.fixture(scope="session")
def wheel_host(host: Host, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The same host with this package as a wheel."""
    layer = _layer(host, tmp_path_factory.mktemp(f"wheel-{host.name}"))
    _pip(host, "--python", str(layer.python), "install", "--no-deps", "--no-index", str(wheel))
    return layer


@pytest.fixture
def users_host(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The same host without this package, as a user has it: with programs `hermes` and `pip`, which change only it."""
    return _environment_of_user(host, tmp_path_factory.mktemp(f"users-{host.name}"))


@pytest.fixture
def make_environment() -> Callable[..., Host]:
    """`make_environment(host, folder, without=())`: such an environment in a folder, without some packages."""
    return _environment_of_user


@pytest.fixture
def newer_host() -> Host:
    """Host B, as what host A is upgraded to."""
    return _host_named("b")


def _environment_of_user(host: Host, folder: Path, *, without: Collection[str] = ()) -> Host:
    """Make such an environment in a folder. It also lacks the packages whose names begin with one of `without`."""
    layer = _layer(host, folder, without)
    for name in ("hermes", "pip"):
        program = layer.python.with_name(name)
        program.write_text(host.python.with_name(name).read_text().replace(str(host.python), str(layer.python)))
        program.chmod(0o755)
    return layer


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that the package is built from: the build leaves folders behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("pgvector", "migrations"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this package, from a clone in which an earlier release was built."""
    built = tmp_path_factory.mktemp("wheel")
    earlier = source / "build" / "lib" / "hermes_memory_pgvector"
    (earlier / "store" / "sql").mkdir(parents=True, exist_ok=True)
    for name in ("recall.py", "store/sql/earlier.sql"):
        (earlier / name).touch()
    _pip(_host_named("a"), "wheel", "--no-deps", "--wheel-dir", str(built), str(source))
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture
def model() -> Iterator[ModelEndpoint]:
    endpoint = ModelEndpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def embedder() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def outdoors() -> Iterator[Path]:
    """A folder that the account of root's embedded server can reach."""
    folder = Path(tempfile.mkdtemp(prefix="hpg", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A HERMES_HOME that names this provider and has no plugin yet."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("memory:\n  provider: pgvector\n")
    return tmp_path / "home"


def _layer(host: Host, folder: Path, without: Collection[str] = ()) -> Host:
    """An environment that sees the packages of the host, but not those that it has as editable ones, nor `without`."""
    subprocess.run([host.python, "-m", "venv", "--without-pip", folder], check=True, timeout=RUN_S_MAX)
    (own,) = folder.glob("lib/python*/site-packages")
    (theirs,) = host.python.parents[1].glob("lib/python*/site-packages")
    if without:
        # A host adds the real folder of its own packages to the path, so links to folders would bring all of them back.
        copy = folder / "packages"
        ignored = [f"{name}*" for name in (*without, "__editable__", "hermes_memory_pgvector")]
        shutil.copytree(theirs, copy, ignore=shutil.ignore_patterns(*ignored), copy_function=_link_or_copy)
        theirs = copy
    # Python reads .pth files only in the folders of the environment itself, and an editable installation is one.
    (own / "host.pth").write_text(f"{theirs}\n")
    return Host(host.name, folder / "bin" / "python")


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _pip(host: Host, *arguments: str) -> None:
    done = subprocess.run(
        [host.python, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True, text=True, timeout=300, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
