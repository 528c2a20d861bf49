"""What a server's process does to itself at its start."""

from __future__ import annotations

import subprocess
import sys

ALONE = """
import sys
import numpy as np, pyarrow as pa
from noria.runtime.worker.resources import use_arrow_without_pandas
if sys.argv[1] == "alone":
    use_arrow_without_pandas()
array = pa.array(np.arange(3), mask=np.array([False, True, False]))
pa.chunked_array([array]).to_numpy()
print("pandas" in sys.modules)
print(pa.table({"a": array}).to_pandas()["a"].tolist(), pa.array(__import__("pandas").Series([4])).to_pylist())
"""


def test_a_server_uses_arrow_without_pandas_and_a_program_with_it() -> None:
    def run(how: str) -> list[str]:
        return subprocess.run([sys.executable, "-c", ALONE, how], capture_output=True, text=True, check=True
                              ).stdout.splitlines()

    assert run("alone") == ["False", "[0.0, nan, 2.0] [4]"]
    assert run("as it is")[0] == "True", "PyArrow does not import pandas by itself any more: the function can go"
