"""A plain loop to compare with: embed 64 texts, insert 64 rows, commit, repeat."""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psycopg
from pgvector.psycopg import register_vector
from psycopg.rows import scalar_row
from texts import turns

from pgvector import HalfVector, Vector

BATCH_ROWS = 64
# The columns of each package, filled as the package fills them.
_INSERT = {
    "ours": """
        insert into conversations (agent_identity, session_id, role, content, embedding, search)
        values ('bench', 'session-0', %s, %s, %s, to_tsvector('english', %s))""",
    "peer": """
        insert into conversations (agent_identity, session_id, role, content, embedding, metadata)
        values ('bench', 'session-0', %s, %s, %s, jsonb_build_object('chars', length(%s)))""",
}
_VECTOR = {"ours": HalfVector, "peer": Vector}


def store(dsn: str, tables: str, embed_url: str, count: int) -> dict[str, Any]:
    """Store `count` turns in the tables of `ours` or of the `peer`; returns rows lost, seconds and rows a second."""
    rows_to_store = [row for turn in turns("burst 0", count) for row in zip(("user", "assistant"), turn, strict=True)]
    address = urlsplit(embed_url)
    endpoint = http.client.HTTPConnection(address.hostname or "", address.port)
    insert, as_vector = _INSERT[tables], _VECTOR[tables]
    with psycopg.connect(dsn, row_factory=scalar_row) as connection:
        register_vector(connection)
        began = time.monotonic()
        for start in range(0, len(rows_to_store), BATCH_ROWS):
            batch = rows_to_store[start : start + BATCH_ROWS]
            vectors = _embed(endpoint, [text for _, text in batch])
            rows = [(role, text, as_vector(vector), text) for (role, text), vector in zip(batch, vectors, strict=True)]
            connection.cursor().executemany(insert, rows)
            connection.commit()
        seconds = time.monotonic() - began
        stored = connection.execute("select count(embedding) from conversations").fetchone()
    return {
        "rows_lost": len(rows_to_store) - int(stored or 0),
        "seconds": seconds,
        "rows_per_s": len(rows_to_store) / seconds,
    }


def _embed(endpoint: http.client.HTTPConnection, texts: list[str]) -> list[np.ndarray]:
    body = json.dumps({"model": "nomic-embed-text", "input": texts, "encoding_format": "base64"})
    endpoint.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    answer = json.loads(endpoint.getresponse().read())
    return [np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4") for item in answer["data"]]
