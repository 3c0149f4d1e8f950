"""The command: read cases, tell them, ask, measure, report."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .ablation import ablation
from .cases import Case, flat, locomo, matched
from .measures import means, measures
from .stage import Stage

LIMIT = 20
SETS = Path(__file__).resolve().parents[2] / "tests" / "data"


def main() -> None:
    options = _options()
    # Ended from outside, it still stops what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = flat(SETS / f"{options.set}.json") if options.set else locomo(options.data)
    results: dict[str, Any] = {}
    with Stage() as stage:
        for embedder in options.embedder or ["bundled"]:
            endpoint = stage.endpoint(embedder)
            for peer in [None, options.peer] if options.peer else [None]:
                told = stage.interview(cases, endpoint, LIMIT, peer)
                results[f"{'peer' if peer else 'ours'}, {embedder}"] = _measured(cases, told)
                if options.ablation and not peer:
                    results |= {
                        f"{embedder}: {change}": {"all": figures}
                        for change, figures in ablation(cases, told["dsn"], endpoint, LIMIT).items()
                    }
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        _show(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/eval", description="How much of what was said the memory finds again, measured from outside."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("data", type=Path, nargs="?", help="conversations in the shape of LoCoMo's JSON")
    what.add_argument("--set", choices=("cjk", "identifiers"), help="a set of tests/data")
    parser.add_argument(
        "--embedder", action="append", metavar="bundled|minilm|none|URL[#MODEL]",
        help="may be given again; bundled if not; none is recall by words alone",
    )  # fmt: skip
    parser.add_argument("--peer", type=Path, metavar="VENV", help="the rival's environment, for the same run on it")
    parser.add_argument("--ablation", action="store_true", help="also what is found without each part of a recall")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    options = parser.parse_args()
    if options.ablation and "none" in (options.embedder or ()):
        parser.error("--ablation needs vectors, so no --embedder none")
    return options


def _measured(cases: Sequence[Case], told: Mapping[str, Any]) -> dict[str, Any]:
    by_category: dict[str, list[dict[str, float]]] = {}
    by_theme: dict[str, list[dict[str, float]]] = {}
    for case, answers in zip(cases, told["answers"], strict=True):
        for question, contents in zip(case.questions, answers, strict=True):
            measured = measures(matched(case, contents), question.evidence)
            by_category.setdefault(question.category, []).append(measured)
            by_theme.setdefault(case.theme, []).append(measured)
    return {
        "all": means([measured for group in by_category.values() for measured in group]),
        "by category": {name: means(group) for name, group in sorted(by_category.items())},
        "by conversation": {name: means(group) for name, group in by_theme.items()},
        "rows": told["rows"],
        "told_s": round(told["told_s"], 1),
        "asked_s": round(told["asked_s"], 1),
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
            print(f"{what:{width}}{figures['questions']:10}" + "".join(f"{figures[name]:11.3f}" for name in names))


if __name__ == "__main__":
    main()
