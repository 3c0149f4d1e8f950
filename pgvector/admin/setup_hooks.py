"""The hooks of the host's set-up and panels. Hosts import this module, so each hook imports what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hosts.environment import hermes_home
from ..hosts.guard import guarded


class SetupHooks:
    """Set-up in the terminal, settings to show and save, status, files to back up, identity of the memory."""

    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> None:
        """Run the set-up in the terminal."""
        from .setup.wizard import wizard

        wizard(hermes_home, config)

    @guarded(list[dict[str, Any]])
    def get_config_schema(self) -> list[dict[str, Any]]:
        """The few settings that a new user may want, for the host's form."""
        from . import panel

        return panel.fields()

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        """Save settings that are not secret. Raises ValueError, which hosts show, for a value that is not allowed."""
        from . import panel

        panel.save(values, hermes_home)

    @guarded(dict[str, Any])
    def get_status_config(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002
        """What `hermes memory status` shows: the database and the embedder, without secrets."""
        from . import panel

        return panel.status(hermes_home())

    @guarded(list[str])
    def backup_paths(self) -> list[str]:
        """The folder with a dump of the embedded server, made now; empty for another Postgres."""
        from . import panel

        return panel.backups(hermes_home())

    @guarded(dict[str, Any])
    def identity_signature(self) -> dict[str, Any]:
        """The settings that decide whose memory it is. Hosts drop a cached agent when they change."""
        from . import panel

        return dict(panel.identity(hermes_home()))
