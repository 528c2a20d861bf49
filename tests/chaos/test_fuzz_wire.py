"""Bytes on the socket between front end and worker: whatever they are, `wire.Reader` gives messages or `WireError`, in
bounded time, and after an unreadable body the next message is whole.

    FUZZ_WIRE_CASES=5000   FUZZ_SEED=… (printed; in CI always the same)
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.spoil import mutated, pieces
from noria.core.statements import Insert
from noria.dataflow.packets import Ask, Envelope, Read, Write
from noria.runtime import wire
from noria.runtime.wire import Kind, Reader, Signal, WireError
from seeds import seed

pytestmark = pytest.mark.timeout(0)
CASES = int(os.environ.get("FUZZ_WIRE_CASES", "5000"))
SEED = seed("FUZZ_SEED")
SLOW_S = 60.0  # no case takes so long
MORE_BYTES = 2**30  # of addresses: a damaged pickle may ask for any number of bytes, and is then refused


def stream() -> list[bytes]:
    return [wire.encode(Envelope(3, -1, 9, Write((Insert("t", (0, 1), ((1, "x"), (None, "y"))),)), ((0, 5),))),
            wire.signal(Kind.HEARTBEAT, 3, -1), wire.encode(Envelope(3, -1, 0, Read(2**40, "v", [(1, "a")]))),
            wire.signal(Kind.CANCEL, 3, -1, 17), wire.encode(Envelope(3, -1, 0, Ask(1, "stats")))]


@pytest.fixture
def little_memory() -> Iterator[None]:
    """This process cannot grow by more than MORE_BYTES until the test is over."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + MORE_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
def test_any_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    chance, began, errors, read = random.Random(SEED), time.monotonic(), 0, 0
    messages = stream()
    for number in range(CASES):
        chosen = [chance.choice(messages) for _ in range(chance.randrange(1, 4))]
        sent = chance.randbytes(chance.randrange(90)) if chance.random() < 0.1 else mutated(b"".join(chosen), chance)
        reader, start = Reader(), time.monotonic()
        try:
            for piece in pieces(sent, chance):
                for item in reader.feed(piece):
                    assert isinstance(item, Envelope | Signal | WireError), (SEED, number, item)
                    errors += isinstance(item, WireError)
                    read += 1
        except WireError:
            errors += 1
        except Exception as e:
            raise AssertionError(f"FUZZ_SEED={SEED}, case {number}: {e!r} for {sent!r}") from e
        assert time.monotonic() - start < SLOW_S, f"FUZZ_SEED={SEED}, case {number}: {sent!r}"
    with capfd.disabled():
        print(f"\nwire: FUZZ_SEED={SEED}, {CASES} cases in {time.monotonic() - began:.0f} s; {read} messages, "
              f"{errors} of them or streams refused")
