"""`SlashLog`: a JSON line for each double signal, in a file that only its owner may read.

::

    {"at_ms": 1791000000000, "epoch": 2985000, "identity_commitment": "<64 hex digits>", "identity_secret": "<...>",
     "nullifier": "<...>", "root": "<...>", "rln_identifier": "<...>",
     "proofs": [{"id": "<...>", "share_x": "<...>", "share_y": "<...>"}, {...}]}

Elements are 32 bytes, little-endian, as 64 hex digits. The id of a proof is SHA-256 of its bytes in field 21 of the
WakuMessage. If the contract of a group allows it, anybody can use the identity secret to withdraw the membership and
its deposit: protect the file as you protect a key.

A nullifier gets one line, also if more signals follow under it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

from fairway.errors import StoreCorruptError, StoreFullError
from fairway.rln.field import poseidon
from fairway.rln.proof import SignalProof
from fairway.rln.validation import DoubleSignal
from fairway.storage.sqlite_errors import typed_errors

_PRIVATE: Final = 0o600
_REMEMBERED_EPOCHS: Final = 4
"""More epochs than validators accept."""


class SlashLog:
    """The file, which is appended to. Threads may share one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the file, and make it private to its owner.

        Raises `StorageError` if that fails, `StoreCorruptError` if the path is no ordinary file.
        """
        self._path = Path(path).absolute()
        with typed_errors(self._path, "opening"):
            if self._path.exists() and not self._path.is_file():
                raise StoreCorruptError(f"{self._path} is no ordinary file: give the path of one, or of none yet")
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _PRIVATE)
            try:
                self._path.chmod(_PRIVATE)
                self._end_line()
            except BaseException:
                os.close(self._descriptor)
                raise
        self._lock = Lock()
        self._written: dict[int, set[bytes]] = {}

    def record(self, double: DoubleSignal, now_ms: int) -> bool:
        """Write a double signal to the disk; return False if its nullifier has a line already.

        Raises `StorageError` if the line cannot be written.
        """
        with self._lock:
            epoch, nullifier = double.first.epoch, double.first.nullifier
            if nullifier in self._written.get(epoch, ()):
                return False
            with typed_errors(self._path, "writing"):
                self._append(_line(double, now_ms))
            self._written.setdefault(epoch, set()).add(nullifier)
            for old in sorted(self._written)[:-_REMEMBERED_EPOCHS]:
                del self._written[old]
            return True

    def close(self) -> None:
        """Close the file; nothing can be recorded afterwards. Can be called twice."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, line: bytes) -> None:
        """Write a whole line or nothing."""
        before = os.fstat(self._descriptor).st_size
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.ftruncate(self._descriptor, before)
            raise StoreFullError(f"{self._path}: only {written} of {len(line)} bytes could be written: free some space")
        os.fsync(self._descriptor)

    def _end_line(self) -> None:
        """End the last line, which a crash may have cut off."""
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() not in {b"", b"\n"}:
                self._append(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(double: DoubleSignal, now_ms: int) -> bytes:
    first = double.first
    told = {
        "at_ms": now_ms,
        "epoch": first.epoch,
        "identity_commitment": poseidon(double.secret).hex(),
        "identity_secret": double.secret.hex(),
        "nullifier": first.nullifier.hex(),
        "root": double.second.root.hex(),
        "rln_identifier": first.identifier.hex(),
        "proofs": [_proof(each) for each in (first, double.second)],
    }
    return json.dumps(told).encode() + b"\n"


def _proof(proof: SignalProof) -> dict[str, str]:
    return {
        "id": hashlib.sha256(proof.encode()).hexdigest(),
        "share_x": proof.share_x.hex(),
        "share_y": proof.share_y.hex(),
    }
