"""The MySQL protocol: clients connect, a backend answers (`server/outcomes.py` says how).

Layers, each knowing only those above it: `codec`, `rows` and `parameters` (bytes and messages), `auth`
(passwords), `session` (one conversation as a state table), `connection` (sockets).
"""

from noria.server.mysql.auth import Account, account
from noria.server.mysql.connection import Bounds, MysqlServer, listen
from noria.server.mysql.rows import encode_result

__all__ = ["Account", "Bounds", "MysqlServer", "account", "encode_result", "listen"]
