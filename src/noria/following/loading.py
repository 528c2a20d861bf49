"""The first rows in a process of their own, whose JVM ends with it: following needs none."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from noria.following.address import Address, Refused
from noria.following.schema import SourceTable

PR_SET_PDEATHSIG = 1
ALIVE_S = 1.0


def load_apart(address: Address, url: str, tables: Sequence[SourceTable], run: str, alive: Callable[[], None],
               master: str = "") -> None:
    """alive: called each second meanwhile; what it raises ends the load."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_load, args=(there, address, url, list(tables), run, master), daemon=True)
    process.start()
    there.close()
    try:
        while not here.poll(ALIVE_S):
            alive()
        problem = here.recv_bytes().decode()
    except EOFError:
        raise ConnectionError("the process that loads the first rows ended") from None
    finally:
        process.terminate()  # it is done, or nobody waits for it any more
        process.join()
    if problem:
        raise Refused(f"the first rows could not be loaded: {problem}")


def _load(to: Connection, address: Address, url: str, tables: list[SourceTable], run: str, master: str) -> None:
    """Says what went wrong, "" if nothing did.  Ends when the process that wants the rows is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    from pyspark.errors import PySparkException

    from noria.following.snapshot import load
    from noria.spark.hosting.session import SparkSettings, SparkUnavailable, build_session

    with tempfile.TemporaryDirectory(prefix="noria-follow-") as scratch:
        with open(Path(scratch) / "spark.log", "wb") as log:
            os.dup2(log.fileno(), 2)  # what Spark and its JVM have to say
        slots = max(os.cpu_count() or 1, 2)
        try:
            spark = build_session(SparkSettings(master or f"local[{slots}]", 0, Path(scratch) / "spark",
                                                "noria-follow", batch_slots=1))
            load(spark, address, url, tables, run)
            to.send_bytes(b"")
            spark.stop()
        except (PySparkException, SparkUnavailable) as e:
            to.send_bytes(_cause(str(e)).encode())


def _cause(text: str) -> str:
    """The last line that says something, of a trace within a trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return (lines[-1] if lines else text)[:1_000]
