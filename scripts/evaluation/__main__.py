"""Command line of scripts/eval: store conversations in a memory, ask questions, report measures of recall."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hermes_memory_pgvector.store.schema.migrations import migrate

from . import recall_report as report
from . import recall_run
from .ablation import ablation
from .bundled_models import table
from .cases import Case, flat, locomo, matched
from .environment import CACHE, Environment
from .measures import means, measures
from .recall_measures import grouped
from .recall_sets import load
from .sessions import compared, lives_of
from .vector_cache import cached_models

LIMIT = 20
SETS = Path(__file__).resolve().parents[2] / "tests" / "data"


def main() -> None:
    options = _options()
    # On SIGTERM, too, stop the servers that this process started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.models:
        print(json.dumps(table(flat(SETS / "meaning.json")), indent=1))
        return
    if folder := _recall_folder(options):
        _recall_sets(options, folder)
        return
    cases = flat(SETS / f"{options.set}.json") if options.set else locomo(options.data)
    results: dict[str, Any] = {}
    with Environment() as environment:
        for embedder in options.embedder or ["bundled"]:
            endpoint = environment.endpoint(embedder)
            for peer in [None, options.peer] if options.peer else [None]:
                if options.sessions:
                    lives = list(lives_of(cases))
                    run = environment.run([one.case for one in lives], endpoint, LIMIT)
                    with TemporaryDirectory() as folder:
                        figures = compared(lives, run["dsn"], endpoint, Path(folder))
                    results |= {f"{name}, {embedder}": {"all": figures_} for name, figures_ in figures.items()}
                    continue
                run = environment.run(cases, endpoint, LIMIT, peer)
                results[f"{'peer' if peer else 'ours'}, {embedder}"] = _measured(cases, run)
                if options.ablation and not peer:
                    results |= {
                        f"{embedder}: {change}": {"all": figures}
                        for change, figures in ablation(cases, run["dsn"], endpoint, LIMIT).items()
                    }
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        _show(results)


def _recall_folder(options: argparse.Namespace) -> Path | None:
    """The folder of the recall sets, if these are what is measured."""
    folder = SETS / "recall" if options.set == "recall" else options.data
    return folder if folder and folder.is_dir() else None


def _recall_sets(options: argparse.Namespace, folder: Path) -> None:
    sets = load(folder, options.half, options.classes or (), alone=options.alone)
    printed: dict[str, Any] = {"half": options.half}
    with Environment() as environment, cached_models(CACHE):
        for embedder in options.embedder or ["bundled"]:
            home, endpoint = environment.folder(), environment.endpoint(embedder)
            dsn = environment.database(home.name)
            migrate(dsn, dimensions=endpoint.dimensions)
            asked = recall_run.run(sets, dsn, endpoint, home)
            if options.peer:
                run = environment.run_conversations([sets.conversation()], endpoint, LIMIT, options.peer, short=True)
                asked["peer"] = recall_run.of_peer(sets, run["answers"][0])
            results = {name: grouped(of, options.by or ()) for name, of in asked.items()}
            places = ", each class in a theme of its own" if options.alone else ""
            title = f"{len(sets.rows)} rows{places}, questions of the half {options.half}, {embedder}"
            if not options.json:
                print(f"{title}\n\n{report.table(results)}\n")
            if options.plot:
                report.plot(results, options.plot, title)
            if options.hits:
                printed[f"{embedder} hits"] = {name: list(map(recall_run.as_json, of)) for name, of in asked.items()}
            printed[embedder] = report.plain(results)
    if options.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/eval",
        description="Stores conversations in a memory, asks it questions, and measures how well it recalls.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "data", type=Path, nargs="?", help="conversations in the JSON format of LoCoMo, or a folder of recall sets"
    )
    what.add_argument(
        "--set",
        choices=("recall", "cjk", "identifiers", "meaning"),
        help="documents and questions of tests/data instead; recall: its fourteen sets in one memory",
    )
    what.add_argument(
        "--models", action="store_true", help="what each bundled model finds of --set meaning, and what it costs"
    )
    parser.add_argument(
        "--embedder", action="append", metavar="bundled[#MODEL]|e5|minilm|none|URL[#MODEL]",
        help="may be repeated (default: bundled); e5 and minilm are served over HTTP; none recalls by words only",
    )  # fmt: skip
    parser.add_argument(
        "--peer", type=Path, metavar="VENV", help="also evaluate the earlier package in this virtual environment"
    )
    parser.add_argument("--ablation", action="store_true", help="also measure recall with each of its rules changed")
    parser.add_argument(
        "--sessions", action="store_true",
        help="instead of recall by tools, what fifty turns before which memories come have in their context",
    )  # fmt: skip
    recall = parser.add_argument_group("recall sets")
    recall.add_argument(
        "--half",
        choices=("dev", "held_out"),
        default="dev",
        help="held_out: for figures that are reported, not to tune",
    )
    recall.add_argument(
        "--classes", nargs="+", metavar="CLASS", help="only the questions of these; all rows are stored"
    )
    recall.add_argument("--alone", action="store_true", help="each class in a theme of its own rows, not all in one")
    recall.add_argument("--by", action="append", choices=("kind", "lang"), help="also the figures of each of a class")
    recall.add_argument("--plot", type=Path, metavar="FILE", help="also plot the classes, as SVG, PNG or PDF")
    recall.add_argument("--hits", action="store_true", help="also the hits of each question in --json; not of held_out")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if options.ablation and "none" in (options.embedder or ()):
        parser.error("--ablation needs vectors and cannot run with --embedder none")
    if options.peer and any(name.startswith("bundled") for name in options.embedder or ["bundled"]):
        parser.error("--peer needs an embedder over HTTP: add --embedder minilm")
    if options.hits and (options.half == "held_out" or not options.json):
        parser.error("--hits needs --json, and the questions of held_out are not to be read one by one")
    if options.alone and options.peer:
        parser.error("--alone measures this package only")
    if options.plot and len(options.embedder or ()) > 1:
        parser.error("--plot draws one embedder")
    return options


def _measured(cases: Sequence[Case], run: Mapping[str, Any]) -> dict[str, Any]:
    by_category: dict[str, list[dict[str, float]]] = {}
    by_theme: dict[str, list[dict[str, float]]] = {}
    for case, answers in zip(cases, run["answers"], strict=True):
        for question, hits in zip(case.questions, answers, strict=True):
            texts = [matched(case, contents) for contents in hits]
            measured = measures([frozenset().union(*of_hit) for of_hit in texts], question.evidence)
            # The other side of a turn read as a text of its own, after the one that its hit is for.
            measured["texts@10"] = measures(list(chain.from_iterable(texts)), question.evidence)["recall@10"]
            by_category.setdefault(question.category, []).append(measured)
            by_theme.setdefault(case.theme, []).append(measured)
    return {
        "all": means([measured for group in by_category.values() for measured in group]),
        "by category": {name: means(group) for name, group in sorted(by_category.items())},
        "by conversation": {name: means(group) for name, group in by_theme.items()},
        "rows": run["rows"],
        "told_s": round(run["stored_s"], 1),
        "asked_s": round(run["asked_s"], 1),
    }


def _show(results: Mapping[str, Any]) -> None:
    names = [name for name in next(iter(results.values()))["all"] if name != "questions"]
    width = max(24, *(len(who) + 2 for who in results))
    print(f"{'':{width}}{'questions':>10}" + "".join(f"{name:>11}" for name in names))
    for who, result in results.items():
        for what, figures in [
            (who, result["all"]),
            *((f"  {name}", one) for name, one in result.get("by category", {}).items()),
        ]:
            print(
                f"{what:{width}}{figures['questions']:10}"
                + "".join(f"{figures.get(name, nan):11.3f}" for name in names)
            )


if __name__ == "__main__":
    main()
