"""Runs the same mix with sysbench, if installed: a client in C costs little, so the server is measured."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noria.demo.clients import READ, VOTE
from noria.demo.lobsters import Size, votes_of_stories
from noria.demo.server import DemoFailed

DRAWN = 100_000  # stories in the file from which the threads draw
FIRST_USER = 1_000_000_000  # above all voters of the Python clients
USERS_A_RUN = 100_000_000
SCRIPT = """
sysbench.cmdline.options = {{ stories = {{"file of story ids", ""}}, writes = {{"per cent of votes", 5}} }}
local ids, read, vote, user, story_of_read, voter, story_of_vote = {{}}
function thread_init()
   for line in io.lines(sysbench.opt.stories) do ids[#ids + 1] = tonumber(line) end
   local connection = sysbench.sql.driver():connect()
   read, vote = connection:prepare("{read}"), connection:prepare("{vote}")
   local number = sysbench.sql.type.BIGINT
   story_of_read = read:bind_create(number)
   voter, story_of_vote = vote:bind_create(number), vote:bind_create(number)
   read:bind_param(story_of_read)
   vote:bind_param(voter, story_of_vote)
   user = {first_user} + sysbench.tid * 1000000
end
function event()
   local id = ids[sysbench.rand.uniform(1, #ids)]
   if sysbench.rand.uniform(1, 100) <= sysbench.opt.writes then
      user = user + 1
      voter:set(user)
      story_of_vote:set(id)
      vote:execute()
   else
      story_of_read:set(id)
      read:execute():free()
   end
end
"""


@dataclass(frozen=True)
class Rate:
    per_s: float
    p95_ms: float


def installed() -> bool:
    return shutil.which("sysbench") is not None


def run(port: int, size: Size, seconds: float, connections: int, writes: int, directory: Path, again: int = 0
        ) -> Rate:
    """Run sysbench once.  Raises DemoFailed.  directory: for the script and the file of stories.  again: the number of
    earlier runs on this server, so that no user votes twice."""
    script, stories = directory / "mix.lua", directory / "stories.txt"
    script.write_text(SCRIPT.format(read=READ.format("?"), vote=VOTE.format("?"),
                                    first_user=FIRST_USER + again * USERS_A_RUN))
    weights = votes_of_stories(size) / size.votes
    np.savetxt(stories, size.rng(7).choice(np.arange(1, size.stories + 1), DRAWN, p=weights), fmt="%d")
    command = ["sysbench", str(script), "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={port}",
               "--mysql-user=demo", "--mysql-password=", "--mysql-db=noria", f"--threads={connections}",
               f"--time={max(1, round(seconds))}", "--events=0", f"--stories={stories}", f"--writes={writes}", "run"]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    rate = re.search(r"events:\s+(\d+)\s", out.stdout) or re.search(r"total number of events:\s+(\d+)", out.stdout)
    took = re.search(r"total time:\s+([\d.]+)s", out.stdout)
    tail = re.search(r"95th percentile:\s+([\d.]+)", out.stdout)
    if out.returncode or not rate or not took or not tail:
        raise DemoFailed(f"sysbench failed:\n{out.stdout}{out.stderr}")
    return Rate(int(rate[1]) / float(took[1]), float(tail[1]))
