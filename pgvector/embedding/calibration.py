"""The similarity that a model gives to unrelated texts.

The cosine of two unrelated texts is near 0 for one model and near 0.8 for another, so a fixed floor fits no two models.
The floor is measured instead, on queries and passages that share no subject.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from operator import mul

from ..model import Vector
from .protocol import Embedder

# The share of unrelated pairs below the floor. A quantile is better than a mean plus deviations: for some models two
# texts in the same rare script are outliers. With this share nearly all related pairs stay above the floor.
_SHARE_BELOW = 0.85

QUERIES = (
    "Which day does the recycling truck come to our street?",
    "How do I rotate the TLS certificate of the load balancer?",
    "Comment s'appelle le chat de ma voisine ?",
    "¿Cuántos huevos lleva la tortilla de mi abuela?",
    "Welche Schuhgröße hat mein Sohn?",
    "二号线地铁末班车几点?",
    "どのギターの弦を使っていますか",
    "who won the chess tournament at the library",
)

PASSAGES = (
    "The dentist moved the appointment to Thursday morning because of the holiday.",
    "Build 412 fails on ARM since the linker flag was dropped; pin binutils until the vendor fixes it.",
    "Prefers short answers in plain English and no emoji.",
    "Der Mietvertrag läuft im September aus, die Kündigungsfrist beträgt drei Monate.",
    "La réunion budgétaire aura lieu en visioconférence avec l'équipe de Lyon.",
    "El vuelo a Bogotá sale con dos horas de retraso por la niebla.",
    "这个项目使用 Redis 缓存会话, 过期时间设为半小时。",
    "祖母は毎朝六時に庭の花に水をやります。",
    "Volcanic soil is rich in minerals and drains well, which suits coffee trees.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Sure, I have added the milk, the batteries and the dog food to your list.",
    "Vendor invoices above five thousand euros need a second signature.",
)


def noise_floor(embedder: Embedder, timeout_s: float) -> float:
    """The cosine below which the model considers a passage unrelated to a query.

    Embeds 20 texts, within `timeout_s` seconds in total. Raises the errors of the embedder.
    """
    deadline = time.monotonic() + timeout_s
    passages = embedder.embed_passages(PASSAGES, timeout_s)
    queries = [embedder.embed_query(query, max(0.0, deadline - time.monotonic())) for query in QUERIES]
    return floor_of([cosine(query, passage) for query in queries for passage in passages])


def floor_of(unrelated: Sequence[float]) -> float:
    """The floor for the cosines of unrelated pairs: at least one value, each in [-1, 1].

    It is a quantile with linear interpolation.
    """
    ordered = sorted(unrelated)
    place = _SHARE_BELOW * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def cosine(left: Vector, right: Vector) -> float:
    """The cosine of two vectors of equal length; neither may be all zero."""
    norms = math.sqrt(sum(map(mul, left, left)) * sum(map(mul, right, right)))
    return math.fsum(map(mul, left, right)) / norms
