"""What another user of the machine tries: every listening port of some processes, every file below some directories.

The frames are Spark's own (`network-common`): length, type, body; what is asked needs no secret where none is wanted.
Files that a driver adds for executors of a cluster are not tried: Spark gives them to anybody, authenticated or not,
and noria adds none.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # names of hosts need it, and nobody may not read it
import os
import pickle
import pwd
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ANSWER_S = 3.0  # a service that says nothing for so long has refused
OPEN_BLOCKS, CHUNK_REQUEST, RPC_REQUEST = 0, 0, 3
CHUNK, RPC_RESPONSE = 1, 4  # what Spark answers when it does as it is asked


def as_nobody(what: Callable[[], T]) -> T:
    """The result of a function, run in a child process of that user."""
    nobody = pwd.getpwnam("nobody")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
            os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
            answer: object = what()
        except BaseException as e:
            answer = e
        with os.fdopen(write, "wb") as out:
            out.write(pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as back:
        result = pickle.loads(back.read())
    os.waitpid(child, 0)
    if isinstance(result, BaseException):
        raise result
    return result


# ---------------------------------------------------------------- what there is to attack
def tree(roots: Iterable[int]) -> set[int]:
    """These processes and all that descend from them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[stat.rindex(")") + 2:].split()[1])
    found = set(roots)
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(pids: Iterable[int]) -> dict[int, str]:
    """The TCP ports on which these processes listen, and the address as the kernel writes it."""
    links = [link for pid in pids for link in descriptors(pid)]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].rpartition(":")
                found[int(port, 16)] = address
    return found


def descriptors(pid: int) -> Iterator[str]:
    """What the open descriptors of a process are; one that is closed while they are listed leaves the others."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def is_loopback(address: str) -> bool:
    """Of the kernel's writing: words in this machine's order."""
    return address in ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


# ---------------------------------------------------------------- the attempts
def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def ask(line: socket.socket, kind: int, body: bytes) -> tuple[int, bytes]:
    """Send one message of Spark's and take the answer: its type (-1: none) and the rest."""
    line.sendall(struct.pack(">qb", 9 + len(body), kind) + body)
    head = receive(line, 9)
    if len(head) < 9:
        return -1, b""
    length, answer = struct.unpack(">qb", head)
    return answer, receive(line, min(length - 9, 2**20))


def receive(line: socket.socket, count: int) -> bytes:
    data = b""
    try:
        while len(data) < count and (more := line.recv(count - len(data))):
            data += more
    except OSError:
        pass
    return data


def fetch_block(line: socket.socket, block: str) -> bool:
    """A block of the block manager: cached rows, a broadcast."""
    wanted = struct.pack(">b", OPEN_BLOCKS) + text("app") + text("driver") + struct.pack(">i", 1) + text(block)
    kind, answer = ask(line, RPC_REQUEST, struct.pack(">qi", 1, len(wanted)) + wanted)
    if kind != RPC_RESPONSE:
        return False
    stream, chunks = struct.unpack(">qi", answer[13:25])
    return chunks > 0 and ask(line, CHUNK_REQUEST, struct.pack(">qi", stream, 0))[0] == CHUNK


def command_jvm(line: socket.socket) -> bool:
    """A command to the JVM, as the driver gives them."""
    line.sendall(b"r\nu\njava.lang.System\ne\n")
    return receive(line, 2) == b"!y"


def get_process(line: socket.socket) -> bool:
    """A Python process of Spark's, which says its number when it is forked."""
    return len(receive(line, 4)) == 4


def attempts(port: int, blocks: Iterable[str]) -> list[str]:
    """What succeeded at this port."""
    tried: dict[str, Callable[[socket.socket], bool]] = {
        "a command to the JVM": command_jvm, "a Python process": get_process}
    for block in blocks:
        tried[f"the block {block}"] = lambda line, block=block: fetch_block(line, block)

    def succeeded(attempt: Callable[[socket.socket], bool]) -> bool:
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as line:
            try:
                return attempt(line)
            except OSError:
                return False

    with ThreadPoolExecutor(len(tried)) as at_once:  # most refuse by saying nothing
        return [f"port {port} gives {what}" for what, done in zip(tried, at_once.map(succeeded, tried.values()),
                                          strict=True) if done]


def readable(directories: Iterable[Path]) -> list[str]:
    """Files and sockets below these directories, known by their names, that can be opened."""
    found = []
    for path in directories:
        try:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(str(path))
            else:
                path.open("rb").close()
        except OSError:
            continue
        found.append(str(path))
    return found
