"""sysbench's oltp_read_write on Noria and on Debian's MariaDB, in one run on one machine.

A transaction has ten SELECTs by primary key, four of ranges of 100 keys, two UPDATEs, a DELETE and an INSERT.  Both
servers sync their log before they acknowledge a commit.  They take turns, slice by slice, until each was driven
for so many seconds.  sysbench repeats a transaction that ends with error 1213 or 1205.  Any other error ends the run.

    python bench/oltp.py [--seconds 600] [--slice 60] [--threads 8] [--rows 10000] [--tables 1] [--test oltp_read_write]
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence

from mysql import PASSWORD, USER, Server, servers

FIGURES = {"transactions/s": r"transactions:\s+\d+\s+\(([\d.]+) per sec",
           "95 % within ms": r"95th percentile:\s+([\d.]+)",
           "repeated (1213, 1205)": r"ignored errors:\s+(\d+)"}


def sysbench(server: Server, options: argparse.Namespace, action: str, seconds: int = 0) -> str:
    command = [
        "sysbench", options.test, "--db-driver=mysql", f"--mysql-host={server.host}", f"--mysql-port={server.port}",
        f"--mysql-user={USER}", f"--mysql-password={PASSWORD}", "--mysql-db=noria", f"--tables={options.tables}",
        f"--table-size={options.rows}", f"--threads={options.threads}", f"--time={seconds}", "--events=0",
        "--mysql-ignore-errors=1213,1205", *options.more, action]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode or "FATAL" in out.stdout + out.stderr:
        raise SystemExit(f"{server.name}: {' '.join(command)}\n{out.stdout}{out.stderr}")
    return out.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--slice", type=int, default=60)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--test", default="oltp_read_write")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("more", nargs="*", help="options for sysbench, after --")
    options = parser.parse_args()
    with servers("", "noria,mariadb", ("--workers", str(options.workers))) as pair:
        for server in pair:
            sysbench(server, options, "prepare")
        compare(pair, options)


def compare(pair: Sequence[Server], options: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    print(f"{options.test}, {options.threads} threads, {options.tables} x {options.rows} rows", flush=True)
    for n in range(options.seconds // options.slice):
        for server in pair if n % 2 else pair[::-1]:
            out = sysbench(server, options, "run", options.slice)
            read = {name: float(m[1]) for name, pattern in FIGURES.items() if (m := re.search(pattern, out))}
            found[server.name].append(read)
            print(f"  slice {n + 1}, {server.name:<8} " + ", ".join(f"{k} {v:g}" for k, v in read.items()), flush=True)
    rates = {name: sum(f["transactions/s"] for f in each) / len(each) for name, each in found.items()}
    repeated = {name: sum(f["repeated (1213, 1205)"] for f in each) for name, each in found.items()}
    mine, theirs = (rates[server.name] for server in pair)
    print(f"transactions/s: Noria {mine:.1f}, MariaDB {theirs:.1f}, ratio {mine / theirs:.2f}; repeated {repeated}")


if __name__ == "__main__":
    main()
