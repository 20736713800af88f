"""The end of a stream: signals, stopping a query, and the error of a query that Spark ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from fairway.errors import FairwayError
from fairway.pipeline.run.failures import failure_said

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GRACE_S: Final = 30.0
_POLL_S: Final = 0.05


@contextmanager
def ending_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set an event at Ctrl-C or SIGTERM; a second signal has its default effect. Call it in the main thread.

    Call it after the start of the session: Spark then installs its own handler, which raises at any point of the code.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        for each in _SIGNALS:
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)

    for number in _SIGNALS:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_query(query: StreamingQuery) -> None:
    """Stop a query between two micro-batches, or after `_GRACE_S` within one."""
    patience_s = time.monotonic() + _GRACE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < patience_s:
        time.sleep(_POLL_S)
    query.stop()


def failure_of_query(query: StreamingQuery, folder: Path) -> FairwayError | None:
    """Return the error that ended a query of a stream into a folder; None if it ended normally."""
    failure = query.exception()
    if failure is None:
        return None
    again = "run the same command again: it continues after the last micro-batch"
    return failure_said(str(failure), folder, f"Spark gave up the query {query.name}", again)
