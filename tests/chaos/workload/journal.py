"""What clients did and heard: one line of JSON for each statement, in the order of the answers.

Keeps true: a line is written before the client sends its next statement, so after any failure the file says what
had been acknowledged.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

REMEMBERED = 40  # the last lines, for a failure's message


class Journal:
    def __init__(self, path: Path):
        self.path, self.counts = path, Counter[str]()
        self._file, self._lock, self._began = path.open("w"), threading.Lock(), time.monotonic()
        self._last: deque[str] = deque(maxlen=REMEMBERED)

    def now(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self._began, 3)

    def __call__(self, who: str, what: str, **more: Any) -> None:
        said = {"s": self.now(), "who": who, "what": what, **more}
        line = json.dumps(said, default=str)
        with self._lock:
            self.counts[what] += 1
            self._last.append(line)
            self._file.write(line + "\n")
            self._file.flush()

    def tail(self) -> str:
        with self._lock:
            return "\n".join(self._last)
