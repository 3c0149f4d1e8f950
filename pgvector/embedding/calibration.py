"""The similarity that a model gives to unrelated texts.

The cosine of two unrelated texts is near 0 for one model and near 0.8 for another, so a fixed floor fits no two models.
The floor is measured instead, on queries and passages that share no subject.
"""

from __future__ import annotations

import time

from .protocol import Embedder

# The share of unrelated pairs below the floor. A quantile is better than a mean plus deviations: for some models two
# texts in the same rare script are outliers. This one is the highest that one outlying passage of the twelve leaves.
SHARE_BELOW = 0.915

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
    import numpy as np

    deadline = time.monotonic() + timeout_s
    passages = embedder.embed_passages(PASSAGES, timeout_s)
    queries = [embedder.embed_query(query, max(0.0, deadline - time.monotonic())) for query in QUERIES]
    cosines = np.array(queries) @ np.array(passages).T
    return float(np.quantile(cosines, SHARE_BELOW))
