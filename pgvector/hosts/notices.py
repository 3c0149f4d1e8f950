"""Tells a person something: in the host's terminal where there is one, else by the model, which reads the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .guard import guarded

TO_PASS_ON = "Notice of the memory, to be passed on to the user once: "


class Notifier:
    """The functions that hosts pass to `initialize` for sessions in a terminal: one for warnings, one for good news."""

    def __init__(self, kwargs: Mapping[str, Any]) -> None:
        self._warn, self._status = kwargs.get("warning_callback"), kwargs.get("status_callback")

    def tell(self, notices: Iterable[tuple[str, bool]]) -> str:
        """Show texts, each with whether it is good news. Returns those for the prompt, which the host does not show."""
        return "\n\n".join([TO_PASS_ON + text for text, good in notices if not self._shown(text, good)])

    def _shown(self, text: str, good: bool) -> bool:
        show = self._status if good else self._warn
        # `hermes -z` passes functions that print nothing, because a program reads its output.
        muted = getattr(getattr(show, "__self__", None), "suppress_status_output", False)
        return callable(show) and not muted and _call(show, text)


@guarded(bool)
def _call(show: Callable[[str], object], text: str) -> bool:
    show(text)
    return True
