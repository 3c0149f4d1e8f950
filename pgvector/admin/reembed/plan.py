"""What a change of the model will do: rows, size, time, and the processes that it leaves behind."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ...embedding.protocol import Embedder
from ...mirror.home import Home
from ...settings import Settings
from ...store import clients, second_column, upkeep
from ...store.clients import Client, OldConnection
from ...store.schema.preflight import Connection
from ...store.schema.verification import Origin, SchemaState
from ...text.sanitize import safe_line
from ..console import Console, counted, duration, facts_table

SAMPLE_TEXTS = 16
SHOWN_MAX, LABEL_CHARS_MAX = 10, 40


@dataclass(frozen=True, slots=True)
class Plan:
    """A change from one model to another. `rows` are those that are recalled, `lacking` those to embed.

    `seconds` is estimated by some texts, None without rows. `others` are other homes with live processes whose
    settings name another model.
    """

    model: str
    dimensions: int
    from_model: str
    from_dimensions: int
    begun: bool
    rows: int
    lacking: int
    bytes: int
    seconds: float | None
    others: tuple[Client, ...]
    older: tuple[OldConnection, ...]

    def document(self) -> dict[str, Any]:
        """The plan for `--json`."""
        others, older = [each._asdict() for each in self.others], [each._asdict() for each in self.older]
        return {**asdict(self), "others": others, "older": older}


def make(
    connection: Connection, stored: SchemaState, origin: Origin, embedder: Embedder, settings: Settings, home: Path
) -> Plan:
    """The plan for this model, run from a home. Embeds a few texts. Raises the errors of the embedder."""
    begun = second_column.begun(connection) is not None
    rows, lacking = second_column.progress(connection, second=begun)
    own = Home(home).label(settings.home_label)
    per_row_s = _seconds_a_row(connection, embedder, settings)
    others = [each for each in clients.live(connection) if each.model not in ("", origin.model)]
    return Plan(
        model=origin.model,
        dimensions=origin.dimensions,
        from_model=stored.embedding_model or "",
        from_dimensions=stored.dimensions,
        begun=begun,
        rows=rows,
        lacking=lacking if begun else rows,
        # Each vector is in its row, in the graph index and, if it is short, in the index for exact search.
        bytes=2 * origin.dimensions * rows * (3 if origin.dimensions <= second_column.EXACT_DIMENSIONS_MAX else 2),
        seconds=None if per_row_s is None else per_row_s * (lacking if begun else rows),
        others=tuple(each for each in others if each.home != own),
        older=tuple(clients.older(connection)),
    )


def show(console: Console, plan: Plan) -> None:
    """Print the plan and what it leaves behind."""
    rows = [
        ("From", f"{plan.from_model or 'no model yet'}, {plan.from_dimensions} dimensions"),
        ("To", f"{plan.model}, {plan.dimensions} dimensions"),
        ("Rows", f"{plan.rows:,}, of which {plan.lacking:,} have to be embedded"),
        ("Disk", f"about {size(plan.bytes)} more until the old vectors are dropped"),
    ]
    if plan.seconds is not None:
        rows.append(
            ("Time", f"{'about ' if plan.seconds >= 60 else ''}{duration(plan.seconds)}, and some for the indexes")
        )
    console.show(facts_table(rows))
    for other in plan.others[:SHOWN_MAX]:
        console.say(
            f"{counted(other.processes, 'process', 'processes')} of home {safe_line(other.home, LABEL_CHARS_MAX)} use "
            f"{other.model}: they recall by words after the change until embed_model is {plan.model} in the settings "
            "of that home; they need not be restarted"
        )
    if plan.older:
        console.say(
            f"{clients.listed(plan.older)}: they do not notice the change, and would mix the vectors of both models; "
            "end or upgrade these agents"
        )


def _seconds_a_row(connection: Connection, embedder: Embedder, settings: Settings) -> float | None:
    """How long it takes to embed a row, by the newest ones; None without rows."""
    newest = upkeep.newest(connection, SAMPLE_TEXTS)
    texts = [text for passage in newest for text in passage.texts(settings)][: 4 * SAMPLE_TEXTS]
    if not texts:
        return None
    started = time.monotonic()
    embedder.embed_passages(texts, settings.embed_timeout_s)
    return (time.monotonic() - started) / len(newest)
