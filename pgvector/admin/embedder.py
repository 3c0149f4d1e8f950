"""The embedder of a home: its vector length, its response time, and whether its vectors fit the database."""

from __future__ import annotations

import shlex
import time

from ..embedding import factory
from ..embedding.protocol import Embedder
from ..embedding.reranker import Reranker
from ..errors import EmbedderUnavailable, PgvectorError, SettingsError
from ..settings import Settings
from ..store.schema.preflight import ADMINISTRATOR
from ..store.schema.verification import SchemaState

PROBE = "Where do we keep the notes of last week?"
PROBE_S_MAX = 5.0


def response_ms(embedder: Embedder, timeout_s: float) -> float:
    """Milliseconds that one query takes, after a first one that may load the model. Raises what the embedder raises."""
    embedder.embed_query(PROBE, timeout_s)
    started = time.monotonic()
    embedder.embed_query(PROBE, timeout_s)
    return 1000 * (time.monotonic() - started)


def relevance_ms(reranker: Reranker, timeout_s: float) -> float:
    """Milliseconds that the scores of two texts take, after a first request. Raises what the re-ranker raises."""
    texts = ["The notes of last week are in the wiki.", "The car is red."]
    reranker.scores(PROBE, texts, timeout_s)
    started = time.monotonic()
    reranker.scores(PROBE, texts, timeout_s)
    return 1000 * (time.monotonic() - started)


def mismatch(model: str, dimensions: int | None, stored: SchemaState | None) -> str:
    """Why vectors of this model cannot be stored beside those in the database; empty when they can."""
    if stored is None:
        return ""
    if dimensions != stored.dimensions:
        holds = "holds" if stored.embedding_model else "has no vectors yet, and is made for"
        return f"{model} makes vectors of {dimensions} dimensions, the database {holds} vectors of {stored.dimensions}"
    if stored.embedding_model not in (None, model):
        return f"the database holds vectors of {stored.embedding_model}, this home uses {model}"
    return ""


def mismatch_remedy(settings: Settings, model: str, stored: SchemaState | None) -> str:
    """What to do about a mismatch with the embedder of these settings."""
    if stored is None or stored.embedding_model:
        return "set embed_url and embed_model to the model that made the stored vectors"
    command = f"hermes-pgvector reembed --model {shlex.quote(model)} --url {shlex.quote(settings.embed_url)}"
    administrator = f" --dsn {ADMINISTRATOR}" if settings.dsn.get_secret_value() else ""
    return f"to use this model: {command}{administrator}"


def vector_length(settings: Settings) -> int | None:
    """The number of dimensions of the home's embedder; None when there is no usable embedder.

    Raises EmbedderUnavailable when only the embedder knows it, and does not answer.
    """
    try:
        embedder = factory.build(settings)
    except SettingsError:
        return None
    try:
        if embedder.dimensions is None:
            embedder.embed_query(PROBE, PROBE_S_MAX)
        return embedder.dimensions
    except EmbedderUnavailable as error:
        raise EmbedderUnavailable(
            f"the number of dimensions of {embedder.model} is unknown until it answers ({error}); give --dimensions N"
        ) from None
    except PgvectorError:
        return None
    finally:
        embedder.close()
