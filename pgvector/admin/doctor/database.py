"""Checks of the database, its schema and role, the person key, and the embedder that fills it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from ...embedding import factory
from ...errors import EmbedderLimited, PgvectorError
from ...hosts.installation import upgrade
from ...session.person_key import PersonKey
from ...settings import Settings
from ...store.embedded import identity
from ...store.schema.preflight import (
    ENCODING,
    ENCODING_FOUND,
    ENCODING_REMEDY,
    PGVECTOR_MIN,
    PGVECTOR_SOUND,
    migrate_command,
    older,
)
from ...store.schema.verification import LATEST, SchemaState
from ...store.statistics import ServerInfo
from .. import refusal
from ..check import Check, failed, in_psql, place_of_setting, quoted
from ..disk import disk
from ..embedder import mismatch, mismatch_remedy, relevance_ms, response_ms
from ..overview import ABSENT, EARLIER, Overview, quota_line


def database(found: Overview, state: Path) -> Iterator[Check]:
    """The server, its versions, the schema, the privileges of the role, and whether its data are those of before.

    `state` is the folder of the home for files of this package.
    """
    if found.server and (not found.server.running or found.problem == EARLIER):
        what, _, remedy = found.problem.partition("; ")
        gone = found.problem != ABSENT and not found.server.data_dir.exists()
        yield Check("database", "problem" if gone else "warning", f"{what}: {found.where}", remedy)
        room = disk("server's disk", found.server.data_dir)
        if room.verdict == "problem":
            yield room
        if found.server.data_dir.exists():
            yield from _data_folder(found.server.data_dir, state)
        return
    if found.server_info is None:
        remedy = refusal.of_home(found.problem, state.parent)
        yield Check("database", "problem", f"{found.where}: {found.problem}", remedy)
        return
    info = found.server_info
    answered = f"{found.where} answers in {1000 * (found.seconds or 0):.0f} ms, Postgres {info.server_version}"
    yield Check("database", "ok", answered)
    yield _pgvector(info)
    if info.encoding != ENCODING:
        remedy = f"{ENCODING_REMEDY}; hermes-pgvector export and import move what is stored"
        yield Check("encoding", "problem", f"the database {ENCODING_FOUND.format(info.encoding)}", remedy)
    if info.hidden:
        yield _hidden(info)
    if found.schema is None and info.hidden:
        return
    if found.schema is None:
        what, _, command = found.problem.partition("; run: ")
        yield Check("schema", "problem", what, command or "run doctor again")
        return
    yield _schema(found.schema)
    yield _role(info)
    yield from _rows(found)
    if found.server:
        yield disk("server's disk", found.server.data_dir)
        yield from _data_folder(found.server.data_dir, state)


def _schema(schema: SchemaState) -> Check:
    """The version of the schema, and what this release cannot use of it."""
    over = ", distributed over a Citus cluster" if schema.distributed else ""
    what = f"version {schema.version}, vectors of {schema.dimensions} dimensions{over}"
    if schema.version > LATEST:
        what = f"{what}: newer than this release, which knows version {LATEST} and does not use what is new"
        return Check("schema", "warning", what, upgrade())
    return Check("schema", "ok", what)


def _data_folder(data: Path, state: Path) -> Iterator[Check]:
    """Whether the embedded database is the one of before."""
    if lost := identity.replaced(state, data):
        yield Check("data folder", "warning", lost, identity.remedy(state, data))


def _rows(found: Overview) -> Iterator[Check]:
    """Whether all rows have vectors, and the themes that are at their quota."""
    if found.totals is None:
        yield failed("rows", found.problem)
    elif found.totals.without_vector:
        missing = f"{found.rows}; {found.totals.without_vector:,} have no vector and are found by words only"
        remedy = "a running session embeds them; to embed them now: hermes-pgvector backfill"
        yield Check("rows", "warning", missing, remedy)
    else:
        yield Check("rows", "ok", found.rows)
    for quota in found.quotas:
        if quota.full:
            remedy = "raise theme_rows_max or theme_mb_max if older turns matter"
            yield Check("quota", "warning", quota_line(quota), remedy)


def person_key(key: PersonKey, found: Overview) -> Iterator[Check]:
    """Where the person key comes from."""
    name, variable = "person key", "HERMES_PGVECTOR_PERSON_KEY"
    if key.settled:
        yield Check(name, "ok", f"from {variable}")
    elif found.schema is None:
        return
    elif found.person_key and key.saved() not in ("", found.person_key):
        differs = "this home and the database have different keys: a person has another theme here than in other homes"
        remedy = f"set {variable} in every home, or delete {key.path}: persons then get new themes here"
        yield Check(name, "warning", differs, remedy)
    elif found.person_key:
        yield Check(name, "ok", f"from the database, and so in each dump of it; {variable} would keep it out of dumps")
    else:
        yield Check(name, "ok", "created by the next session")


def embedder(settings: Settings, found: Overview) -> Iterator[Check]:
    """Whether the embedder answers, and whether its vectors fit the database."""
    try:
        chosen = factory.build(settings, held=found.schema.embedding_model if found.schema else None)
    except PgvectorError as error:
        yield Check("embedder", "problem", "recall searches by words only", str(error))
        return
    try:
        took_ms = response_ms(chosen, settings.embed_timeout_s)
        yield Check("embedder", "ok", f"{chosen.model} answers in {took_ms:.0f} ms with {chosen.dimensions} dimensions")
        if found.schema:
            yield _model(settings, chosen.model, chosen.dimensions, found.schema)
    except PgvectorError as error:
        limited = isinstance(error, EmbedderLimited)
        remedy = "wait, or raise its rate limit" if limited else "start it, or correct embed_url and embed_model"
        words_only = "until then recall searches by words only"
        yield Check("embedder", "problem", f"{chosen.model}: {error}", f"{remedy}; {words_only}")
    finally:
        chosen.close()


def reranker(settings: Settings) -> Iterator[Check]:
    """Whether the re-ranker answers, where there is one."""
    if not settings.rerank_url:
        return
    try:
        chosen = factory.build_reranker(settings)
    except PgvectorError as error:
        yield Check("re-ranker", "problem", "hits keep the order of the search", str(error))
        return
    try:
        took_ms = relevance_ms(chosen, settings.embed_timeout_s)
        yield Check("re-ranker", "ok", f"answers in {took_ms:.0f} ms")
    except PgvectorError as error:
        remedy = "start it, or correct rerank_url and rerank_model; until then hits keep the order of the search"
        yield Check("re-ranker", "problem", str(error), remedy)
    finally:
        chosen.close()


def _pgvector(info: ServerInfo) -> Check:
    version, available = info.pgvector_version, info.pgvector_available
    if not older(version, PGVECTOR_SOUND):
        return Check("pgvector", "ok", f"pgvector {version}")
    if not older(version, PGVECTOR_MIN):
        remedy = f"update to {PGVECTOR_SOUND}: older versions may fail in VACUUM and in index builds"
        return Check("pgvector", "warning", f"pgvector {version}", remedy)
    if older(available, PGVECTOR_MIN):
        found = f"pgvector is {version or available or 'not installed'}"
        remedy = f"install pgvector {PGVECTOR_MIN} or newer on the server, then run doctor again"
    elif version:
        found = f"pgvector is {version} in this database, {available} on the server"
        remedy = "as a superuser, in this database: ALTER EXTENSION vector UPDATE"
    else:
        found = f"pgvector {available} is on the server, but not in this database"
        remedy = "the remedy of the schema installs it"
    return Check("pgvector", "problem", found, remedy)


def _hidden(info: ServerInfo) -> Check:
    on_path = [name.strip() for name in info.search_path.split(",")]
    if closed := ", ".join(schema for schema in info.hidden if schema in on_path):
        what = f"{info.role} may not use what is in schema {closed}, where the memory or pgvector is"
        return Check("search_path", "problem", what, in_psql(f"grant usage on schema {closed} to {quoted(info.role)}"))
    schemas = ", ".join(info.hidden)
    what = f"the memory or pgvector is in {schemas}, which is not on the search_path of {info.role}"
    # Other databases of the server are none of ours.
    here = f"database {quoted(info.database)}"
    place = place_of_setting(info.search_path_source, info.role, info.database, here)
    path = ", ".join(filter(None, (info.search_path, schemas)))
    return Check("search_path", "problem", what, in_psql(f"alter {place} set search_path = {path}"))


def _role(info: ServerInfo) -> Check:
    name, role = "role", info.role
    if info.missing:
        return Check(name, "problem", f"{role} lacks {', '.join(info.missing[:4])}", migrate_command(role))
    if info.superuser or info.owner:
        what = "a superuser" if info.superuser else "the owner of the tables"
        remedy = f"make a role for agents and put it into HERMES_PGVECTOR_DSN; its rights: {migrate_command()}"
        return Check(name, "warning", f"{role} is {what}", remedy)
    if info.excess:
        what = f"{role} may do more than agents of this release need: {', '.join(info.excess)}"
        return Check(name, "warning", what, migrate_command(role))
    return Check(name, "ok", f"{role} may read and write rows, and add to the history")


def _model(settings: Settings, model: str, dimensions: int | None, stored: SchemaState) -> Check:
    problem = mismatch(model, dimensions, stored)
    if not problem:
        return Check("model", "ok", f"{model} fits the database")
    held = stored.embedding_model
    if dimensions != stored.dimensions or held is None:
        return Check("model", "problem", problem, mismatch_remedy(settings, model, stored))
    use_held, use_new = (shlex.quote(name) for name in (held, model))
    remedy = (
        f"to use the model of the memory: hermes-pgvector settings set embed_model {use_held}; "
        f"to change it: hermes-pgvector reembed --model {use_new}"
    )
    return Check("model", "problem", problem, remedy)
