"""Settings of one home.

Precedence, highest first: environment `HERMES_PGVECTOR_<KEY>` (the process's, then `$HERMES_HOME/.env`),
`memory.pgvector` in `$HERMES_HOME/config.yaml`, `$HERMES_HOME/pgvector/config.json`, `plugins.pgvector` in config.yaml.
An empty value in the environment means unset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from .errors import SettingsError
from .hosts import config as host_files
from .hosts.config import config_file, environment, read_config, section, variable
from .model import Outside
from .text import setting_values
from .text.keep_rules import Rules
from .text.setting_values import Days, Folder, Limits, Names, Readable, Texts, ThemesByTheme, http_url, reason, template

# Connection strings, which may contain a password: they belong in `.env`.
SECRETS = ("dsn", "recall_dsn")
IN_ENVIRONMENT, IN_HOST_CONFIG, EARLIER = "environment", "memory.pgvector", "default of earlier releases"
_PASSWORD = re.compile(r"(//[^/@:\s]*:)\S*@")
_QUERY = re.compile(r"\?[^'\s]*")


class Settings(BaseModel):
    """All settings, validated. Units in names: `_s` seconds, `_max` a count, `_chars` characters, `_mb` MiB."""

    # Every host imports this module, and building the validators takes longer than that. `load` builds those it needs.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, defer_build=True)

    dsn: SecretStr = Field(
        SecretStr(""), description="Postgres to use, as a URL or key=value pairs; empty: embedded server"
    )
    recall_dsn: SecretStr = Field(SecretStr(""), description="Hot standby of it that recalls read from; empty: none")
    recall_lag_s_max: float = Field(5.0, ge=0, le=3600, description="A standby that is further behind is not read from")
    home_label: str = Field("", max_length=40, description="Name of this home in lists of live homes; empty: its id")
    data_dir: Folder = Field("", description="Folder of the embedded server; empty: per home, outside HERMES_HOME")
    connect_timeout_s: float = Field(3.0, ge=0.5, le=60, description="Longest wait for one connection attempt")
    pool_max: int = Field(3, ge=2, le=20, description="Most connections of one process to a server")
    pool_idle_s: float = Field(30.0, ge=1, le=3600, description="Idle connections close after this time")
    statement_timeout_s: float = Field(60.0, ge=1, le=3600, description="Longest one statement of the writer may run")

    embed_url: Annotated[str, AfterValidator(http_url)] = Field(
        "", description="Embedding endpoint, e.g. http://127.0.0.1:11434; empty: the bundled model"
    )
    embed_model: str = Field(
        "", description="Model to ask for; empty: nomic-embed-text over HTTP, the bundled model without"
    )
    embed_api: Literal["auto", "openai", "ollama"] = Field(
        "auto", description="Dialect of the endpoint; auto detects it"
    )
    embed_key_env: str = Field("", description="Environment variable that holds the endpoint's bearer key")
    embed_dimensions: int = Field(
        0, ge=0, le=4000, description="Vector length of an unknown model; 0: ask the endpoint"
    )
    embed_timeout_s: float = Field(
        20.0, ge=0.5, le=300, description="Longest wait for one embedding request of backfill or set-up"
    )
    embed_wait_s: float = Field(
        1.0, ge=0, le=60, description="Longest time a batch waits for its vectors; later ones are added to the rows"
    )
    embed_batch_max: int = Field(64, ge=1, le=512, description="Most texts in one embedding request")
    embed_chars_max: int = Field(
        2000, ge=200, le=100_000, description="A longer text, with what was said before it, is embedded in chunks"
    )
    embed_piece_chars: int = Field(1000, ge=100, le=100_000, description="Longest chunk of a long text, in characters")
    embed_pieces_max: int = Field(
        40, ge=0, le=1000, description="Most chunks of one text; words are found in its first 100,000 characters"
    )
    embed_sentences_max: int = Field(
        6, ge=0, le=40, description="Most sentences of a user's message with vectors of their own; 0: none"
    )
    embed_on_write: bool = Field(True, description="false: only `hermes-pgvector backfill` adds vectors")

    rerank_url: Annotated[str, AfterValidator(http_url)] = Field(
        "", description="Endpoint that orders the first hits of a recall anew, e.g. http://127.0.0.1:8080; empty: none"
    )
    rerank_model: str = Field("", description="Re-ranking model to ask for; empty: the one that the endpoint serves")
    rerank_key_env: str = Field("", description="Environment variable that holds the re-ranker's bearer key")
    rerank_hits_max: int = Field(50, ge=2, le=200, description="Most hits of one recall that are re-ranked")
    rerank_chars_max: int = Field(2000, ge=100, le=100_000, description="Most characters of a hit that are re-ranked")

    scope_default: Literal["current", "session", "all"] = Field(
        "current", description="Scope of the tools when none is named"
    )
    recall_mode: Literal["hybrid", "context", "tools"] = Field(
        "hybrid", description="context: memories come before a turn only; tools: by tools only; hybrid: both"
    )
    tools: Literal["recall", "all", "facts"] = Field(
        "recall",
        description="all: agents may also remember, update, forget and list entries by tools; facts: they have the "
        "tools for facts instead",
    )
    prefetch_limit: int = Field(5, ge=0, le=20, description="Most memories put before a turn; 0 turns it off")
    prefetch_budget_s: float = Field(2.0, ge=0.1, le=7, description="Longest time a turn waits for its memories")
    prefetch_chars_max: int = Field(2000, ge=200, le=20_000, description="Most characters put before a turn")
    prefetch_turns: bool = Field(True, description="Recall before a turn looks in past turns too, not in entries alone")
    prefetch_outside: Outside = Field("local", description="Rows from tools before turns; local: not of third parties")
    trusted_tools: Texts = Field([], description="Tools, or patterns such as mcp__wiki__*, whose results you vouch for")
    prefetch_shown_max: int = Field(
        500, ge=0, le=10_000, description="Texts in a context that are not put before a turn again; 0 repeats them"
    )
    facts_injected: bool | None = Field(
        None, description="Put the hot facts before a turn, when they have changed; unset: with `tools: facts`"
    )
    facts_hot_tokens_max: int = Field(
        180, ge=100, le=10_000, description="Most tokens of the block of hot facts, cautiously estimated"
    )
    min_similarity: float | None = Field(
        None, ge=-1, le=1, description="Floor of the recall before a turn; unset: calibrated per model"
    )
    recall_limit_max: int = Field(50, ge=1, le=500, description="Most hits that one tool call may ask for")
    recall_budget_s: float = Field(5.0, ge=0.1, le=60, description="Longest time a recall tool may take")
    recall_chars_max: int = Field(20_000, ge=1000, le=200_000, description="Most characters in one tool answer")
    exact_rows_max: int = Field(
        50_000, ge=0, le=1_000_000, description="Themes up to this size are searched exactly, more in large tables"
    )
    word_candidates_max: int = Field(
        2000, ge=100, le=100_000, description="Smaller themes are read whole; of larger ones, so many rows for words"
    )

    relief_above_pct: int = Field(
        55, ge=1, le=100, description="MEMORY.md and USER.md are relieved above this share of their caps, in percent"
    )
    relief_to_pct: int = Field(
        45, ge=0, le=99, description="Relief ends when a file has no more than this share of its cap, in percent"
    )
    relief_backups_max: int = Field(
        20, ge=1, le=1000, description="Most backups of each memory file; older ones are deleted"
    )

    bulk_sync_on_init: bool = Field(True, description="Reconcile MEMORY.md and USER.md at start and session switch")
    sync_turns: bool = Field(True, description="Store conversation turns")
    write_contexts: Texts = Field(
        ["primary"],
        description="Agent contexts whose turns are stored; of other contexts, only saved entries are stored",
    )
    keep: Rules = Field(
        [], description="What is kept: all, owner, asked, or rules, the first of which that applies decides"
    )
    owner_accounts: Texts = Field(
        [],
        description="Accounts of the owner, as platform:id, or a platform for all its users; terminals are the owner's",
    )
    pending_max: int = Field(200, ge=1, le=10_000, description="Most writes of agents that wait for approval")
    pending_days: int = Field(30, ge=1, le=3650, description="Writes that nobody approves are deleted after this time")
    off_record: bool = Field(False, description="true: nothing is stored, the memory is only read")
    mask_secrets: bool = Field(True, description="Secrets of known shapes are masked in turns before they are written")
    mask_secrets_in_entries: bool = Field(
        False, description="Secrets are masked in entries, too, when they are stored; MEMORY.md and USER.md keep them"
    )
    hide_suspicious: bool = Field(True, description="What looks like an attack is recalled only if a tool asks for it")
    turn_min_chars: int = Field(
        40, ge=0, le=10_000, description="Shorter turns are not stored; a wide character counts as two"
    )
    content_chars_max: int = Field(200_000, ge=1000, le=1_000_000, description="Longer texts are cut and marked")

    facts_text_chars_max: int = Field(400, ge=20, le=1000, description="Longest fact; a longer one is refused")
    facts_chars_max: int = Field(
        10_000, ge=2000, le=1_000_000, description="Characters of active facts of a theme that count as 100 %"
    )
    facts_merge_pct: int = Field(
        70, ge=1, le=100, description="From here on, active facts of one target and scope with the same text become one"
    )
    facts_closed_pct: int = Field(
        85, ge=1, le=100, description="From here on, active facts of closed scopes become cold"
    )
    facts_unused_pct: int = Field(
        95, ge=1, le=100, description="From here on, the longest unused facts become cold, down to facts_closed_pct"
    )
    facts_scope_idle_days: int = Field(
        3, ge=1, le=3650, description="A scope of facts closes when its session is not heard of for this time"
    )

    write_queue_maxsize: int = Field(
        1000, ge=1, le=100_000, description="Events held in memory; the rest waits in the spool"
    )
    write_wait_s: float = Field(
        2.0, ge=0, le=60, description="Longest time that memory_write waits until a fact is stored"
    )
    batch_max: int = Field(64, ge=1, le=512, description="Most events written in one transaction")
    batch_linger_s: float = Field(0.1, ge=0, le=5, description="How long the first event of a batch waits for more")
    retry_max_s: float = Field(30.0, ge=0.1, le=600, description="Cap of the back-off while a service is down")
    shutdown_drain_s: float = Field(3.0, ge=0, le=4.5, description="Longest time that shutdown waits for the writer")
    spool_dir: Folder = Field("", description="Folder of the spool; empty: $HERMES_HOME/pgvector/spool")
    spool_max_mb: int = Field(
        256, ge=1, le=65_536, description="Size at which a spool refuses new events; also the limit of the dead letters"
    )
    outbox_keep_s: float = Field(
        600.0, ge=0, le=43_200, description="How long stored events are kept, in case a failover loses them; 0: off"
    )
    spool_fsync: bool = Field(False, description="Make every event durable against power loss, at a cost per event")
    stuck_after_s: float = Field(
        180.0, ge=3, le=3600, description="A writer that stores nothing for this time is reported as stuck"
    )
    outage_after_s: float = Field(
        10.0, ge=0, le=3600, description="A person is told of an outage of the memory that lasts longer"
    )
    adopt_interval_s: float = Field(
        30.0, ge=1, le=3600, description="Time between searches for spools of dead processes"
    )
    heal_interval_s: float = Field(
        20.0, ge=1, le=3600, description="Time between searches for rows that lack vectors or words, and for new links"
    )
    event_ledger_days: int = Field(90, ge=1, le=3650, description="Ids of stored events are deleted after this time")
    history_days: int = Field(
        365, ge=1, le=36_500, description="Past entries, which can be restored, and past facts are kept for this time"
    )
    retain_days: Days = Field({}, description="Older turns are deleted, as {theme or pattern: days}; entries never")
    theme_rows_max: Limits = Field(
        {}, description="Most rows of a theme, as {theme or pattern: rows}; beyond, its oldest turns are deleted"
    )
    theme_mb_max: Limits = Field(
        {}, description="Most MiB of a theme without indexes, as {theme or pattern: MiB}; beyond, its oldest turns go"
    )

    theme_template: Annotated[str, AfterValidator(template)] = Field(
        "", description="Theme without a session key, made of {project}, {profile} and {platform}; empty: the profile's"
    )
    theme_aliases: Names = Field({}, description="Other names of a theme, as {alias: theme}")
    allowed_themes: Texts = Field([], description="Themes that may be used, or patterns of them; empty: any")
    hash_personal_keys: bool = Field(
        False, description="Session keys that look like phone numbers, mail addresses or user ids become keyed hashes"
    )
    bench_themes: Texts = Field(
        ["bench-*", "hermes-bench*"],
        description="Patterns of themes of benchmark traffic: they read no others, and no others read them",
    )
    cross_theme_recall: Readable = Field(
        "none", description="What `scope` may name beside the own theme and also_recall: none, all, {theme: [themes]}"
    )
    also_recall: ThemesByTheme = Field(
        {}, description="Themes that are always recalled beside the own one, as {theme or pattern: [themes]}"
    )
    also_write: ThemesByTheme = Field(
        {}, description="Themes that `remember` may name, as {theme or pattern: [themes]}"
    )

    _home: Path | None = PrivateAttr(None)

    def key_in(self, variable: str) -> str:
        """The key in a variable of the home of these settings; empty when it is unset. Raises SettingsError."""
        return (environment(self._home) if self._home else os.environ).get(variable, "")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The connection strings of `SECRETS`."""
        return tuple(getattr(self, key).get_secret_value() for key in SECRETS)

    @property
    def injects_facts(self) -> bool:
        """Whether hot facts come before a turn."""
        wanted = self.tools == "facts" if self.facts_injected is None else self.facts_injected
        return wanted and self.recall_mode != "tools"


def load(hermes_home: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of one home.

    Raises SettingsError that names the key, its source and the allowed values, but shows no secret.
    """
    given, origin = given_values(hermes_home, environ)
    try:
        settings = setting_values.checked(Settings, given)
    except ValidationError as error:
        raise SettingsError(_explain(error, given, origin)) from None
    settings._home = Path(hermes_home)
    return settings


def given_values(
    hermes_home: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the settings that a home has, as they are given, and the name of the place of each.

    Raises SettingsError when a place cannot be read.
    """
    home = Path(hermes_home)
    config, variables = host_files.host_config(home), environment(home, environ)
    layers = [
        ("plugins.pgvector", section(config, "plugins").get("pgvector")),
        (str(config_file(home)), read_config(home)),
        (IN_HOST_CONFIG, section(config, "memory").get("pgvector")),
        (IN_ENVIRONMENT, {key: variables.get(variable(key)) for key in Settings.model_fields}),
    ]
    given: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, values in layers:
        if not isinstance(values, dict | None):
            # A rule of `keep` in it would be ignored.
            raise SettingsError(f"{name} in config.yaml is a {type(values).__name__}; it must map settings to values")
        for key, value in (values or {}).items():
            if key in Settings.model_fields and value is not None:
                given[key], origin[key] = value, name
    if "cross_theme_recall" not in given and host_files.has_earlier_defaults(home, config):
        given["cross_theme_recall"], origin["cross_theme_recall"] = "all", EARLIER
    return given, origin


def _explain(error: ValidationError, merged: Mapping[str, Any], origin: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors():
        key = str(problem["loc"][0])
        given = "(hidden)" if key in SECRETS else _QUERY.sub("?***", _PASSWORD.sub(r"\1***@", repr(merged.get(key))))
        where = variable(key) if origin.get(key) == IN_ENVIRONMENT else f"{key} in {origin.get(key)}"
        if len(problem["loc"]) > 1:
            where += setting_values.part(problem)
            given = repr(problem["input"])
        lines.append(f"{where} is {given[:80]}: {reason(problem)}")
    return "; ".join(dict.fromkeys(lines))
