"""Metrics in Prometheus' text form, made from one flat dictionary of numbers when they are asked for.

Names ending in `_total` are counters, all others gauges.  docs list every metric: DESCRIPTIONS is that list, and
a number without a description is a bug that a test finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

DESCRIPTIONS: dict[str, str] = {
    "reads_total": "SELECTs answered, from anywhere",
    "view_hits_total": "lookups answered from a view in shared memory",
    "upqueries_total": "lookups that missed and asked the worker; clients that wait for the same key share one",
    "cached_replies_total": "SELECTs answered with an encoded reply that was kept",
    "cached_reply_bytes": "memory of kept replies",
    "writes_total": "write statements answered",
    "write_errors_total": "write statements refused",
    "commits_total": "synced commits sent to the worker; one serves the writes of many clients",
    "spark_queries_total": "SELECTs that no view can answer, computed by Spark over a snapshot",
    "connections": "MySQL clients connected",
    "tables": "tables in the program",
    "views": "named views in the program",
    "adhoc_views": "views made for SELECTs that no named view answers",
    "parsed_total": "statements that had to be parsed; the others were recognised by their shape",
    "worker_up": "1 while the worker serves, 0 while it is being restarted",
    "worker_restarts_total": "times a worker came up after the first",
}


class _Numbers:
    def __init__(self, numbers: Mapping[str, Any]):
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        for name, value in sorted(self._numbers.items()):
            about = DESCRIPTIONS.get(name) or f"{name.removeprefix('worker_').replace('_', ' ')} of the worker"
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(f"noria_{name}", about, value=float(value))


def render(numbers: Mapping[str, Any]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(numbers))
    return bytes(generate_latest(registry))
