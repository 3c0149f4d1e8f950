"""Run in a host's Python, with a JSON list of homes: the name of each one's profile by the host, and ours.

A second argument is the home of a gateway that serves them all.
Prints a JSON list of {"theirs", "ours"}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hermes_cli.profiles import get_active_profile_name
from hermes_constants import set_hermes_home_override

from hermes_memory_pgvector.hosts.environment import profile_name

found = []
for home in json.loads(sys.argv[1]):
    os.environ["HERMES_HOME"] = sys.argv[2] if sys.argv[2:] else home
    set_hermes_home_override(home)
    found.append({"ours": profile_name(Path(home)), "theirs": get_active_profile_name()})
print(json.dumps(found))
