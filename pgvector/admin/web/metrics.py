"""The state of a home as metrics of Prometheus: base units, and no name that a user has chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeAlias, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...outbox.inspection import Condition, Process
from ...version import __version__
from ..overview import Observation, Overview
from ..processes import embedder_problem

PREFIX = "hermes_pgvector_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("accepted", "refused", "adopted", "applied", "already_there", "set_aside")

Sample: TypeAlias = tuple[dict[str, str], float | None]

# Name, kind and help of each metric, in the order of the output and of docs/monitoring.md.
METRICS: dict[str, tuple[str, str]] = {
    "build_info": ("gauge", "1; `version` is that of hermes-pgvector"),
    "up": ("gauge", "1 when the database answered and its schema fits, else 0"),
    "database_answer_seconds": ("gauge", "time in which the database answered"),
    "database_info": ("gauge", "1; the versions of the server and of pgvector"),
    "database_size_bytes": ("gauge", "size of the database"),
    "schema_version": ("gauge", "version of the schema"),
    "rows": ("gauge", "stored rows by `kind`"),
    "rows_without_vector": ("gauge", "rows that only word search finds, by `kind`"),
    "rows_without_words": ("gauge", "rows that only vector search finds"),
    "themes": ("gauge", "themes with rows"),
    "spool_events": ("gauge", "events that wait in the spools of the home"),
    "spool_size_bytes": ("gauge", "size of these events"),
    "spool_oldest_event_timestamp_seconds": ("gauge", "time of the oldest of them; absent when none waits"),
    "dead_letters": ("gauge", "events that could not be stored and were set aside"),
    "pending_writes": ("gauge", "writes of agents that wait for approval"),
    "processes": ("gauge", "processes with a spool by `state`: well, failing, stuck, or dead with events left"),
    "embedder_failing": ("gauge", "1 when a process cannot make vectors that rows wait for, else 0"),
    "process_start_time_seconds": ("gauge", "start of a running process, by its `spool`"),
    "process_last_success_timestamp_seconds": ("gauge", "last round of a running process without an error"),
    "process_events": ("counter", "events of a running process by `outcome`"),
    "process_recalls": ("counter", "recalls of a running process by the `server` that answered: standby or primary"),
    "process_vectors": ("counter", "rows that a running process gave their vector after they were stored"),
}


def text_of(seen: Observation) -> str:
    """The metrics in the text format. The label `home` is the home's random id, and empty before it has one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Observed(seen))
    return generate_latest(registry).decode()


def document(seen: Observation) -> list[dict[str, Any]]:
    """The metrics as JSON values: name, labels and value of each sample."""
    return [
        {"name": sample.name, "labels": sample.labels, "value": sample.value}
        for family in _Observed(seen).collect()
        for sample in family.samples
    ]


class _Observed(Collector):
    """The metrics of one observation."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        samples = _samples(self._seen)
        for name, (kind, text) in METRICS.items():
            labels = {"home": self._seen.home.known_id}
            found = [({**labels, **own}, value) for own, value in samples[name] if value is not None]
            if not found:
                continue
            names = list(found[0][0])
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(f"{PREFIX}{name}", text, labels=names)
            for own, value in found:
                family.add_metric([own[label] for label in names], value)
            yield family


def _samples(seen: Observation) -> dict[str, list[Sample]]:
    waiting, states = seen.waiting, Counter(process.condition(seen.stuck_after_s) for process in seen.processes)
    alone: dict[str, float | None] = {
        "up": float(not seen.database.problem),
        "spool_events": waiting.events,
        "spool_size_bytes": waiting.bytes,
        "spool_oldest_event_timestamp_seconds": _seconds(waiting.oldest),
        "dead_letters": seen.dead_letters,
        "pending_writes": seen.pending,
        "embedder_failing": float(bool(embedder_problem(seen.processes))),
    }
    return {
        "build_info": [({"version": __version__}, 1)],
        "processes": [({"state": state}, states[state]) for state in get_args(Condition)],
        **{name: [({}, value)] for name, value in alone.items()},
        **_of_database(seen.database),
        **_of_processes(seen.processes),
    }


def _of_database(found: Overview) -> dict[str, list[Sample]]:
    server, rows, schema = found.server_info, found.totals, found.schema
    versions = {
        "server_version": server.server_version if server else "",
        "pgvector_version": server.pgvector_version if server else "",
    }
    kinds = ("entries", "turns", "facts") if rows else ()
    return {
        "database_answer_seconds": [({}, found.seconds)],
        "database_info": [(versions, 1 if server else None)],
        "database_size_bytes": [({}, server.database_bytes if server else None)],
        "schema_version": [({}, schema.version if schema else None)],
        "rows": [({"kind": kind}, getattr(rows, kind)) for kind in kinds],
        "rows_without_vector": [({"kind": kind}, getattr(rows, f"{kind}_without_vector")) for kind in kinds],
        "rows_without_words": [({}, rows.without_words if rows else None)],
        "themes": [({}, rows.themes if rows else None)],
    }


def _of_processes(running: Iterable[Process]) -> dict[str, list[Sample]]:
    """Each process has series of its own: a sum would fall when one ends, which `rate` takes for a restart."""
    alive = [({"spool": one.folder.name}, one.heartbeat) for one in running if one.alive and one.heartbeat]
    return {
        "process_start_time_seconds": [(spool, _seconds(beat.started)) for spool, beat in alive],
        "process_last_success_timestamp_seconds": [(spool, _seconds(beat.last_success)) for spool, beat in alive],
        "process_events": [
            ({**spool, "outcome": outcome}, getattr(beat.counters, outcome))
            for spool, beat in alive
            for outcome in OUTCOMES
        ],
        # None of processes without a standby.
        "process_recalls": [
            ({**spool, "server": server}, getattr(beat, f"recalls_by_{server}"))
            for spool, beat in alive
            if beat.recalls_by_standby or beat.recalls_by_primary
            for server in ("standby", "primary")
        ],
        "process_vectors": [(spool, beat.healed) for spool, beat in alive],
    }


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
