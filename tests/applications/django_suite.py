"""Django's own test suite, unmodified, on Noria and on MariaDB: what passes on one and not on the other.

    make django-suite                                        needs libmariadb-dev, gcc and Debian's mariadb-server
    make django-suite DJANGO="queries lookup"                some of its labels
    make django-suite DJANGO="queries.test_q.QTests --show"  a module, a class or a test, and the errors

It downloads the pinned source distribution, and installs it and the driver mysqlclient in a virtual environment of its
own (NORIA_DJANGO, or ~/.cache/noria-django).  Both servers run each label with Django's own MySQL backend.  It prints a
table of outcomes and seconds, and each test that passes on MariaDB and not on Noria.  It fails for a test that `KNOWN`
does not have, and for one that `KNOWN` has and that passes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.mariadb import MariaDb
from e2e.serving import Served

VERSION = "5.2.19"
PACKAGES = ("mysqlclient==2.2.7", "tblib==3.2.2", "Jinja2==3.1.6", "PyYAML==6.0.3", "docutils==0.22.4")
LABELS = (
    "backends", "basic", "queries", "lookup", "aggregation", "aggregation_regress", "annotations", "expressions",
    "expressions_case", "db_functions", "transactions", "transaction_hooks", "select_for_update", "schema",
    "migrations", "introspection", "inspectdb", "fixtures", "constraints", "custom_pk", "many_to_many", "many_to_one",
    "bulk_create", "delete", "delete_regress", "update", "datatypes", "model_fields", "ordering", "raw_query",
    "sessions_tests", "auth_tests", "admin_views",
)
TIMEOUT_S = 600  # of one label on one server
REASONS = {  # why tests pass on MariaDB and not here: module, class, and tests
    "there are two collations of text": (
        "schema.tests.SchemaTests test_add_field_db_collation test_alter_field_db_collation "
        "test_alter_field_type_and_db_collation test_alter_field_type_preserve_db_collation "
        "test_alter_primary_key_db_collation test_ci_cs_db_collation test_db_collation_charfield "
        "test_db_collation_textfield",
        "inspectdb.tests.InspectDBTestCase test_char_field_db_collation test_text_field_db_collation",
        "migrations.test_operations.OperationTests test_alter_field_pk_fk_db_collation "
        "test_create_fk_models_to_pk_field_db_collation",
        "db_functions.comparison.test_collate.CollateTests test_language_collation_order_by",
    ),
    "the engine is not InnoDB": (
        "schema.tests.SchemaTests test_alter_field_fk_keeps_index test_alter_field_fk_to_o2o",
        "backends.mysql.test_introspection.StorageEngineTests test_get_storage_engine",
    ),
    "there are no stored procedures": (
        "backends.test_utils.CursorWrapperTests test_callproc_with_int_params test_callproc_without_params",
    ),
    "EXPLAIN has no FORMAT; a bound of operators": (
        "queries.test_explain.ExplainTests test_basic test_multi_page_text_explain",
    ),
    "outer columns in an arm of a set operation": (
        "queries.test_qs_combinators.QuerySetSetOperationTests test_intersection_in_nested_subquery "
        "test_union_in_subquery test_union_in_subquery_related_outerref",
    ),
    "an expression in ORDER BY of a UNION": (
        "queries.test_qs_combinators.QuerySetSetOperationTests test_union_order_with_null_first_last",
    ),
    "error 3065 for ORDER BY in IN (SELECT DISTINCT …)": (
        "ordering.tests.OrderingTests test_orders_nulls_first_on_filtered_subquery",
    ),
    "MODIFY of a generated column to a plain one is refused": (
        "migrations.test_operations.OperationTests test_generated_field_changes_output_field",
    ),
    "the order of rows without ORDER BY": (
        "fixtures.tests.ForwardReferenceTests test_forward_reference_m2m test_forward_reference_m2m_natural_key",
        "many_to_one.tests.ManyToOneTests test_create_after_prefetch",
    ),
    "UPDATE checks UNIQUE at its end": (
        "update.tests.MySQLUpdateOrderByTest test_order_by_update_on_parent_unique_constraint",
    ),
    "a value has 18 digits": (
        "model_fields.test_decimalfield.DecimalFieldTests test_fetch_from_db_without_float_rounding",
    ),
    "two least BIGINTs, and BIGINT UNSIGNED from 2^63 on, are not stored": (
        "model_fields.test_autofield.BigAutoFieldTests test_backend_range_min_value_lookups test_backend_range_save "
        "test_documented_range",
        "model_fields.test_integerfield.BigIntegerFieldTests test_backend_range_min_value_lookups "
        "test_backend_range_save test_documented_range",
        "model_fields.test_integerfield.PositiveBigIntegerFieldTests test_backend_range_max_value_lookups "
        "test_backend_range_save",
    ),
    "the order of JSON numbers": (
        "model_fields.test_jsonfield.TestQuerying test_ordering_by_transform",
    ),
}
KNOWN = {f"{of}.{test}".strip("."): why for why, lines in REASONS.items() for line in lines
         for of, *tests in [line.split()] for test in tests or [""]}
OUTCOMES = ("ok", "failed", "error", "skipped", "expected")


@dataclass
class Run:
    """One label on one server."""

    seconds: float = 0.0
    ended: bool = True
    outcomes: dict[str, str] = field(default_factory=dict)  # by test; setUpClass has one of its own
    texts: dict[str, str] = field(default_factory=dict)
    output: str = ""

    def shown(self) -> str:
        counts = Counter(self.outcomes.values())
        return " ".join(f"{counts[outcome]:>7}" for outcome in OUTCOMES) + f" {self.seconds:>7.1f}" + (
            "" if self.ended else f" (stopped after {TIMEOUT_S} s)")


class Suite:
    """Django's source distribution and the virtual environment that runs it."""

    def __init__(self, home: Path):
        self._source, self._python = home / f"django-{VERSION}", home / "env" / "bin" / "python"
        installed = home / "installed"
        if not installed.exists() or installed.read_text() != f"{VERSION} {PACKAGES}":
            self._install(home)
            installed.write_text(f"{VERSION} {PACKAGES}")

    def _install(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
        subprocess.run([*pip, "download", "--no-binary", "django", "--no-deps", "-d", home, f"django=={VERSION}"],
                       check=True)
        with tarfile.open(home / f"django-{VERSION}.tar.gz") as archive:
            archive.extractall(home, filter="data")
        subprocess.run([sys.executable, "-m", "venv", home / "env"], check=True)
        subprocess.run([self._python, *pip[1:], "install", "-e", self._source, *PACKAGES], check=True)

    def run(self, label: str, server: dict[str, Any], directory: Path) -> Run:
        results, output = directory / "results", directory / "output"
        results.unlink(missing_ok=True)
        around = {**os.environ, "DJANGO_SUITE_SERVER": json.dumps(server), "DJANGO_SUITE_RESULTS": str(results),
                  "PYTHONPATH": str(Path(__file__).parent)}
        command = [self._python, "runtests.py", "--settings=django_settings", "--parallel=1", "--noinput", label]
        done, began = Run(), time.monotonic()
        with output.open("wb") as out, subprocess.Popen(
                command, cwd=self._source / "tests", env=around, stdout=out, stderr=out, start_new_session=True) as ran:
            try:
                ran.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                done.ended = False
            with suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
        done.seconds, done.output = time.monotonic() - began, output.read_text(errors="replace")
        for line in results.read_text().splitlines() if results.exists() else ():
            test, outcome, _, text = json.loads(line)
            if done.outcomes.get(test) not in ("failed", "error"):
                done.outcomes[test] = outcome
            if outcome in ("failed", "error"):
                done.texts[test] = done.texts.get(test, "") + text
        return done


def reason(test: str) -> str | None:
    """Why the test, its class or its module is known to fail."""
    parts = test.split(".")
    return next((KNOWN[name] for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in KNOWN), None)


def compared(label: str, theirs: Run, mine: Run, show: bool) -> tuple[set[str], list[str]]:
    """Print the differences.  Returns the tests that pass only there, and what is not as KNOWN says."""
    passed = {t for t, outcome in theirs.outcomes.items() if outcome in ("ok", "expected")}
    differ = {t for t in passed if mine.outcomes.get(t) not in ("ok", "expected", "skipped")}
    for test in sorted(differ) if mine.outcomes else ():
        print(f"    {mine.outcomes.get(test, 'not run')}: {test}{' (known)' if reason(test) else ''}")
    for test, text in sorted(mine.texts.items()):
        if theirs.outcomes.get(test) not in ("failed", "error") and (show or "setUpClass" in test):
            print(f"---- {test}\n{text}")
    if not mine.ended or not mine.outcomes:
        print(f"---- {label}: the output ends\n{mine.output[-3000:]}")
    new = [t for t in sorted(differ) if reason(t) is None]
    gone = [f"no more: {k}" for k in KNOWN if mine.outcomes.get(k) == "ok" == theirs.outcomes.get(k)]
    return differ, new + gone


def main() -> int:
    arguments = argparse.ArgumentParser(description="Django's test suite on MariaDB and on Noria.")
    arguments.add_argument("labels", nargs="*", default=LABELS)
    arguments.add_argument("--show", action="store_true", help="print the error of each test that fails only here")
    asked = arguments.parse_args()
    suite = Suite(Path(os.environ.get("NORIA_DJANGO", Path.home() / ".cache" / "noria-django")))
    wrong, tests, lost, seconds = [], 0, 0, [0.0, 0.0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noria-django-")))
        (directory / "maria").mkdir()
        maria = stack.enter_context(closing(MariaDb(directory / "maria")))
        noria = Served(directory / "data")
        stack.callback(noria.stop)
        servers = {"HOST": maria.socket}, {"HOST": "127.0.0.1", "PORT": noria.mysql_port}
        print(f"{'':30} {'':8} " + " ".join(f"{outcome:>7}"[:8] for outcome in (*OUTCOMES, "seconds")), flush=True)
        for label in asked.labels:
            theirs, mine = (suite.run(label, server, directory) for server in servers)
            print(f"{label:30} MariaDB  {theirs.shown()}\n{'':30} Noria    {mine.shown()}", flush=True)
            differ, unknown = compared(label, theirs, mine, asked.show)
            wrong += unknown
            tests += sum(outcome in ("ok", "expected") for outcome in theirs.outcomes.values())
            lost, seconds = lost + len(differ), [seconds[0] + theirs.seconds, seconds[1] + mine.seconds]
    print(f"{tests} tests pass on MariaDB; {lost} of them do not on Noria ({100 * lost / max(tests, 1):.2f} %); "
          f"{seconds[0]:.0f} s and {seconds[1]:.0f} s", *wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
