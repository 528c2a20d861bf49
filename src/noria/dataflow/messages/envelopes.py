"""Functions of envelopes: the number of a request, the reply that reports its error, and the runs of envelopes that a
worker handles together. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from noria.core.errors import SqlError
from noria.core.statements import WriteResult
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.messages.well_formed import malformed_reason


def number_of(e: Envelope) -> int:
    """The number of a request; for a change its sequence number."""
    return e.seq or getattr(e.body, "request", 0)


def error_reply(e: Envelope, error: SqlError) -> packets.Packet:
    """The reply to the request that reports the error."""
    body = e.body
    if isinstance(body, packets.Read | packets.Query | packets.NextRows):
        return packets.Rows(body.request, None, error)
    if isinstance(body, packets.ReadMany):
        return packets.ReadManyReply(body.request, error=error)
    if isinstance(body, packets.Write):
        each = body.statements if isinstance(body.statements, (tuple, list)) else ()
        return packets.Wrote(e.seq, tuple(WriteResult(error=error) for _ in each))
    if isinstance(body, packets.Migrate):
        return packets.Migrated(e.seq, error)
    return packets.Done(e.seq if isinstance(body, packets.Ingest) else getattr(body, "request", 0), error=error)


def runs(envelopes: Sequence[Envelope]) -> Iterator[list[Envelope]]:
    """Split envelopes, in order, into runs: adjacent reads of one view together, and adjacent messages of other
    workers."""

    def together(numbered: tuple[int, Envelope]) -> object:
        at, body = numbered[0], numbered[1].body
        if isinstance(body, packets.PeerPacket):
            return packets.PeerPacket
        return body.view if isinstance(body, packets.Read) and not malformed_reason(body) else at

    if len(envelopes) == 1:
        yield [*envelopes]
        return
    for _, run in itertools.groupby(enumerate(envelopes), key=together):
        yield [e for _, e in run]
