"""The process from which Spark forks its Python workers: it imports beforehand what tasks use.

Spark's own daemon (``pyspark.daemon``) imports next to nothing, so that each worker begins with a second of imports,
and with its compiler where Spark gives it PySpark as a zip, in which no compiled files are. Here workers share what was
imported once. `fairway.pipeline.session` sets it (``spark.python.daemon.module``) for a session on this machine.

Nothing that is imported here may start a thread that a fork would lose: NumPy's are turned off by
``OPENBLAS_NUM_THREADS``, and the one of Arrow's allocator is prepared for forks.
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
    """Return the places where modules are looked for, without a zip of PySpark that is there unpacked, too."""
    packed = {str(Path(place, _ZIP)) for place in path if place}
    return [place for place in path if place not in packed]


def main() -> None:
    """Import what tasks use, and serve Spark until it ends."""
    sys.path[:] = without_packed_spark(sys.path)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # tasks share the cores already
    for name in _USED_BY_TASKS:
        importlib.import_module(name)
    gc.freeze()  # a search for garbage would write to pages that all workers share
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
