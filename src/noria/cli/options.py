"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[str, typer.Option(
    "--url", envvar="NORIA_URL", metavar="URL",
    help="The server: http[s]://[user:password@]HOST:PORT, the address after `http=` in its ready line.",
)]
DEFAULT_URL = "http://127.0.0.1:8080"
