"""The guard of hooks: an error in this package never reaches the agent."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import BadArgument, PgvectorError, SettingsError

log = logging.getLogger("hermes.pgvector")

P = ParamSpec("P")
T = TypeVar("T")


def nothing() -> None:
    """The result of a hook that returns nothing."""


def failed_call() -> str:
    """The answer of a tool that failed."""
    return json.dumps({"error": "the memory failed; the log of the agent says why"})


def guarded(
    fallback: Callable[[], T], *, raises: type[PgvectorError] | tuple[()] = ()
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that catches and logs every exception but `raises`, and returns `fallback()` instead."""

    def decorate(hook: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(hook)
        def safe(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return hook(*args, **kwargs)
            except raises:
                raise
            except Exception as error:
                shown = f": {error}" if isinstance(error, BadArgument | SettingsError) else ""
                log.warning("%s failed with %s%s", hook.__name__, type(error).__name__, shown)
                log.debug("%s failed", hook.__name__, exc_info=error)
                return fallback()

        return safe

    return decorate
