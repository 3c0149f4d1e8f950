"""reembed: change the embedding model of a database while agents read and write."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ...embedding import factory
from ...embedding.protocol import Embedder
from ...errors import BadArgument, EmbedderMismatch, EmbedderUnavailable, PgvectorError, SettingsError
from ...settings import Settings, load
from ...store import clients, second_column
from ...store.connection.database import Database
from ...store.schema import migrations, verification
from ...store.schema.preflight import Connection, admin_connection, check_direct, migrate_command
from ...store.schema.verification import Origin
from ..console import Console, counted
from ..database import administrators_dsn
from ..embedder import PROBE
from . import plan, successors
from .comparison import Comparison, compare
from .filling import Filling, build_indexes
from .plan import Plan

# Rows that come while the columns are exchanged get their vectors afterwards. So may as many that came just before.
LEFT_ROWS_MAX, ROUNDS_MAX = 100, 20


@dataclass
class _Outcome:
    """What a run did, for `--json`."""

    embedded: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    compared: Comparison | None = None
    switched: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def reembed(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Change the model. Returns 0, or 3 when rows or processes are left behind or settings could not be saved.

    Raises BadArgument, SettingsError, DatabaseUnavailable, SchemaNotApplied, EmbedderUnavailable and EmbedderMismatch,
    and KeyboardInterrupt; then finished parts are stored, and the next run goes on with them.
    """
    settings = load(home)
    if not args.abandon and args.model is None:
        raise BadArgument("give --model NAME, the new model (or --abandon to drop what an unfinished run has made)")
    target, embedded = administrators_dsn(settings, home, console, args.dsn)
    with admin_connection(target) as connection:
        check_direct(connection, target)
        stored = verification.verify(connection, "hermes-pgvector server start" if embedded else "")
        if stored.distributed:
            raise SettingsError("reembed does not work on a Citus cluster: see docs/scale.md for what to do instead")
        if pending := migrations.pending(connection):
            raise SettingsError(f"the database lacks {', '.join(pending)}; run first: {migrate_command()}")
        if args.abandon:
            return _abandon(connection, console)
        after = successors.wanted(settings, args.model, args.url, args.dimensions)
        if args.batch:
            after = after.model_copy(update={"embed_batch_max": args.batch})
        with closing(factory.build(after)) as embedder:
            origin = _origin(embedder, after, args.dimensions)
            if _is_done(connection, stored, origin):
                return _finish_settings(home, console, after, origin)
            made = plan.make(connection, stored, origin, embedder, after, home)
            plan.show(console, made)
            if args.dry_run:
                console.data({"plan": made.document(), "dry_run": True})
                return 0
            _check(connection, made, args)
            if not console.agreed(args, "Change the model?"):
                return 1
            own = after.model_copy(update={"dsn": SecretStr(target)})
            return _Run(home, console, connection, own, embedder, origin, made).go(force=args.force)


class _Run:
    """A change of the model, from the second column to the settings of the home."""

    def __init__(
        self, home: Path, console: Console, connection: Connection, settings: Settings, embedder: Embedder,
        origin: Origin, made: Plan,
    ) -> None:  # fmt: skip
        self._home, self._console, self._connection = home, console, connection
        self._settings, self._embedder, self._origin, self._plan = settings, embedder, origin, made
        self._outcome = _Outcome()

    def go(self, *, force: bool) -> int:
        second_column.lock(self._connection)
        if second_column.begun(self._connection) is None:
            second_column.begin(self._connection, self._origin)
        try:
            with closing(Database(self._settings, self._home)) as database:
                self._fill(database)
                self._compare(force=force)
                self._check_older(force=force)
                with self._console.busy("changing to the new model"):
                    second_column.switch(self._connection, self._origin)
                self._outcome.switched = True
                self._save_settings()
                self._fill_rest(database)
        except KeyboardInterrupt:
            self._report()
            raise
        self._report()
        left = self._outcome.refused or self._outcome.problem or self._plan.others or self._plan.older
        return 3 if left else 0

    def _fill(self, database: Database) -> None:
        """Fill and index the second column, and then what agents have stored meanwhile."""
        connection, origin, console = self._connection, self._origin, self._console
        build_indexes(connection, origin, console, only="unembedded")
        filling = Filling(database, self._embedder, self._settings, second=True)
        try:
            filling.run(console, self._plan.lacking)
            build_indexes(connection, origin, console)
            self._fill_newest(filling)
        finally:
            self._outcome.embedded += filling.rows_done
            self._outcome.refused = [
                {"kind": kind, "id": row, "reason": reason} for (kind, row), reason in filling.refused.items()
            ]

    def _fill_newest(self, filling: Filling) -> None:
        """Fill what agents have stored meanwhile, until little is left. Raises EmbedderUnavailable when it grows."""
        for _ in range(ROUNDS_MAX):
            lacking = second_column.progress(self._connection, second=True).lacking
            if lacking > len(filling.refused):
                filling.run(self._console, lacking)
            if lacking <= LEFT_ROWS_MAX + len(filling.refused):
                return
        raise EmbedderUnavailable(
            f"agents store rows faster than {self._origin.model} embeds them; run the command again at a quieter time"
        )

    def _compare(self, *, force: bool) -> None:
        with self._console.busy("comparing recalls"):
            self._outcome.compared = compared = compare(self._connection, self._embedder, self._settings)
        self._console.say(
            f"compared {counted(compared.sampled, 'row')}: {compared.matching} have the vectors of their texts, "
            f"{compared.found} are found by them; {compared.same_pct:g} % of the nearest rows are the same as with the "
            "old vectors"
        )
        if compared.problem and not force:
            raise EmbedderMismatch(
                f"{compared.problem}: was something else served as {self._origin.model} when they were made? The model "
                "is not changed; to start anew: hermes-pgvector reembed --abandon; to change all the same: --force"
            )

    def _check_older(self, *, force: bool) -> None:
        """Look again for agents of earlier releases, which may have come meanwhile. Raises SettingsError."""
        if not force and clients.older(self._connection):
            raise SettingsError(_OLDER)

    def _save_settings(self) -> None:
        try:
            self._outcome.settings = successors.save(self._home, self._settings)
        except (SettingsError, OSError) as error:
            self._outcome.problem = f"the settings of this home are not changed: {error}"

    def _fill_rest(self, database: Database) -> None:
        """Add the vectors of the rows that came while the columns were exchanged. Agents do it, too."""
        filling = Filling(database, self._embedder, self._settings, second=False)
        try:
            filling.run(self._console, second_column.progress(self._connection, second=False).lacking)
        except PgvectorError as error:
            self._console.say(f"agents add the vectors of the newest rows: {error}")
        self._outcome.embedded += filling.rows_done

    def _report(self) -> None:
        done, console = self._outcome, self._console
        document = {name: getattr(done, name) for name in ("embedded", "refused", "switched", "settings", "problem")}
        compared = done.compared._asdict() if done.compared else None
        console.data({"plan": self._plan.document(), **document, "compared": compared, "dry_run": False})
        if not done.switched:
            console.say("interrupted; finished parts are stored, and the same command goes on with them")
            return
        console.show(f"the database has vectors of {self._origin.model} ({self._origin.dimensions} dimensions) now")
        for key, value in done.settings.items():
            console.show(f"{key} is {value!r} in the settings of this home")
        if done.problem:
            console.say(done.problem)
        if done.refused:
            console.say(f"{counted(len(done.refused), 'row')} without a vector: the model refuses them")
        console.say(f"other homes need embed_model {self._origin.model} in their settings")


_OLDER = (
    "agents of an earlier release use this database; they would mix the vectors of both models: end or upgrade them, "
    "then run reembed again; or go on with --force"
)


def _check(connection: Connection, made: Plan, args: argparse.Namespace) -> None:
    """Raise SettingsError when another change is unfinished, or agents of an earlier release are there."""
    begun = second_column.begun(connection)
    if begun is not None and begun != (made.model, made.dimensions):
        raise SettingsError(
            f"a change to {begun.model} ({begun.dimensions} dimensions) is unfinished: finish it, or run first: "
            "hermes-pgvector reembed --abandon"
        )
    if made.older and not args.force:
        raise SettingsError(_OLDER)


def _abandon(connection: Connection, console: Console) -> int:
    begun = second_column.begun(connection)
    if begun is not None:
        second_column.lock(connection)
        second_column.abandon(connection)
    console.data({"abandoned": begun._asdict() if begun else None})
    console.show(f"dropped the vectors of {begun.model}" if begun else "nothing to do: no change is unfinished")
    return 0


def _is_done(connection: Connection, stored: verification.SchemaState, origin: Origin) -> bool:
    return (stored.embedding_model, stored.dimensions) == origin and second_column.begun(connection) is None


def _finish_settings(home: Path, console: Console, after: Settings, origin: Origin) -> int:
    """Save the settings of a home whose database has the model already."""
    changed = successors.save(home, after)
    console.data({"plan": None, "switched": False, "settings": changed, "dry_run": False})
    console.show(f"nothing to do: the database has vectors of {origin.model} ({origin.dimensions} dimensions)")
    for key, value in changed.items():
        console.show(f"{key} is {value!r} in the settings of this home")
    return 0


def _origin(embedder: Embedder, settings: Settings, dimensions: int) -> Origin:
    """The model with the length of the vectors that it answers. Raises the errors of the embedder."""
    length = len(embedder.embed_query(PROBE, settings.embed_timeout_s))
    if dimensions not in (0, length):
        raise EmbedderMismatch(f"{embedder.model} makes vectors of {length} dimensions, not of {dimensions}")
    return Origin(embedder.model, length)
