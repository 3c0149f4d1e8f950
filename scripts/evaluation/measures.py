"""Measures of a ranking: recall@k, mean reciprocal rank (MRR) and nDCG@10, with binary relevance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

DEPTHS = (5, 10, 20)


def measures(found: Sequence[AbstractSet[str]], evidence: AbstractSet[str]) -> dict[str, float]:
    """The measures of one question. `found` holds the ids that each hit contains, best first.

    recall@k is the share of the evidence among the first k hits. An id counts at its first hit only.
    """
    seen: set[str] = set()
    gains = []
    for ids in found:
        fresh = (ids & evidence) - seen
        seen |= fresh
        gains.append(len(fresh))
    first = next((place for place, gain in enumerate(gains, 1) if gain), None)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(10, len(evidence)) + 1))
    gained = sum(min(1, gain) / math.log2(place + 1) for place, gain in enumerate(gains[:10], 1))
    recalls = {f"recall@{depth}": sum(gains[:depth]) / len(evidence) for depth in DEPTHS}
    return recalls | {"mrr": 1 / first if first else 0.0, "ndcg@10": gained / ideal}


def means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure, and the number of questions."""
    names = measured[0] if measured else ()
    return {name: sum(one[name] for one in measured) / len(measured) for name in names} | {"questions": len(measured)}
