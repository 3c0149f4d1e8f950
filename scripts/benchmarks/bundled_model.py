"""Scenarios with the bundled model, which a user has who sets nothing: their pace, beside that of the model alone."""

from __future__ import annotations

from itertools import chain

from progress import Progress
from run import Figures, Run, Turn
from texts import prose

from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.passages import prepare

REQUEST_TEXTS = 16
SHORT_CHARS = (250,)
LONG_CHARS = (*(1500,) * 11, 20_000)
MINUTE_S = 60


def bundled(run: Run) -> Figures:
    """Turns of ordinary length, 90 to 350 characters a text, sent at once."""
    return _beside_the_model(run, prose("ordinary", run.sizes.bundled_turns, SHORT_CHARS))


def bundled_long(run: Run) -> Figures:
    """Turns of an assistant, sent at once: answers of about 1,500 characters, one in twelve of about 20,000."""
    return _beside_the_model(run, prose("long", run.sizes.bundled_long_turns, LONG_CHARS))


def backlog(run: Run) -> Figures:
    """The conversations of the file given by --data, sent at once: how far the vectors are after each minute."""
    offered = sum(bool(text) for turn in run.conversations for text in turn[1:])
    with run.session(list(run.conversations), embed_url="", dimensions=_dimensions()) as session:
        progress, _ = session.send(offered)
        minutes = range(1, int(progress.samples[-1].second) // MINUTE_S + 1)
        return {
            **_pace(progress, offered),
            "agent_cpu_s": session.cpu_s(),
            **{f"rows_embedded_after_{minute}_min": progress.embedded_at(minute * MINUTE_S) for minute in minutes},
        }


def _beside_the_model(run: Run, said: list[Turn]) -> Figures:
    offered = 2 * len(said)
    with run.session(said, embed_url="", dimensions=_dimensions()) as session:
        progress, _ = session.send(offered)
        cpu_s = session.cpu_s()
        rows = session.rows
    texts = _texts(said)
    with run.environment.agents(run.package, "", embed_url="") as [alone]:
        model = alone("embed", texts=texts, request_texts=REQUEST_TEXTS)
    took_s = progress.embedded_s(offered)
    return {
        **_pace(progress, offered),
        "rows_warm": rows,
        "agent_cpu_s": cpu_s,
        "model_alone_s": model["seconds"],
        "model_alone_cpu_s": model["cpu_s"],
        "model_alone_texts_per_s": len(texts) / model["seconds"],
        "model_pace_share": None if took_s is None else model["seconds"] / took_s,
    }


def _pace(progress: Progress, offered: int) -> Figures:
    first_row_s, first_vector_s = progress.rows_s(1), progress.embedded_s(1)
    late = first_row_s is not None and first_vector_s is not None
    return {
        "rows_offered": offered,
        "rows_lost": offered - progress.rows,
        "rows_without_vector": progress.rows - progress.embedded,
        "all_rows_s": progress.rows_s(offered),
        "first_vector_s": first_vector_s,
        "first_vector_after_first_row_s": first_vector_s - first_row_s if late else None,
        "last_vector_s": progress.embedded_s(offered),
        "rows_per_s": progress.embedded / progress.took_s,
    }


def _texts(said: list[Turn]) -> list[str]:
    """Every text that is embedded for the rows of these turns of one session."""
    settings, before, found = Settings(), "", []
    for question, answer in said:
        event = TurnTaken(theme="bench", user=question, assistant=answer)
        found += [each.texts(settings) for each in prepare(event, before).passages]
        before = answer
    return list(chain.from_iterable(found))


def _dimensions() -> int:
    dimensions = factory.build(Settings()).dimensions
    assert dimensions is not None, "the bundled model names the length of its vectors"
    return dimensions
