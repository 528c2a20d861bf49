"""The settings of `noria serve`, checked once, before a part of the server starts.

Keeps true: a `Settings` object that exists is usable.  In particular, nothing listens beyond loopback without a
password, and TLS is not required without a certificate.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from noria.control.processes.extras import require
from noria.control.processes.lease_address import LeaseAddress
from noria.core.errors import SqlError
from noria.core.limits import DEFAULT_MEMORY_BYTES, HTTP_TRANSACTION_IDLE_S, MAX_WORKERS, MYSQL_IDLE_S
from noria.server.options import Option
from noria.sql.text.databases import HOME, checked_name

BATCH_SPARK = ("at-start", "when-needed")
MAX_FRONT_ENDS = 64  # each is a process, which takes tens of megabytes
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class SettingsError(Exception):
    """A setting is invalid.  The message names it and says what to do."""


def parse_size(text: str) -> int:
    """Return the bytes of a size such as '512M', '2GiB', '0' or '1.5g'.  Raises SettingsError."""
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not m:
        raise SettingsError(f"'{text}' is no size: a number and K, M, G or T, for example 512M")
    return int(float(m[1]) * _UNITS[m[2]])


def size_text(size: int) -> str:
    """Return a whole number of bytes in the largest unit that divides it.  The inverse of parse_size.

    >>> size_text(512 * 2**20)
    '512M'
    """
    unit = max((u for u, n in _UNITS.items() if size % n == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]}{unit.upper()}"


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


@dataclass(frozen=True)
class Settings:
    """All settings of `noria serve`, and where each option of it is declared.  Raises SettingsError.

    A field with an `Option` is an option of the command line and a line of docs/reference/settings.md.
    """

    data_dir: Annotated[Path, Option("The directory of the tables; created if missing, rejected if in use.",
                                     read=Path.absolute)]
    mysql_port: Annotated[int, Option("0: any free port.")] = 3307
    http_port: Annotated[int, Option("0: any free port.")] = 8080
    mysql_host: Annotated[str, Option(
        "Address to listen on; any but loopback requires passwords.")] = "127.0.0.1"
    http_host: Annotated[str, Option("The same for HTTP.")] = "127.0.0.1"
    master: Annotated[str, Option(
        "Spark's master; by default the JVM itself, with slots for the workers and for batch jobs.")] = ""
    standby_slots: Annotated[int, Option(
        "Slots of the --master cluster, beside the workers', for processes that replace workers of a lost host "
        "(docs/how-to/cluster.md).")] = 0
    batch_spark: Annotated[str, Option(
        "When Spark's second driver starts, for loads, exports and queries that no view answers: when-needed (the "
        "first of them waits some seconds) or at-start (needs some 500 MB more).")] = "when-needed"
    workers: Annotated[int, Option("Shards of the data-flow.")] = 1
    database: Annotated[str, Option("The database of clients that name none; made if missing.")] = HOME
    front_ends: Annotated[int, Option(
        "Processes that serve MySQL clients on the one port; with 1 the server itself serves them.")] = 1
    transaction_idle_s: Annotated[int, Option(
        "A transaction over HTTP is rolled back if it gets no request for so many seconds.",
        name="--transaction-idle")] = HTTP_TRANSACTION_IDLE_S
    memory_bytes: Annotated[int, Option(
        "Bound of states, views, strings, RocksDB's cache and kept replies: 512M, 2G; 0: none. The least recently "
        "read keys are evicted first.", name="--memory-limit", written=str, default=size_text(DEFAULT_MEMORY_BYTES),
        read=parse_size)] = DEFAULT_MEMORY_BYTES
    user: Annotated[str, Option("The administrator.")] = "root"
    password: Annotated[str | None, Option(
        "A file (mode 600) whose first line is the password.", name="--password-file", written=Path,
        read=read_password)] = field(default=None, repr=False)  # None: nobody proves who he is, on loopback only
    http_names: Annotated[tuple[str, ...], Option(
        "A further host name of this server in HTTP requests. Requests for other names are rejected, which stops DNS "
        "rebinding by web pages. Repeatable.", name="--http-name", written=str)] = ()
    load_dirs: Annotated[tuple[Path, ...], Option(
        "A directory below which POST /load may read files and write rejects, with or without a password. Repeatable; "
        "by default none. `noria load` on this host, as this user, may use any file.", name="--load-dir",
        written=Path, read=Path.absolute)] = ()
    tls_cert: Annotated[Path | None, Option(
        "A certificate with its chain (PEM): both ports then accept TLS, too. Read again on SIGHUP.")] = None
    tls_key: Annotated[Path | None, Option("Its key (PEM, mode 600), without a passphrase.")] = None
    tls_require: Annotated[bool, Option("Reject MySQL logins and HTTP requests without TLS.")] = False
    tls_ca: Annotated[Path | None, Option(
        "Authorities (PEM): with --tls-require, both ports reject clients without a certificate that one of them has "
        "signed. Read again on SIGHUP.")] = None
    cluster_host: Annotated[str, Option(
        "The address at which workers on other hosts reach this one (docs/how-to/cluster.md); by default all workers "
        "run on this host.")] = ""
    cluster_port: Annotated[int, Option("0: any free port.")] = 0
    cluster_cert: Annotated[Path | None, Option(
        "A certificate (PEM) that every host has at this path. Connections between hosts then use TLS, and peers with "
        "another certificate are rejected.", read=Path.absolute)] = None
    cluster_key: Annotated[Path | None, Option(
        "Its key (PEM, mode 600), without a passphrase, on every host.", read=Path.absolute)] = None
    lease: Annotated[str, Option(
        "zk://HOST:PORT[,HOST:PORT…]/PATH: ZooKeeper decides which of several servers of this data directory leads. "
        "The others wait, and one replaces a leader that fails.")] = ""
    log_level: Annotated[str, Option("debug, info, warning or error.")] = "info"
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
        for host in (self.mysql_host, self.http_host):
            is_loopback(host)  # raises SettingsError for an unknown name
        for directory in self.load_dirs:
            if not directory.is_dir():
                raise SettingsError(f"--load-dir {directory} is no directory")
        for name in self.http_names:
            if not re.fullmatch(r"[A-Za-z0-9_.:-]+", name):
                raise SettingsError(f"--http-name '{name}' is no host name: one without scheme and port, for example "
                                    "db.example.org")
        check_tls(self.tls_cert, self.tls_key, self.tls_require, self.tls_ca)
        if (self.cluster_cert is None) != (self.cluster_key is None):
            raise SettingsError("--cluster-cert FILE and --cluster-key FILE belong together: one is missing")
        if not self.cluster_host and (self.cluster_port or self.cluster_cert is not None):
            raise SettingsError("--cluster-port and --cluster-cert are of connections between hosts: give the address "
                                "by which other hosts reach this one with --cluster-host ADDRESS")
        if self.lease:
            try:
                LeaseAddress.of(self.lease)
                require("zookeeper", "it", "kazoo")
            except ValueError as e:
                raise SettingsError(f"--lease: {e}") from e
        if self.memory_bytes and self.memory_bytes < 16 * 2**20:
            raise SettingsError(f"--memory-limit {self.memory_bytes} bytes is too little to serve; 16M at least")


def check_tls(certificate: Path | None, key: Path | None, required: bool, authorities: Path | None) -> None:
    """Raise SettingsError if these options do not belong together."""
    if (certificate is None) != (key is None):
        raise SettingsError("--tls-cert FILE and --tls-key FILE belong together: one is missing")
    if required and certificate is None:
        raise SettingsError("--tls-require needs a certificate: --tls-cert FILE and --tls-key FILE")
    if authorities is not None and not required:
        raise SettingsError("--tls-ca FILE checks only clients that use TLS: give --tls-require, which rejects others")


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
