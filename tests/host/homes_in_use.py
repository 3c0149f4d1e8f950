"""Run in a host's Python, with a JSON list of environments: the home that its own command uses in each, and ours.

Prints a JSON list of {"theirs", "ours"}; a home is null where the command refuses to start.
"""

from __future__ import annotations

import json
import os
import sys

from hermes_cli import main
from hermes_constants import get_process_hermes_home

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.hosts.environment import shell_home


def ours():
    try:
        return str(shell_home()[0])
    except SettingsError:
        return None


def theirs():
    try:
        main._apply_profile_override()
    except SystemExit:
        return None
    return str(get_process_hermes_home())


sys.argv[1:], environments = ["pgvector", "status"], json.loads(sys.argv[1])
found = []
given = {name: value for name, value in os.environ.items() if name != "HERMES_HOME"}
for environment in environments:
    os.environ.clear()
    os.environ.update(given | environment)
    found.append({"ours": ours(), "theirs": theirs()})
print(json.dumps(found))
