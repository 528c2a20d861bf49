"""Reads lines of JSON from a chunked HTTP answer, and raises an error if the server is lost before the end.

`http.client`, when read line by line, reports a cut connection as the end of the lines.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

_BYTES = 65_536  # read at a time, at most


def json_lines(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield each line as it arrives.  ConnectionError if the connection ends before the answer is complete."""
    rest = b""
    try:
        while data := response.read1(_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)
    except http.client.HTTPException as e:
        raise ConnectionError("the connection to the server was lost before its answer ended, so it is not known what "
                              "was done") from e
    if rest:
        yield json.loads(rest)
