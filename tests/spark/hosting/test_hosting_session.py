"""What is said when there can be no session, before any JVM is started; and what a JVM leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noria.spark.hosting.session import SparkSettings, SparkUnavailable, build_session, find_java
from noria.spark.hosting.workers import short_reason


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_goes_first_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert find_java() == new
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java() != old


def test_without_java_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setattr("noria.spark.hosting.session._java_candidates", lambda: [old])
    with pytest.raises(SparkUnavailable, match=r"Java 17 or newer.*old/bin/java is version 8.*JAVA_HOME"):
        find_java()


@pytest.mark.parametrize("master, slots", [("local", 1), ("local[2]", 2), ("local[1,4]", 1)])
def test_slots_are_counted_before_a_jvm_is_started(master: str, slots: int) -> None:
    with pytest.raises(SparkUnavailable, match=f"has {slots} task slots, 3 are needed: 1 held for good"):
        build_session(SparkSettings(master=master))


@pytest.mark.parametrize("text, reason", [
    ("Job aborted due to stage failure: Task 0 failed\n  File x\nOSError: no space left on device\n\n\tat org",
     "OSError: no space left on device"),
    ("[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group noria-workers", "the job was cancelled"),
    ("noria.runtime.transport.shard_owner.Fenced: incarnation 1 of this worker was replaced by 2",
     "Fenced: incarnation 1"),
    ("An error occurred while calling None.org.apache.spark.api.JavaSparkContext.\n: java.lang.Error: too short\n\tat",
     "java.lang.Error: too short"),
    ("", "RuntimeError"),
])
def test_the_reason_in_a_line(text: str, reason: str) -> None:
    assert short_reason(RuntimeError(text)).startswith(reason) or reason in short_reason(RuntimeError(text))


JVM = """
import os, signal, sys
from pathlib import Path
from noria.spark.hosting.session import SparkSettings, build_session

session = build_session(SparkSettings("local[2]", 0, Path(sys.argv[1])))
session.newSession().sql("SELECT 1").collect()
print(session._jvm.java.lang.System.getProperty("java.io.tmpdir"))
os.kill(session._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
os._exit(0)
"""


@pytest.mark.long
def test_a_killed_jvm_leaves_nothing_outside_of_its_scratch_directory(tmp_path: Path) -> None:
    """Where the next one finds it, and empties it."""
    scratch = tmp_path / "a 'b\" \\ $c" / "scratch"
    out = subprocess.run([sys.executable, "-c", JVM, str(scratch)], capture_output=True, text=True, timeout=120)
    assert out.stdout.splitlines() == [str(scratch)], out.stderr
    assert list(scratch.glob("artifacts-*"))
