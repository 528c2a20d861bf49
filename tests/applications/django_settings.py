"""Django's settings for its own test suite on a server, and a runner that writes a line for each test.

The suite's process imports this module, so it imports nothing of Noria.
"""

from __future__ import annotations

import json
import os
import time
import unittest
from typing import Any

from django.test.runner import DiscoverRunner

DATABASES = {alias: {"ENGINE": "django.db.backends.mysql", "NAME": f"django_{alias}", "USER": "root",
                     **json.loads(os.environ["DJANGO_SUITE_SERVER"])} for alias in ("default", "other")}
SECRET_KEY = "of the tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_settings.Runner"


class Result(unittest.TextTestResult):
    """Writes each test's outcome, seconds and error."""

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._began, self._written = time.monotonic(), False

    def _write(self, test: Any, outcome: str, text: str = "") -> None:
        seconds = time.monotonic() - self._began if hasattr(self, "_began") else 0.0
        self._written = True
        with open(os.environ["DJANGO_SUITE_RESULTS"], "a") as results:
            results.write(json.dumps([test.id(), outcome, round(seconds, 3), text[-4000:]]) + "\n")

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        if not self._written:  # by a subtest that failed
            self._write(test, "ok")

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._write(test, "failed", self._text(err, test))

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._write(test, "error", self._text(err, test))

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self._write(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self._write(test, "expected", self._text(err, test))

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self._write(test, "failed", "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._write(test, "failed" if issubclass(err[0], test.failureException) else "error",
                        self._text(err, test))

    def _text(self, err: Any, test: Any) -> str:
        return str(self._exc_info_to_string(err, test))


class Runner(DiscoverRunner):
    def get_resultclass(self) -> type[Result]:
        return Result
