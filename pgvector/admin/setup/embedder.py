"""The choice of an embedder (bundled, Ollama, another endpoint); each embedder is tried before it is taken."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ...embedding import discovery, factory, models
from ...errors import PgvectorError, SettingsError
from ...settings import Settings
from ...store.schema.verification import SchemaState
from ..configuration import validated, without_secrets
from ..console import Console
from ..embedder import mismatch, mismatch_remedy, response_ms

OLLAMA_S_MAX = 2.0
MODELS_SHOWN = 9


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """Settings with an embedder that answers. `secrets` holds an API key to save, by the name of its variable."""

    settings: Settings
    model: str
    dimensions: int | None
    secrets: Mapping[str, str]


class EmbedderQuestions:
    """The questions about the embedder. `stored` is the schema of the database, None when it is new."""

    def __init__(self, settings: Settings, stored: SchemaState | None, console: Console) -> None:
        self._settings, self._console = settings, console
        self._stored, self._held = stored, stored.embedding_model if stored else None
        self._ollama = discovery.ollama_url()

    def ask(self) -> EmbedderChoice:
        """Ask until there is an embedder that answers and fits the database."""
        if self._held:
            self._console.say(f"The database holds vectors from {self._held}.")
        while True:
            with self._console.busy("looking for Ollama"):
                offered = discovery.ollama_models(self._ollama, OLLAMA_S_MAX)
            options = self._options(offered)
            chosen = self._console.choose(
                "Which model should turn texts into vectors, for search by meaning?",
                [(name, remark) for name, remark, _ in options],
                default=self._default(offered),
            )
            try:
                choice = options[chosen][2]()
                if self._accepted(choice):
                    return choice
            except PgvectorError as error:
                self._console.say(f"✗ {error}")

    def _options(self, offered: list[str] | None) -> list[tuple[str, str, Callable[[], EmbedderChoice]]]:
        bundled = self._bundled_model()
        installed = (
            f"{bundled}, runs in the agent's process, no network"
            if factory.bundled_available(bundled)
            else "not installed"
        )
        remark = "does not answer" if offered is None else ", ".join(offered[:3]) or "has no models"
        return [
            ("The bundled model", installed, self._bundled),
            (f"Ollama at {self._ollama}", remark, lambda: self._from_ollama(offered)),
            ("Another endpoint", "with the API of OpenAI or Ollama", self._elsewhere),
        ]

    def _default(self, offered: list[str] | None) -> int:
        held = self._held
        if held in models.BUNDLED_MODULES or (
            held is None and not self._settings.embed_url and factory.bundled_available()
        ):
            return 0
        if self._settings.embed_url not in ("", self._ollama):
            return 2
        return 1 if offered is not None else 2

    def _bundled(self) -> EmbedderChoice:
        settings = changed(self._settings, embed_url="", embed_model="", embed_key_env="")
        return tried(settings, {}, self._console, self._held)

    def _bundled_model(self) -> str:
        return factory.bundled_model(changed(self._settings, embed_url="", embed_model=""), self._held)

    def _from_ollama(self, offered: list[str] | None) -> EmbedderChoice:
        if not offered:
            why = "Ollama does not answer there" if offered is None else "it has no models"
            raise SettingsError(f"{why}; try: ollama pull {models.DEFAULT_OVER_HTTP}")
        shown = offered[:MODELS_SHOWN]
        model = shown[self._console.choose("Which model?", [(name, "") for name in shown], default=0)]
        values = {"embed_url": self._ollama, "embed_model": model, "embed_key_env": "", "embed_api": "ollama"}
        return tried(changed(self._settings, **values), {}, self._console)

    def _elsewhere(self) -> EmbedderChoice:
        now = self._settings
        url = self._console.ask(
            "Its address, like https://api.openai.com/v1 or http://host:11434",
            now.embed_url,
            shown=without_secrets(now.embed_url) if now.embed_url else "",
        )
        settings = changed(now, embed_url=url)  # a wrong address is told before the other questions
        model = self._console.ask("The name of the model", now.embed_model or models.DEFAULT_OVER_HTTP)
        variable = self._console.ask(
            "The environment variable with its API key, like OPENAI_API_KEY (none: -)", now.embed_key_env or "-"
        )
        variable = "" if variable == "-" else variable
        if variable and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise SettingsError(f"{variable[:40]!r} is not a variable name; the key itself is asked for after it")
        key = ""
        if variable and not os.environ.get(variable):
            key = self._console.hidden(f"{variable} is not set. The key, to be saved in .env")
        settings = changed(settings, embed_model=model, embed_key_env=variable)
        return tried(settings, {variable: key} if key else {}, self._console)

    def _accepted(self, choice: EmbedderChoice) -> bool:
        problem = mismatch(choice.model, choice.dimensions, self._stored)
        if not problem:
            return True
        self._console.say(f"✗ {problem}; {mismatch_remedy(choice.settings, choice.model, self._stored)}")
        return self._console.confirm("Take it anyway? Recall then searches by words only", default=False)


def changed(settings: Settings, **values: Any) -> Settings:
    """The settings with other values. A new endpoint resets `embed_api`, a new model `embed_dimensions`.

    Raises SettingsError.
    """
    if values.get("embed_url", settings.embed_url) != settings.embed_url:
        values = {"embed_api": "auto", **values}
    if values.get("embed_model", settings.embed_model) != settings.embed_model:
        values = {"embed_dimensions": 0, **values}
    return validated({**dict(settings), **values})


def tried(settings: Settings, secrets: Mapping[str, str], console: Console, held: str | None = None) -> EmbedderChoice:
    """The choice of these settings' embedder, after it has embedded a text. Raises what the embedder raises.

    `held` is the model whose vectors the database holds.
    """
    with closing(factory.build(settings, {**os.environ, **secrets}, held=held)) as embedder:
        with console.busy("embedding a text; the first time may take a while"):
            took_ms = response_ms(embedder, settings.embed_timeout_s)
        console.say(f"✓ {embedder.model} answers in {took_ms:.0f} ms with {embedder.dimensions} dimensions")
        return EmbedderChoice(settings, embedder.model, embedder.dimensions, secrets)
