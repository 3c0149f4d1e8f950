"""The result of `watch` as metrics, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from ...errors import SettingsError
from ...files import not_written, overwrite
from ...model import now
from .finding import REASONS, Reason

_HELP = {
    "attention": "1 for a reason why a person has to look at the memory",
    "turns_expected": "newest turns of the host that the memory should have",
    "turns_known": "those of them that are stored or wait in a spool",
    "waiting_events": "events that wait in spools",
    "oldest_waiting_seconds": "age of the oldest of them",
    "watch_timestamp_seconds": "when this was measured",
}


def lines(home: Path, reasons: Collection[Reason], figures: dict[str, float | None]) -> str:
    """The metrics of a home; figures that are None are left out."""
    return "".join(f"{line}\n" for line in _lines(home, reasons, {**figures, "watch_timestamp_seconds": _time()}))


def write(path: Path, text: str) -> None:
    """Replace a file, which anybody may read: the exporter runs as another user. Raises SettingsError."""
    try:
        overwrite(path, text)
        path.chmod(0o644)
    except OSError as error:
        raise SettingsError(not_written(path, error)) from None


def _lines(home: Path, reasons: Collection[Reason], figures: dict[str, float | None]) -> Iterator[str]:
    label = str(home).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    for name, text in _HELP.items():
        yield f"# HELP hermes_pgvector_{name} {text}"
        yield f"# TYPE hermes_pgvector_{name} gauge"
        if name == "attention":
            for reason in REASONS:
                yield f'hermes_pgvector_attention{{home="{label}",reason="{reason}"}} {int(reason in reasons)}'
        elif (figure := figures.get(name)) is not None:
            yield f'hermes_pgvector_{name}{{home="{label}"}} {figure:.15g}'


def _time() -> float:
    return round(now().timestamp(), 3)
