"""The settings in the host's panel. A test compares keys, defaults and descriptions with `Settings`.

The host executes this file by its path, outside the package, so it imports nothing of the package.
"""

from __future__ import annotations

from plugins.memory.config_schema import (
    KIND_BOOL,
    KIND_JSON,
    KIND_NUMBER,
    KIND_SECRET,
    KIND_SELECT,
    ProviderConfigSchema,
    ProviderField,
    ProviderFieldOption,
)


def _options(**labels: str) -> tuple[ProviderFieldOption, ...]:
    return tuple(ProviderFieldOption(value, label) for value, label in labels.items())


CONFIG_SCHEMA = ProviderConfigSchema(
    name="pgvector",
    label="Postgres + pgvector",
    fields=(
        ProviderField(
            key="dsn",
            label="Database",
            kind=KIND_SECRET,
            env_key="HERMES_PGVECTOR_DSN",
            description="Postgres to use, as a URL or key=value pairs; empty: embedded server",
            placeholder="postgresql://user:password@host:5432/database",
            inline=True,
            group="Database",
        ),
        ProviderField(
            key="embed_url",
            label="Embedding endpoint",
            description="Embedding endpoint, e.g. http://127.0.0.1:11434; empty: the bundled model",
            placeholder="http://127.0.0.1:11434",
            inline=True,
            group="Embedding",
        ),
        ProviderField(
            key="embed_model",
            label="Embedding model",
            description="Model to ask for; empty: nomic-embed-text over HTTP, the bundled model without",
            inline=True,
            group="Embedding",
        ),
        ProviderField(
            key="embed_api",
            label="Embedding API",
            kind=KIND_SELECT,
            default="auto",
            description="Dialect of the endpoint; auto detects it",
            options=_options(auto="Detect", openai="OpenAI", ollama="Ollama"),
            group="Embedding",
        ),
        ProviderField(
            key="embed_key_env",
            label="Variable of the API key",
            description="Environment variable that holds the endpoint's bearer key",
            placeholder="OPENAI_API_KEY",
            group="Embedding",
        ),
        ProviderField(
            key="recall_mode",
            label="Recall",
            kind=KIND_SELECT,
            default="hybrid",
            description="context: memories come before a turn only; tools: by tools only; hybrid: both",
            options=_options(hybrid="Before a turn, and tools", context="Before a turn", tools="Tools"),
            group="Recall",
        ),
        ProviderField(
            key="tools",
            label="Tools",
            kind=KIND_SELECT,
            default="recall",
            description="all: agents may also remember, update, forget and list entries by tools; "
            "facts: they have the tools for facts instead",
            options=_options(recall="Recall", all="Recall, remember, forget, list", facts="Recall, facts"),
            group="Recall",
        ),
        ProviderField(
            key="prefetch_limit",
            label="Memories before a turn",
            kind=KIND_NUMBER,
            default="5",
            description="Most memories put before a turn; 0 turns it off",
            info="0 to 20",
            inline=True,
            group="Recall",
        ),
        ProviderField(
            key="prefetch_budget_s",
            label="Wait before a turn",
            kind=KIND_NUMBER,
            default="2.0",
            description="Longest time a turn waits for its memories",
            info="0.1 to 7",
            group="Recall",
        ),
        ProviderField(
            key="prefetch_turns",
            label="Recall past turns",
            kind=KIND_BOOL,
            default="true",
            description="Recall before a turn looks in past turns too, not in entries alone",
            group="Recall",
        ),
        ProviderField(
            key="scope_default",
            label="Scope of the tools",
            kind=KIND_SELECT,
            default="current",
            description="Scope of the tools when none is named",
            options=_options(current="This theme", session="This session", all="All readable themes"),
            group="Recall",
        ),
        ProviderField(
            key="sync_turns",
            label="Keep turns",
            kind=KIND_BOOL,
            default="true",
            description="Store conversation turns",
            inline=True,
            group="Capture",
        ),
        ProviderField(
            key="mask_secrets",
            label="Mask secrets",
            kind=KIND_BOOL,
            default="true",
            description="Secrets of known shapes are masked in turns before they are written",
            inline=True,
            group="Capture",
        ),
        ProviderField(
            key="mask_secrets_in_entries",
            label="Mask secrets in entries",
            kind=KIND_BOOL,
            default="false",
            description="Secrets are masked in entries, too, when they are stored; MEMORY.md and USER.md keep them",
            inline=True,
            group="Capture",
        ),
        ProviderField(
            key="hide_suspicious",
            label="Hide suspicious memories",
            kind=KIND_BOOL,
            default="true",
            description="What looks like an attack is recalled only if a tool asks for it",
            inline=True,
            group="Recall",
        ),
        ProviderField(
            key="turn_min_chars",
            label="Shortest turn",
            kind=KIND_NUMBER,
            default="40",
            description="Shorter turns are not stored; a wide character counts as two",
            info="0 to 10000",
            group="Capture",
        ),
        ProviderField(
            key="theme_aliases",
            label="Theme aliases",
            kind=KIND_JSON,
            description="Other names of a theme, as {alias: theme}",
            placeholder='{"bills": "billing"}',
            group="Themes",
        ),
        ProviderField(
            key="allowed_themes",
            label="Allowed themes",
            kind=KIND_JSON,
            description="Themes that may be used, or patterns of them; empty: any",
            placeholder='["billing", "project/*"]',
            group="Themes",
        ),
    ),
)
