"""Run in a host's Python: what the host's own parser of its fence makes of blocks, a JSON list in a file.

Prints {"changed": the blocks from which it removes something, "shown": those of which its scrubber of a model's answer
lets something through before the end of the fence}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agent.memory_manager import StreamingContextScrubber, build_memory_context_block, sanitize_context

changed, shown = [], []
for block in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    if sanitize_context(block) != block:
        changed.append(block)
    scrubber = StreamingContextScrubber()
    parts = [scrubber.feed(part) for part in ("Answer\n", *build_memory_context_block(block), "\nend")]
    if "".join((*parts, scrubber.flush())).split() != ["Answer", "end"]:
        shown.append(block)
print(json.dumps({"changed": changed, "shown": shown}))
