"""What a worker asks of envelopes: the number of a request, the reply that is an error, which go together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from noria.core.errors import SqlError
from noria.core.statements import WriteResult
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.messages.well_formed import wrong


def number_of(e: Envelope) -> int:
    """What a request is known by: its own number, or of a change its place in the order."""
    return e.seq or getattr(e.body, "request", 0)


def refused(e: Envelope, error: SqlError) -> packets.Packet:
    """The error as the reply that the request waits for."""
    body = e.body
    if isinstance(body, packets.Read | packets.Query | packets.More):
        return packets.Rows(body.request, None, error)
    if isinstance(body, packets.ReadMany):
        return packets.Found(body.request, error=error)
    if isinstance(body, packets.Write):
        each = body.statements if isinstance(body.statements, (tuple, list)) else ()
        return packets.Wrote(e.seq, tuple(WriteResult(error=error) for _ in each))
    if isinstance(body, packets.Migrate):
        return packets.Migrated(e.seq, error)
    return packets.Done(e.seq if isinstance(body, packets.Ingest) else getattr(body, "request", 0), error=error)


def runs(envelopes: Sequence[Envelope]) -> Iterator[list[Envelope]]:
    """Envelopes in order, neighbouring reads of one view together, and neighbouring messages of other workers."""

    def together(numbered: tuple[int, Envelope]) -> object:
        at, body = numbered[0], numbered[1].body
        if isinstance(body, packets.Between):
            return packets.Between
        return body.view if isinstance(body, packets.Read) and not wrong(body) else at

    if len(envelopes) == 1:
        yield [*envelopes]
        return
    for _, run in itertools.groupby(enumerate(envelopes), key=together):
        yield [e for _, e in run]
