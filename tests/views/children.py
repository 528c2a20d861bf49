"""The environment of child processes that import what this process can."""

from __future__ import annotations

import os
import sys

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
