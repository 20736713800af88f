"""Turns the errors of Spark, long traces of Java and Python with the cause in one line, into a `FairwayError`.

After any error readers find the previous run, and the same command continues with the failed job. So the text of the
error gives the remedy, and says that nothing is lost.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from fairway.errors import (
    ConfigurationError,
    DecodeError,
    FairwayError,
    NodeUnavailableError,
    PipelineError,
    SnapshotError,
    StorageError,
    StoreCorruptError,
    StoreFullError,
    StoreQueryError,
)
from fairway.pipeline.location import NO_ROOM, Location

_NO_ROOM_SAID: Final = ("No space left on device", "Disk quota exceeded", "File too large")
_OF_SOURCES: Final = {
    kind.__name__: kind
    for kind in (
        ConfigurationError,
        DecodeError,
        NodeUnavailableError,
        SnapshotError,
        StorageError,
        StoreCorruptError,
        StoreQueryError,
    )
}
"""The errors of a task that cannot read its source, or the state of a stream; each is constructed from a text."""
_RAISED: Final = re.compile(r"(?:fairway(?:\.\w+)+\.(\w+Error)|sqlite3\.OperationalError): (.+)")
_OF_CONNECT: Final = "pyspark.errors.exceptions.connect"
"""The module of Spark Connect's errors. It needs grpc, which other Sparks do not, so it is not imported here."""
_UNANSWERED: Final = re.compile(r'status = StatusCode\.(\w+)\s+details = "(.*)"')
"""The text of grpc's error for a call that the server did not answer."""
_READING: Final = re.compile(r"while reading file (\S+?)\.?(?:\s|$)")
_BUSY: Final = "a source cannot be read while another program has it for itself"
_CHANGED_ROWS: Final = re.compile(r"indeterminate|cannot rollback|ollback failed")
"""The texts of Spark for a job that it ended because a repeated task gave other rows."""
_AGAIN: Final = "run the same command again: it continues after the last finished table"
_SHOWN_CHARACTERS: Final = 300
_LATE: Final = "Python worker failed to connect back"


class SlowStartError(PipelineError):
    """Python started too slowly for Spark: a retry may succeed."""


@contextmanager
def named_failures(folder: Path | Location) -> Iterator[None]:
    """Raise a known kind of failure of a run into a folder as a `FairwayError`, and any other as it is."""
    try:
        yield
    except Exception as error:
        failure = failure_of(error, folder)
        if failure is None:
            raise
        raise failure from error


def is_of_changed_rows(error: Exception) -> bool:
    """Return whether Spark ended a job because a repeated task gave other rows, as from an archive that gains rows."""
    return isinstance(error, Py4JJavaError | PySparkException) and bool(_CHANGED_ROWS.search(str(error)))


def failure_of(error: Exception, folder: Path | Location) -> FairwayError | None:
    """Return the `FairwayError` for the error that ended a run into a folder; None for an unknown error."""
    if isinstance(error, FairwayError):
        return None
    if isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)):
        return PipelineError(f"the Java process of Spark ended in the middle of the run into {folder}; {_AGAIN}")
    if isinstance(error, OSError):
        if error.errno in NO_ROOM:
            return _no_room(folder)
        return StorageError(f"{folder} cannot be written ({error}): remove the cause; {_AGAIN}")
    if isinstance(error, sqlite3.OperationalError):
        return StorageError(f"{_BUSY}: {error}; {_AGAIN}")
    told_by_server = _is_told_by_server(error)
    if told_by_server and (unanswered := _UNANSWERED.search(str(error))):
        return PipelineError(
            f"the Spark Connect server did not answer in the middle of the run into {folder} "
            f"({unanswered[1]}: {unanswered[2][:_SHOWN_CHARACTERS]}): see that it runs; {_AGAIN}"
        )
    if not told_by_server and not isinstance(error, Py4JJavaError | PythonException):
        return None
    return failure_said(str(error), folder, f"Spark stopped the run into {folder}", _AGAIN)


def failure_said(said: str, folder: Path | Location, what: str, again: str) -> FairwayError:
    """Return the `FairwayError` for the text of an error of Spark.

    If the text names none, the error says ``what`` ended, its cause, and how to continue (``again``).
    """
    if any(sign in said for sign in _NO_ROOM_SAID):
        return _no_room(folder, again)
    if _CHANGED_ROWS.search(said):
        return PipelineError(f"{what}: an executor was lost, and a source has other rows than before; {again}")
    raised = [*_RAISED.finditer(said)]
    if not raised and _LATE in said:
        return SlowStartError(
            f"{what}: this machine was too busy to start Python within the ten seconds for which Spark waits; {again}"
        )
    if not raised:
        return PipelineError(f"{what}: {_last_cause(said)}; {again}")
    last = raised[-1]
    if last[1] is None:
        return StorageError(f"{_BUSY}: {last[2]}; {again}")
    return _OF_SOURCES.get(last[1], PipelineError)(last[2])


def unusable(folder: Path | Location, error: OSError) -> FairwayError:
    """Return the error for a folder that a run cannot use."""
    if error.errno in NO_ROOM:
        return _no_room(folder)
    return ConfigurationError(
        f"{folder} cannot be used for a run ({error.strerror or error}): give --out a folder that you may write to"
    )


def _is_told_by_server(error: Exception) -> bool:
    """Return whether an error is from Spark Connect, which has no Java process on this machine."""
    connect = sys.modules.get(_OF_CONNECT)
    return connect is not None and isinstance(error, connect.SparkConnectException)


def _no_room(folder: Path | Location, again: str = _AGAIN) -> StoreFullError:
    return StoreFullError(f"no room is left for {folder}, or for Spark's temporary files: make some; {again}")


def _last_cause(said: str) -> str:
    """Return the innermost cause of a Java exception, in one line, with its file if the text names one."""
    causes = re.findall(r"^(?::\s|Caused by: )?([\w.$]+(?:Exception|Error|Arrow\w+): .+)$", said, re.MULTILINE)
    cause = (causes[-1] if causes else said.strip().partition("\n")[0])[:_SHOWN_CHARACTERS]
    file = _READING.search(said)
    return cause if file is None or file[1] in cause else f"{cause} ({file[1][:_SHOWN_CHARACTERS]})"
