"""What Spark's own ways of running the data-flow cost, beside a barrier task: why Spark hosts the workers as it
does (DESIGN section 2).  `python bench/spark_floor.py`, about a minute."""

from __future__ import annotations

import time

from noria.spark import floor
from noria.spark.session import SparkSettings, build_session


def main() -> None:
    started = time.perf_counter()
    session = build_session(SparkSettings(workers=1, app_name="noria-floor"))
    rows = [("session: start of JVM and SparkContext", f"{time.perf_counter() - started:.1f} s")]
    try:
        rows.append(("micro-batch of one row, median", f"{floor.micro_batch(session) * 1000:.0f} ms"))
        rows.append(("mapInArrow job of one row, median", f"{floor.arrow_job(session) * 1000:.0f} ms"))
        barrier = floor.barrier_task(session)
        rows.append(("barrier task: submitted to serving", f"{barrier['up'] * 1000:.0f} ms"))
        rows.append(("barrier task: round trip of 100 bytes, median", f"{barrier['100 bytes'] * 1e6:.0f} µs"))
        rows.append(("barrier task: round trip of 1 MB, median", f"{barrier['1 MB'] * 1000:.2f} ms"))
        for what, said in floor.real_time_refusals(session).items():
            rows.append((f"real-time mode, {what}", said))
    finally:
        session.stop()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
