"""The story of a key: what happened to it lately, delta by delta, miss by miss (for failed checks).

A `Story` is a trace for an engine (`engine.trace = story`); it keeps the last events only.  Tracing prints every
delta, so tests and investigations switch it on, serving does not.
"""

from __future__ import annotations

from collections import deque

from noria.core.limits import STORY_EVENTS


class Story:
    """Call it with each event; `tell` gives them back, all or those that name a key."""

    def __init__(self, events: int = STORY_EVENTS):
        self._events: deque[str] = deque(maxlen=events)

    def __call__(self, event: str) -> None:
        self._events.append(event)

    def tell(self, key: str = "") -> str:
        """The events that mention the key as it is shown in traces, such as "(7, 'a')"; all of them for "".
        A composite row that starts with the key's values counts too."""
        inner = key.strip("()")
        return "\n".join(e for e in self._events if not key or f"({inner})" in e or f"({inner}," in e)
