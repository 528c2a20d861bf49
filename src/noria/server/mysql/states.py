"""The states of a conversation and of its connection, and a reply that is not known yet."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from noria.core.errors import SqlError
from noria.server.outcomes import Stream


class ConversationState(Enum):
    GREETED = "greeted"
    PROVING = "proving"
    READY = "ready"
    LOADING = "loading"  # the client sends a file
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class PendingReply:
    """A reply that is not known yet.  Once `awaitable` is done, `encode` encodes the reply, or returns another pending
    reply.  If that raises SqlError, `refuse` encodes the error."""

    awaitable: Awaitable[Any]
    encode: Callable[[Future[Any]], bytes | Stream | PendingReply]
    refuse: Callable[[SqlError], bytes]


Reply = bytes | PendingReply | Stream


class TlsState(Enum):
    """The state of TLS on a connection."""

    NONE = "there is no certificate"
    OFFERED = "the client may ask for TLS"
    REQUIRED = "the client has to ask for TLS"
    TLS = "everything"
