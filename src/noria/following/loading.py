"""Loads the first rows in a process of its own, so that its JVM ends with it: following itself needs no JVM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from noria.following.address import CannotFollow, SourceAddress
from noria.following.schema import SourceTable
from noria.runtime.worker.parent_end import end_with_parent

ALIVE_S = 1.0


def load_apart(address: SourceAddress, url: str, tables: Sequence[SourceTable], run: str, alive: Callable[[], None],
               master: str = "") -> None:
    """Load the first rows.  Raises Refused if this fails, ConnectionError if the process ends.

    alive: called each second; an exception that it raises ends the load.
    """
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
        process.terminate()  # it is done, or its result is no longer needed
        process.join()
    if problem:
        raise CannotFollow(f"the first rows could not be loaded: {problem}")


def _load(to: Connection, address: SourceAddress, url: str, tables: list[SourceTable], run: str, master: str) -> None:
    """Load, and send the error message, or "" for none.  The process ends when its parent is killed."""
    end_with_parent(signal.SIGTERM)
    from pyspark.errors import PySparkException

    from noria.following.snapshot import load
    from noria.spark.hosting.session import SparkSettings, SparkUnavailable, build_session

    with tempfile.TemporaryDirectory(prefix="noria-follow-") as scratch:
        with open(Path(scratch) / "spark.log", "wb") as log:
            os.dup2(log.fileno(), 2)  # the output of Spark and its JVM
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
    """Return the last message of a nested trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return (lines[-1] if lines else text)[:1_000]
