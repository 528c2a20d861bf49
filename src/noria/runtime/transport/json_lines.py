"""Lines of JSON from an HTTP answer that comes in chunks, where a lost server is an error.

`http.client` takes a connection that is cut for the end of the lines when it is read line by line.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

_BYTES = 65_536  # read at a time, at most


def json_lines(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Each line as it comes.  ConnectionError where the answer ends before its end was sent."""
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
