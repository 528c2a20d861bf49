"""Lists the classes that messages about jobs may contain: the jobs' arguments, results and errors.

A new job needs one line in `FUNCTIONS`; the classes follow from its annotations.  This module imports pyspark, so the
front end imports it only for its first job.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from noria.core.errors import SqlError
from noria.plan import after
from noria.plan.mir import Mir
from noria.plan.view import ViewDef
from noria.spark.hosting.session import SparkUnavailable
from noria.spark.jobs import bootstrap, export, files, index, query, rewrite, verify
from noria.spark.loading import inferring, load, merging, parents
from noria.spark.loading.rows.files import BadFile
from noria.spark.loading.tasks.tasks import LoadRefused
from noria.storage.rocks.errors import StoreDamaged, StoreError

FUNCTIONS = (query.query, export.export, files.write, bootstrap.bootstrap, index.index, inferring.infer,
             rewrite.matching, rewrite.rewrite, verify.verify, verify.sample, load.load, merging.rows, parents.gone)
ERRORS = (SqlError, LoadRefused, BadFile, StoreError, StoreDamaged, SparkUnavailable)
_NOT_SENT = ("spark", "progress")


def _types() -> list[Any]:
    return [t for f in FUNCTIONS for name, t in get_type_hints(f).items() if name not in _NOT_SENT]


ROOTS = (*_types(), *ERRORS, Mir, ViewDef, after.LookedUpRows)
