"""Run in a host's Python: what the host makes of messages with parts before it hands a turn to its providers.

Takes a JSON list of contents and prints the list of their texts.
"""

from __future__ import annotations

import json
import sys

from agent.codex_responses_adapter import _summarize_user_message_for_log

print(json.dumps([_summarize_user_message_for_log(content, sep="\n") for content in json.loads(sys.argv[1])]))
