"""The process from which Spark forks its Python workers; it imports the modules of tasks before the fork.

Spark's own daemon (``pyspark.daemon``) imports almost nothing. So each worker starts with a second of imports, and
compiles PySpark if Spark passes it as a zip without compiled files. With this daemon the workers share the imported
modules. `fairway.pipeline.session` sets it (``spark.python.daemon.module``) for a session on this machine.

The imports here must not start threads, because a fork loses them. ``OPENBLAS_NUM_THREADS`` turns NumPy's threads off,
and the thread of Arrow's allocator supports forks.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_USED_BY_TASKS: Final = ("pyspark.worker", "fairway.pipeline.run")
_ZIP: Final = Path("pyspark", "python", "lib", "pyspark.zip")


def without_packed_spark(path: Sequence[str]) -> list[str]:
    """Return the module search path without the zip of a PySpark that is also on the path unpacked."""
    packed = {str(Path(place, _ZIP)) for place in path if place}
    return [place for place in path if place not in packed]


def main() -> None:
    """Import the modules of tasks, and serve Spark until it ends."""
    sys.path[:] = without_packed_spark(sys.path)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tasks share the cores already
    for name in _USED_BY_TASKS:
        importlib.import_module(name)
    gc.freeze()  # a garbage collection writes to pages that all workers share
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
