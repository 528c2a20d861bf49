"""`noria export-program`: prints the running program as SQL."""

from __future__ import annotations

import sys

from noria.cli.options import DEFAULT_URL, Url


def command(url: Url = DEFAULT_URL) -> None:
    """Write the tables and views of a running server as SQL, in an order in which they can be made.

    `noria apply` makes the same program from this text on an empty server.
    """
    from noria.client.transport import HttpTransport

    sys.stdout.write(HttpTransport(url).program())
