"""What the hosts of a simulated fleet had accepted, compared with what Postgres holds."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from fleet_host import read_entries
from server_usage import BENCH

Figures = dict[str, Any]
_TURNS = "select split_part(content, ' ', 1), role, count(*) from conversations group by 1, 2"
_ENTRIES = "select content from memory_entries"
# When the event of a turn became visible: its row in the ledger is written with the rows, and never changed.
_STORED = (
    "select replace(event_id::text, '-', ''), extract(epoch from pg_xact_commit_timestamp(xmin)) from memory_events"
)


@dataclass
class Records:
    """The records of all hosts. `accepted` has for each turn the id of its event and the time of its acceptance."""

    accepted: dict[str, tuple[str, float]] = field(default_factory=dict)
    meant: set[str] = field(default_factory=set)
    refused: int = 0
    hook_ms: list[float] = field(default_factory=list)
    hook_cpu_ms: list[float] = field(default_factory=list)
    recall_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    empty: int = 0
    tool_ms: list[float] = field(default_factory=list)
    tool_degraded: int = 0
    tool_failed: int = 0

    @property
    def turns(self) -> int:
        return len(self.hook_ms)

    def figures(self) -> Figures:
        """Times of hooks and recalls, the latter by kind of network, too, and how the recalls went."""
        every = [ms for each in self.recall_ms.values() for ms in each]
        return {
            "turns_refused": self.refused,
            **percentiles("hook", self.hook_ms, "ms"),
            **percentiles("hook_cpu", self.hook_cpu_ms, "ms"),
            **percentiles("recall", every, "ms"),
            **percentiles("tool", self.tool_ms, "ms"),
            "recall_by_network": {
                name: percentiles("recall", each, "ms") for name, each in sorted(self.recall_ms.items())
            },
            "recall_empty_share": self.empty / max(1, self.turns),
            "tool_degraded_share": self.tool_degraded / max(1, len(self.tool_ms)),
            "tools_failed": self.tool_failed,
        }


def read(files: Mapping[Path, str]) -> Records:
    """The records in these files, each of a host on a kind of network."""
    found = Records()
    for path, network in files.items():
        for line in path.read_text().splitlines() if path.exists() else ():
            kind, *about = json.loads(line)
            if kind == "meant":
                found.meant.add(about[0])
            elif kind == "tool":
                _note_tool(found, *about)
            else:
                _note_turn(found, network, *about)
    return found


def _note_turn(
    found: Records, network: str, key: str, event: str, at: float, hook: tuple[float, float], recall_ms: float,
    any_found: bool,
) -> None:  # fmt: skip
    found.hook_ms.append(hook[0])
    found.hook_cpu_ms.append(hook[1])
    found.recall_ms[network].append(recall_ms)
    found.empty += not any_found
    found.refused += not event
    if event:
        found.accepted[key] = event, at


def _note_tool(found: Records, ms: float, degraded: bool, failed: bool) -> None:
    found.tool_ms.append(ms)
    found.tool_degraded += degraded
    found.tool_failed += failed


def compare(records: Records, homes: Sequence[Path], dsn: str) -> Figures:
    """Rows that are lost, doubled or come from nowhere. Each accepted turn has two rows, each entry of a file one."""
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        turns = connection.execute(_TURNS).fetchall()
        entries = Counter(content for (content,) in connection.execute(_ENTRIES))
    sides: dict[str, dict[str, int]] = defaultdict(dict)
    for key, role, rows in turns:
        sides[key][role] = rows
    wanted = {entry for home in homes for entry in read_entries(home / "memories" / "MEMORY.md")}
    lost = {key: 2 - len(sides.get(key, ())) for key in records.accepted if len(sides.get(key, ())) < 2}
    return {
        "turns_accepted": len(records.accepted),
        "rows_stored": sum(rows for _, _, rows in turns),
        "rows_lost": sum(lost.values()),
        "rows_doubled": sum(rows - 1 for _, _, rows in turns),
        "rows_unknown": sum(rows for key, _, rows in turns if key not in records.meant),
        "entries_stored": entries.total(),
        "entries_lost": len(wanted - entries.keys()),
        "entries_doubled": entries.total() - len(entries),
        "entries_unknown": len(entries.keys() - wanted),
        "examples": sorted({*lost, *(wanted ^ entries.keys())})[:10],
    }


def lags(records: Records, ended: Callable[[str], float], dsn: str) -> Figures:
    """Seconds from the return of a hook until its row was visible; where the host had ended by then, separately.

    `ended` returns when the life of a host ended in which it took a turn.
    """
    with psycopg.connect(dsn, application_name=BENCH) as connection:
        stored = dict(connection.execute(_STORED).fetchall())
    beside, after = list[float](), list[float]()
    for key, (event, at) in sorted(records.accepted.items(), key=lambda turn: turn[1][1]):
        if event in stored:
            visible = float(stored[event])
            (beside if visible <= ended(key) else after).append(max(0.0, visible - at))
    return {
        **percentiles("lag", beside, "s"),
        "lag_by_quarter_p50_s": [float(np.median(part)) for part in np.array_split(beside, 4) if len(part)],
        **percentiles("lag_of_ended_host", after, "s"),
        "turns_of_ended_hosts": len(after),
    }


def percentiles(name: str, values: Sequence[float], unit: str) -> Figures:
    """Percentiles and the maximum of values, by name."""
    found = {f"p{share}": float(np.percentile(values, share)) for share in (50, 95, 99)} if values else {}
    return {f"{name}_{kind}_{unit}": value for kind, value in {**found, "max": max(values, default=None)}.items()}
