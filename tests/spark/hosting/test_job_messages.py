"""Every job that the server asks Spark for has a line in the codec of the driver's messages."""

from __future__ import annotations

import re
from pathlib import Path

import noria
from noria.spark.hosting.job_codec import FUNCTIONS

JOB = re.compile(r'"(noria\.spark\.(?:jobs|loading)\.[a-z_]+:[a-z_]+)"')
BY_KIND = {"noria.spark.loading.load:load", "noria.spark.loading.merging:rows"}  # named by what a load does


def test_each_job_is_known() -> None:
    asked = {name for path in Path(noria.__file__).parent.rglob("*.py") for name in JOB.findall(path.read_text())}
    assert asked | BY_KIND == {f"{f.__module__}:{f.__name__}" for f in FUNCTIONS}
