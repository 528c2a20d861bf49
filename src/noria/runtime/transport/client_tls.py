"""Makes the TLS context with which the Python client, the commands and Spark's data source connect to a server."""

from __future__ import annotations

import os
import ssl

CERTIFICATE = "NORIA_CLIENT_CERT"


def client_context() -> ssl.SSLContext:
    """Return a context that checks the server's certificate, and shows the client's if NORIA_CLIENT_CERT names one.

    The server is checked against the host's authorities, or those in the file of SSL_CERT_FILE.  Raises ValueError if
    the client's file is unusable.
    """
    context = ssl.create_default_context()
    if path := os.environ.get(CERTIFICATE):
        try:
            context.load_cert_chain(path, password=_no_passphrase)
        except (OSError, ValueError) as e:
            raise ValueError(f"{CERTIFICATE} {path} is no certificate with its key (PEM, no passphrase): {e}") from e
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")
