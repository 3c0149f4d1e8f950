"""Has the host record sessions that continue others, and prints what this package takes each of them to continue."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hermes_state import SessionDB

from hermes_memory_pgvector.hosts import state_db

home = Path(os.environ["HERMES_HOME"])
record = SessionDB(home / "state.db")
record.create_session("first", "cli")
record.end_session("first", "compression")
record.create_session("compressed", "cli", parent_session_id="first")
record.create_session("child", "cli", parent_session_id="first", model_config={"_delegate_from": "first"})
record.create_session("branch", "cli", parent_session_id="compressed", model_config={"_branched_from": "compressed"})
record.end_session("branch", "session_reset")
record.create_session("new", "cli", parent_session_id="branch", model_config={"_reset_from": "branch"})
print(json.dumps({name: state_db.continued(home, name, 20) for name in ("compressed", "child", "branch", "new")}))
