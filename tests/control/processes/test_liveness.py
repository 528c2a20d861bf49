"""When a driver is taken for frozen, and when not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from noria.control.processes.liveness import Liveness, is_stopped
from noria.core.limits import SPARK_SILENT_BEATS, SPARK_STOPPED_BEATS

DRIVER, JVM = 1, 2


def beats(pulse: Liveness, number: int) -> str:
    for _ in range(number):
        pulse.beat(DRIVER, JVM)
    return pulse.verdict


def test_a_busy_driver_has_long_to_answer_and_a_stopped_one_has_not() -> None:
    assert not beats(Liveness(lambda pid: False), SPARK_SILENT_BEATS)
    assert "answered none of" in beats(Liveness(lambda pid: False), SPARK_SILENT_BEATS + 1)
    assert not beats(Liveness(lambda pid: pid == DRIVER), SPARK_STOPPED_BEATS)
    assert "answered none of" in beats(Liveness(lambda pid: pid == DRIVER), SPARK_STOPPED_BEATS + 1)


def test_a_driver_that_answers_now_and_then_lives() -> None:
    pulse = Liveness(lambda pid: False)
    for _ in range(10):
        beats(pulse, SPARK_SILENT_BEATS)
        pulse.answered(0)
    assert not pulse.verdict


def test_a_jvm_that_does_not_answer_the_driver_is_the_reason() -> None:
    for stopped, patience in ((False, SPARK_SILENT_BEATS), (True, SPARK_STOPPED_BEATS)):
        pulse = Liveness(lambda pid, stopped=stopped: stopped and pid == JVM)
        pulse.answered(patience)
        assert not beats(pulse, 1)
        pulse.answered(patience + 1)
        assert "its JVM" in beats(pulse, 1)


def test_the_kernel_says_who_is_stopped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert is_stopped(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert not is_stopped(child.pid)
