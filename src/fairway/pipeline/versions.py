"""`OneVersion`: objects for tasks, which only the version of fairway that pickled them unpickles.

Everything that Spark passes to executors has it: functions over batches (`fairway.pipeline.exchange.in_tasks`), the
readers and writers of the format ``waku``, and the operator of a stream.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

from fairway.errors import PipelineError


class OneVersion:
    """An object that raises `PipelineError` when another version of fairway unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (_version(), cloudpickle.dumps((type(self), self.__dict__)))  # type: ignore[no-untyped-call]


def _unpickled(version: str, pickled: bytes) -> OneVersion:
    own = _version()
    if version != own:
        raise PipelineError(f"an executor has fairway {own}, and the driver {version}: install the same version on all")
    kind, state = cloudpickle.loads(pickled)
    found: OneVersion = object.__new__(kind)
    found.__dict__.update(state)
    return found


def _version() -> str:
    # An executor may have fairway only on its path, without the metadata of an installation.
    return str(sys.modules["fairway"].__version__)
