"""A host with its own home: the real `hermes` command, configured for our model and our memory only."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from hostrig import forks
from hostrig.chat import Chat
from hostrig.gateway import Gateway
from hostrig.model import NAME, ModelEndpoint

ASK_S_MAX = 90
# Tools that no scenario uses.
TOOLSETS_OFF = [
    "browser", "code_execution", "file", "image_gen", "messaging", "skills", "terminal", "tts", "vision", "web",
]  # fmt: skip
_DELIMITER = "\n§\n"


@dataclass(frozen=True)
class Hermes:
    """One profile of one host. `host` is `a` or `b`; `home` its HERMES_HOME; `folder` stands for the user's home.

    Its processes work in the folder `cwd`, by default the user's home. What they leave in `TMPDIR` goes to `scratch`.
    With `forked` they are forks of a process that has loaded the libraries of the host.
    """

    host: str
    python: Path
    folder: Path
    model: ModelEndpoint
    settings: Mapping[str, Any] = field(default_factory=dict)
    profile: str = ""
    cwd: Path | None = None
    scratch: Path | None = None
    forked: bool = False

    @property
    def home(self) -> Path:
        root = self.folder / ".hermes"
        return root / "profiles" / self.profile if self.profile else root

    def set_up(self, **config: Any) -> Hermes:
        """Write config.yaml, `config` on top of what every test needs, and link the plugin. Returns itself."""
        self._write(_merged(self._config(), config))
        self.link()
        return self

    def without_memory(self) -> Hermes:
        """Write config.yaml as a user has it who does not know this package. Returns itself."""
        self._write({key: value for key, value in self._config().items() if key != "memory"})
        return self

    def link(self) -> None:
        """Make the links into the home that `hermes-pgvector install` makes."""
        for name, target in _links(self.python).items():
            link = self.home / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)

    def set(self, **settings: Any) -> None:
        """Change settings of `memory.pgvector` in config.yaml."""
        path = self.home / "config.yaml"
        path.write_text(yaml.safe_dump(_merged(yaml.safe_load(path.read_text()), {"memory": {"pgvector": settings}})))

    def named(self, profile: str) -> Hermes:
        """Another profile of the same user, made by the host's own command, with the same settings."""
        done = self.run("profile", "create", profile, "--no-alias")
        assert done.returncode == 0, done.stdout + done.stderr
        return replace(self, profile=profile).set_up()

    def elsewhere(self) -> Hermes:
        """Another home with the same settings and theme, set up."""
        return replace(self, folder=self.folder.with_name("elsewhere")).set_up()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of its processes, without the settings and secrets of the developer."""
        return {
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder),
            "HERMES_HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm-256color", "NO_PROXY": "127.0.0.1",
            "PYDANTIC_DISABLE_PLUGINS": "__all__", "XDG_DATA_HOME": str(self.folder / "data"),
            # One host refuses to open ~/.hermes of a process that pytest started.
            "HERMES_STATE_DB_GUARD_BYPASS": "1", **({"TMPDIR": str(self.scratch)} if self.scratch else {}), **more,
        }  # fmt: skip

    def run(
        self, *arguments: str, program: str = "hermes", timeout_s: float = ASK_S_MAX, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and kill the children that it leaves."""
        with self.start(*arguments, program=program, **environment) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: str, program: str = "hermes", **environment: str) -> subprocess.Popen[str]:
        """Start a command in a new process group with its output in pipes."""
        return self._start(
            [self.python.with_name(program), *arguments], cwd=self.cwd or self.folder,
            env=self.environment(**environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def ask(self, prompt: str, *options: str, **environment: str) -> str:
        """Run one turn in a new process; returns the answer as printed."""
        done = self.run(*options, "-z", prompt, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def hooks(self, *calls: tuple[str, list[Any], dict[str, Any]]) -> list[Any]:
        """Load the provider with the loader of the host and call hooks in one process; returns their results."""
        done = self.run(str(Path(__file__).with_name("hook_calls.py")), json.dumps(calls), program="python")
        assert done.returncode == 0, done.stderr
        answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return answers

    def chat(self, *options: str, **environment: str) -> Chat:
        """An interactive session; use it as a context manager."""
        command = [self.python.with_name("hermes"), "chat", "--cli", *options]
        return Chat(command, self.cwd or self.folder, self.environment(**environment), self.model, self._start)

    def gateway(self, **environment: str) -> Gateway:
        """A gateway with the API server; use it as a context manager."""
        program = self.python.with_name("hermes")
        return Gateway(
            program, self.folder, self.environment(**environment), self.home, warms_up=self.host == "b",
            start=self._start,
        )  # fmt: skip

    def sessions(self) -> list[str]:
        """The ids of the host's sessions, oldest first."""
        with closing(sqlite3.connect(self.home / "state.db", timeout=10)) as database:
            return [row[0] for row in database.execute("SELECT id FROM sessions ORDER BY started_at, id")]

    def entries(self, target: str) -> list[str]:
        """The entries of MEMORY.md (`memory`) or USER.md (`user`)."""
        path = self.file(target)
        return [entry.strip() for entry in path.read_text().split(_DELIMITER)] if path.exists() else []

    def write(self, target: str, entries: list[str]) -> None:
        """Put entries into MEMORY.md or USER.md by hand."""
        self.file(target).parent.mkdir(exist_ok=True)
        self.file(target).write_text(_DELIMITER.join(entries))

    def file(self, target: str) -> Path:
        return self.home / "memories" / f"{target.upper() if target == 'user' else 'MEMORY'}.md"

    def spooled(self) -> int:
        """The bytes in spools of ended processes on this host, without what is kept although it is stored."""
        return sum(path.stat().st_size for path in (self.home / "pgvector" / "spool").glob("[!.]*/*.log"))

    def logs(self) -> str:
        """The log of the host."""
        return "\n".join(path.read_text(errors="replace") for path in sorted((self.home / "logs").rglob("*.log*")))

    def complaints(self) -> list[str]:
        """The warnings and errors that the provider logged."""
        lines = (line for line in self.logs().splitlines() if "hermes.pgvector" in line and " INFO " not in line)
        # A host writes warnings to two files.
        return list(dict.fromkeys(lines))

    @property
    def _start(self) -> forks.Start:
        return partial(forks.start, self.python) if self.forked else subprocess.Popen

    def _write(self, config: Mapping[str, Any]) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))

    def _config(self) -> dict[str, Any]:
        return {
            "model": {
                "default": NAME, "provider": "custom", "base_url": self.model.url, "api_key": "no-key",
                "context_length": 200_000,
            },
            "memory": {"provider": "pgvector", "pgvector": dict(self.settings)},
            "auxiliary": {"title_generation": {"enabled": False}},
            "display": {"cli_refresh_interval": 0},
            "approvals": {"destructive_slash_confirm": False},
            "telemetry": {"shared_metrics": {"enabled": False, "send": False, "offer_version": 2}},
            "updates": {"check": False},
            # Each process loads its tools and plugins, asks pip about its environment, and collects its garbage when it
            # has idled, which takes more than a second of CPU.
            "agent": {"environment_probe": False, "disabled_toolsets": TOOLSETS_OFF},
            "plugins": {"disabled": _services(self.python)},
            "context": {"memory_trim": {"enabled": False}},
        }  # fmt: skip


@cache
def _links(python: Path) -> dict[str, Path]:
    """The links that the command of a host makes in a home, by their names there. It is run once for each host."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [python.with_name("hermes-pgvector"), "install"], capture_output=True, text=True, timeout=ASK_S_MAX,
            cwd=home, env={"PATH": str(python.parent), "HOME": home, "HERMES_HOME": home},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        links = [path for path in Path(home).rglob("*") if path.is_symlink()]
        return {str(link.relative_to(home)): link.readlink() for link in links}


@cache
def _services(python: Path) -> list[str]:
    """The host's own plugins for services that no scenario uses, each of which takes time at every start."""
    kinds = ("browser", "dashboard_auth", "image_gen", "platforms", "video_gen", "web")
    manifests = python.parents[1].glob("lib/python*/site-packages/plugins/*/*/plugin.yaml")
    return sorted("/".join(path.parts[-3:-1]) for path in manifests if path.parts[-3] in kinds)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if both else value
    return result
