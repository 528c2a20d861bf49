"""The MySQL protocol: clients connect, and a backend answers them (`server/outcomes.py`).

Each layer uses only earlier ones.  They are `codec`, `rows` and `parameters` (bytes and messages), `auth` (passwords),
`chunks` and `streaming` (large replies), `session` (one conversation as a state table), and `connection` (sockets).
"""

from noria.server.mysql.auth import Account, account
from noria.server.mysql.connection import MysqlLimits, MysqlServer, listen
from noria.server.mysql.rows import encode_result

__all__ = ["Account", "MysqlLimits", "MysqlServer", "account", "encode_result", "listen"]
