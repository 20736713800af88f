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
from typing import Final

from fairway.errors import StoreCorruptError, StoreFullError
from fairway.rln.field import poseidon
from fairway.rln.proof import SignalProof
from fairway.rln.validation import DoubleSignal
from fairway.storage.sqlite_errors import typed_errors

_PRIVATE: Final = 0o600


class SlashLog:
    """The file, which is appended to. Threads may share one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Create the file if it is missing, and make it private to its owner.

        Raises `StorageError` if that fails, `StoreCorruptError` if the path is no ordinary file.
        """
        self._path: Final = Path(path).absolute()
        self._lock: Final = Lock()
        self._written: set[bytes] = set()
        with typed_errors(self._path, "opening"):
            if self._path.exists() and not self._path.is_file():
                raise StoreCorruptError(f"{self._path} is no ordinary file: give the path of one, or of none yet")
            self._path.touch(_PRIVATE)
            self._path.chmod(_PRIVATE)

    def record(self, double: DoubleSignal, now_ms: int) -> bool:
        """Write a double signal to the disk; return False if its nullifier has a line already.

        Raises `StorageError` if the line cannot be written; the file is then as before.
        """
        nullifier = double.first.nullifier
        with self._lock, typed_errors(self._path, "writing"):
            if nullifier in self._written:
                return False
            with self._path.open("r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                # A crash may have cut off the last line.
                file.seek(max(0, size - 1))
                line = (b"\n" if file.read() not in {b"", b"\n"} else b"") + _line(double, now_ms)
                written = file.write(line) or 0
                if written < len(line):
                    file.truncate(size)
                    raise StoreFullError(f"{self._path}: only {written} of {len(line)} bytes fit: free some space")
                os.fsync(file.fileno())
            self._written.add(nullifier)
            return True


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
