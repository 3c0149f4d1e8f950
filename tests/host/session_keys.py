"""Run in a host's Python: the session keys that its own `build_session_key` makes, with what it tells `initialize`.

Prints a JSON list of {"platform", "place", "profile", "key", "told"}; `place` names the person or room that is meant.
"""

from __future__ import annotations

import inspect
import json
from itertools import product

from gateway.config import Platform
from gateway.session import SessionSource, build_session_key

USERS = [("+491705551234", "8d1f6f2e-0c5b-4a7e-9f57-6a1d0f3c2b11"), ("77665544", None)]
# Ids as the platforms make them; those of a messenger that holds colons in its ids are the hard ones.
PRIVATE = {
    "telegram": ["12345", "123456"], "discord": ["998877665544332211", "998877665544332212"],
    "whatsapp": ["491705551234@s.whatsapp.net", "491705551235@s.whatsapp.net"],
    "slack": ["D0456EFGH", "D0456EFGI"], "signal": ["+491705551235", "1b2c3d4e-aaaa-4bbb-8ccc-123456789abc"],
    "matrix": ["!room:example.org", "!room:example.com:8448"], "mattermost": ["abcdefghijklm", "abcdefghijkln"],
    "email": ["ann@example.org", "ben@example.org"], "sms": ["+491705551234", "+491705551235"],
    "feishu": ["oc_abc", "oc_abd"], "bluebubbles": ["iMessage;-;+49170", "iMessage;-;+49171"], "qqbot": ["A1", "A2"],
}  # fmt: skip
ROOMS = {
    "telegram": ["-100123", "-1001234"], "discord": ["112233", "112234"],
    "whatsapp": ["12036302@g.us", "12036303@g.us"], "slack": ["C0456EFGH", "C0456EFGI"],
    "signal": ["group:c2lnbmFs=", "group:c2lnbmF0="], "matrix": ["!hall:example.org", "!hall:example.com"],
    "mattermost": ["townsquare", "offtopic"], "feishu": ["oc_x", "oc_y"], "qqbot": ["G1", "G2"],
}  # fmt: skip
THREADS = [None, "1700000000.1", "$event"]
TYPES = ["group", "channel", "thread", "forum"]


def sources():
    for platform, chats in PRIVATE.items():
        for chat, thread, user in product(chats, THREADS, USERS[:1]):
            yield f"dm {chat}", platform, "dm", chat, thread, user
        for user in USERS:
            yield f"sender {user[1] or user[0]}", platform, "dm", "", None, user
    for platform, chats in ROOMS.items():
        for chat, thread, user, kind in product(chats, THREADS, [*USERS, (None, None)], TYPES):
            yield f"room {chat}", platform, kind, chat, thread, user


found = []
with_profile = "profile" in inspect.signature(build_session_key).parameters
for place, platform, kind, chat, thread, (user, alternative) in sources():
    source = SessionSource(
        platform=Platform(platform), chat_id=chat, chat_type=kind, user_id=user, user_id_alt=alternative,
        thread_id=thread, scope_id="T0123ABCD" if platform == "slack" else None,
    )  # fmt: skip
    for per_user, per_thread, profile in product(
        [True, False], [True, False], [None, "coder"] if with_profile else [None]
    ):
        key = build_session_key(source, per_user, per_thread, **({"profile": profile} if with_profile else {}))
        told = {"platform": platform, "chat_id": chat, "chat_type": kind, "thread_id": thread, "user_id": user,
                "user_id_alt": alternative}  # fmt: skip
        found.append({"platform": platform, "place": place, "profile": profile or "", "key": key, "told": told})
print(json.dumps(found))
