"""The settings of `noria serve`, checked once, before a part of the server starts.

Keeps true: a `Settings` object that exists is usable.  In particular, nothing listens beyond loopback without a
password, and TLS is not required without a certificate.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

from noria.control.processes.extras import require
from noria.control.processes.lease_address import LeaseAddress
from noria.core.errors import SqlError
from noria.core.limits import DEFAULT_MEMORY_BYTES, HTTP_TRANSACTION_IDLE_S, MAX_WORKERS, MYSQL_IDLE_S
from noria.sql.text.databases import HOME, checked_name
from noria.views import files

BATCH_SPARK = ("at-start", "when-needed")
MAX_FRONT_ENDS = 64  # each is a process, which takes tens of megabytes
SHARED_MEMORY = Path("/dev/shm")
RUN_DIR_CHARACTERS = 95  # a Unix socket's path may be 107
_AFTER_ALL = "g"  # the names of view files begin with hexadecimal digits
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class SettingsError(Exception):
    """A setting is invalid.  The message names it and says what to do."""


@dataclass(frozen=True)
class Settings:
    """All settings.  Port 0 stands for any free port.  memory_bytes: bounds symbols, states, views and kept replies; 0:
    no limit.  password: None for no authentication, on loopback only.

    http_names: further names of the server that HTTP clients may use.  load_dirs: requests to load over HTTP may name
    files below these directories.  Raises SettingsError.
    """

    data_dir: Path
    mysql_host: str = "127.0.0.1"
    mysql_port: int = 3307
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    master: str = ""  # of Spark; empty: local, with slots for the workers and for batch jobs
    standby_slots: int = 0  # slots of a cluster in which processes wait to replace lost workers
    batch_spark: str = "when-needed"  # when the batch driver starts: one of BATCH_SPARK
    workers: int = 1
    database: str = HOME  # of clients that name none; made if missing
    front_ends: int = 1  # processes that serve MySQL clients; 1: this one does
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    transaction_idle_s: int = HTTP_TRANSACTION_IDLE_S  # of transactions over HTTP
    user: str = "root"
    password: str | None = field(default=None, repr=False)
    http_names: tuple[str, ...] = ()
    load_dirs: tuple[Path, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_require: bool = False
    cluster_host: str = ""  # the address of this host for workers on other hosts; empty: there are none
    cluster_port: int = 0
    cluster_cert: Path | None = None  # one certificate for all hosts, at the same path on each
    cluster_key: Path | None = None
    lease: str = ""  # in ZooKeeper; its holder leads among several servers of this data directory
    run_root: Path | None = None  # the parent of the run directory; None: /dev/shm, else the data directory

    def __post_init__(self) -> None:
        check_workers(self.workers)
        try:
            checked_name(self.database)
        except SqlError as e:
            raise SettingsError(f"--database {self.database}: {e.message}") from e
        if not 1 <= self.front_ends <= MAX_FRONT_ENDS:
            raise SettingsError(f"--front-ends {self.front_ends}: from 1 to {MAX_FRONT_ENDS}")
        if self.batch_spark not in BATCH_SPARK:
            raise SettingsError(f"--batch-spark {self.batch_spark}: {' or '.join(BATCH_SPARK)}")
        if not 1 <= self.transaction_idle_s <= MYSQL_IDLE_S:
            raise SettingsError(f"--transaction-idle {self.transaction_idle_s}: from 1 to {MYSQL_IDLE_S} seconds")
        of_a_cluster = bool(self.master) and self.master.partition("[")[0] != "local"
        if not 0 <= self.standby_slots <= (MAX_WORKERS if of_a_cluster else 0):
            raise SettingsError(f"--standby-slots {self.standby_slots}: from 0 to {MAX_WORKERS}, of a cluster that "
                                "--master names; without one a process stands ready anyway")
        for name, port in (("--mysql-port", self.mysql_port), ("--http-port", self.http_port),
                           ("--cluster-port", self.cluster_port)):
            if not 0 <= port <= 65535:
                raise SettingsError(f"{name} {port} is no port: 0 (any free one) to 65535")
        for name, host in (("--mysql-host", self.mysql_host), ("--http-host", self.http_host)):
            if not is_loopback(host) and self.password is None:
                raise SettingsError(f"{name} {host} is not a loopback address, so clients of other hosts could "
                                    "connect: give a password with --password-file FILE, or use 127.0.0.1")
        for directory in self.load_dirs:
            if not directory.is_dir():
                raise SettingsError(f"--load-dir {directory} is no directory")
        for name in self.http_names:
            if not re.fullmatch(r"[A-Za-z0-9_.:-]+", name):
                raise SettingsError(f"--http-name '{name}' is no host name: one without scheme and port, for example "
                                    "db.example.org")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("--tls-cert FILE and --tls-key FILE belong together: one is missing")
        if (self.cluster_cert is None) != (self.cluster_key is None):
            raise SettingsError("--cluster-cert FILE and --cluster-key FILE belong together: one is missing")
        if not self.cluster_host and (self.cluster_port or self.cluster_cert is not None):
            raise SettingsError("--cluster-port and --cluster-cert are of connections between hosts: give the address "
                                "by which other hosts reach this one with --cluster-host ADDRESS")
        if self.tls_require and self.tls_cert is None:
            raise SettingsError("--tls-require needs a certificate: --tls-cert FILE and --tls-key FILE")
        if self.lease:
            try:
                LeaseAddress.of(self.lease)
                require("zookeeper", "it", "kazoo")
            except ValueError as e:
                raise SettingsError(f"--lease: {e}") from e
        if self.memory_bytes and self.memory_bytes < 16 * 2**20:
            raise SettingsError(f"--memory-limit {self.memory_bytes} bytes is too little to serve; 16M at least")


def check_workers(workers: int) -> None:
    if not 1 <= workers <= MAX_WORKERS:
        raise SettingsError(f"--workers {workers}: from 1 to {MAX_WORKERS}")


def is_loopback(host: str) -> bool:
    """True if all addresses of this host name are loopback addresses.  Raises SettingsError for an unknown name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as e:
        raise SettingsError(f"the host name {host} cannot be resolved: {e}") from e
    return all(ipaddress.ip_address(a.split("%")[0]).is_loopback for a in found)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as '512M', '2GiB', '0' or '1.5g'.  Raises SettingsError."""
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not m:
        raise SettingsError(f"'{text}' is no size: a number and K, M, G or T, for example 512M")
    return int(float(m[1]) * _UNITS[m[2]])


def read_password(path: Path) -> str:
    """Return the first line of a password file.  Raises SettingsError, also if others than its owner can read it."""
    try:
        mode = path.stat().st_mode
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise SettingsError(f"--password-file {path} cannot be read: {e}") from e
    if mode & 0o077:
        raise SettingsError(f"--password-file {path} can be read by others: chmod 600 {path}")
    if not lines or not lines[0]:
        raise SettingsError(f"--password-file {path} has no password in its first line")
    return lines[0]


def remove_run_dir(path: Path) -> None:
    """Mark the views in the directory as dead, for other processes that have them mapped, and remove it."""
    for views in path.glob(f"{files.VIEWS}*"):
        with contextlib.suppress(OSError, ValueError):  # incomplete files of a worker that died
            files.bury(str(views), _AFTER_ALL)
    shutil.rmtree(path, ignore_errors=True)


def make_run_dir(data_dir: Path, root: Path | None = None) -> Path:
    """Create an empty run directory, under `root`, /dev/shm or the data directory, in this order of preference.

    In /dev/shm, views are never written to a disk.  All servers of a data directory use the same path.  The caller has
    claimed the data directory, so files in the run directory are from a dead process and are removed.
    """
    if root is None:
        root = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else data_dir
    digest = hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]
    path = root / f"noria-{os.getuid()}-{digest}"
    if len(str(path)) > RUN_DIR_CHARACTERS:
        raise SettingsError(f"the path of the run directory {path} is too long for a socket in it: use a data "
                            "directory with a shorter path")
    if path.is_symlink() or (path.exists() and path.stat().st_uid != os.getuid()):
        raise SettingsError(f"the run directory {path} belongs to somebody else: remove it, or have it removed")
    remove_run_dir(path)
    try:
        path.mkdir(mode=0o700)
    except OSError as e:
        raise SettingsError(f"the run directory {path} cannot be made: {e.strerror}") from e
    return path
