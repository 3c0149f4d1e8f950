"""Run in a host's Python: load the provider as the host does, call hooks on it, and print what they returned.

The one argument is a JSON list of [hook, [arguments], {named arguments}].
"""

from __future__ import annotations

import json
import sys

from plugins.memory import load_memory_provider

provider = load_memory_provider("pgvector")
answers = [getattr(provider, hook)(*arguments, **named) for hook, arguments, named in json.loads(sys.argv[1])]
print(json.dumps(answers, default=repr))
