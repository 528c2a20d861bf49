"""`noria backup`: copies the tables of a running or a stopped server."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from noria.cli.options import DEFAULT_URL, Url


def command(
    target: Annotated[Path, typer.Argument(help="The backup: a directory that does not exist yet.")],
    data_dir: Annotated[Path | None, typer.Option(
        "--data-dir", help="Back up this directory of a stopped server, instead of asking a running one.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Copy all tables, as of one moment between two commits, to a new directory, with a checksum for each file.

    Run this on the server's host, as its user: a running server makes a checkpoint below its data directory, and this
    command copies it.  The server continues meanwhile.  TARGET exists only when it is whole.
    """
    from datetime import UTC, datetime

    from noria import __version__
    from noria.cli.interrupts import Interrupted, interruptible
    from noria.cli.progress import copying
    from noria.control.processes.leases import CannotClaim
    from noria.storage.offline import backup
    from noria.storage.rocks.errors import StoreError

    try:
        if target.exists():
            raise backup.BackupError(f"{target} exists: a backup is a new directory, give another name")
        made = datetime.now(UTC).isoformat(timespec="seconds")
        taken = _stopped(data_dir) if data_dir else _running(url)
        with interruptible(), taken as checkpoint, copying("copying") as progress:
            about = backup.make(checkpoint, target, made, __version__, progress)
    except Interrupted as e:
        print("noria backup: interrupted: " + (f"it was too late: {target} is a whole backup" if target.exists() else
                                               "there is no backup; what was copied is removed"), file=sys.stderr)
        raise typer.Exit(128 + e.number) from None
    except (StoreError, CannotClaim, OSError) as e:
        sys.exit(f"noria backup: {e}")
    rows = sum(about.tables.values())
    print(f"{target}: {len(about.tables)} tables, {rows:,} rows, {about.nbytes:,} bytes; noria restore {target} DIR")


@contextmanager
def _running(url: str) -> Iterator[Path]:
    """Let the server make a checkpoint, and yield its path.  The server keeps it until the connection is closed."""
    from contextlib import closing

    from noria.client.transport import HttpTransport
    from noria.storage.offline.backup import BackupError

    with closing(HttpTransport(url).lines("/backup", {})) as lines:
        try:
            checkpoint = Path(next(lines)["checkpoint"])
        except OSError as e:
            raise BackupError(f"the server at {url} did not answer: {e}") from e
        if not checkpoint.is_dir():
            raise BackupError(f"{checkpoint}, which the server made, cannot be seen here: run this on the server's "
                              "host, as its user")
        yield checkpoint


@contextmanager
def _stopped(data_dir: Path) -> Iterator[Path]:
    from noria.accounts.registry import FILE
    from noria.control.processes.leases import Claim
    from noria.core.plain_symbols import PlainSymbols
    from noria.storage.offline.backup import BackupError
    from noria.storage.store import RocksStore
    from noria.storage.tables import shards

    bases = shards.bases(data_dir)
    if missing := [base for base in bases if not (base / "CURRENT").exists()]:
        raise BackupError(f"{data_dir} is no data directory of noria: it has no {missing[0] / 'CURRENT'}")
    claim = Claim(data_dir)
    try:
        with tempfile.TemporaryDirectory(prefix="backup-", dir=data_dir) as place:
            if (accounts := data_dir / FILE).exists():
                shutil.copy2(accounts, place)
            if len(bases) > 1:
                os.mkdir(f"{place}/checkpoint")
            for worker, base in enumerate(bases):
                store = RocksStore(str(base), PlainSymbols())
                try:
                    store.checkpoint(shards.shard_path(f"{place}/checkpoint", worker, len(bases)))
                finally:
                    store.close()
            yield Path(place) / "checkpoint"
    finally:
        claim.release()
