"""`lock_folder`: lets one process at a time work on a folder, wherever that is.

On this machine it is a lock of the operating system, which ends with the process (`StoreLock`). An object store has no
such thing, so a process puts a claim, an object of its own, beside the manifest, and then lists the claims::

    run/manifest.json.claims/5f0c...    who claims the folder; put again every `BEAT_S` as long as the process lives

If there is another claim it withdraws. Of two processes that begin at once the one that put its claim later finds the
other's, because these stores list what was put before (Amazon S3, Google Cloud Storage, Azure, MinIO, Ceph and HDFS
do); perhaps both find another's and both withdraw. So never do two work on a folder, and no conditional write is
needed, which not every store has and Arrow cannot ask for.

A process that was killed leaves its claim, and on HDFS perhaps the file that was to replace it. It counts no more if
the process was on this machine and is gone, or if it is `STALE_S` older than the claim that is put now, by the clock of
the store. A process that wakes up after such a time finds its claim removed (`FolderLock.check`), and ends.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from fairway.errors import StorageError, StoreLockedError
from fairway.pipeline.location import Location
from fairway.storage.store_lock import StoreLock

BEAT_S: Final = 20.0
STALE_S: Final = 180.0
_CLAIMS: Final = ".claims"
_NS_PER_S: Final = 1_000_000_000
_HELD: Final[set[str]] = set()
"""The names of the claims of this process."""


class FolderLock(Protocol):
    """A folder that is locked, until `release`."""

    def check(self) -> None:
        """Raise `StorageError` if another process has taken the folder meanwhile: call it before what others read."""

    def release(self) -> None:
        """Let other processes have the folder."""


def lock_folder(place: Location, name: str) -> FolderLock:
    """Lock a folder, which must be there if its file system has folders; ``name`` is that of its manifest.

    Raises `StoreLockedError` if another process works on it, `StorageError` if its storage cannot be reached, and
    `OSError` if it cannot be written on this machine.
    """
    return _LocalLock(place.local / name) if place.is_local else ClaimLock(place / f"{name}{_CLAIMS}")


class _LocalLock:
    """The lock of a folder on this machine, which ends with the process."""

    def __init__(self, manifest: Path) -> None:
        self._lock = StoreLock(manifest, user="run", kind="folder")

    def check(self) -> None:
        """Do nothing: the operating system takes the lock from no process that lives."""

    def release(self) -> None:
        """Let other processes have the folder."""
        self._lock.release()


class ClaimLock:
    """The lock of a folder in an object store, held from the constructor until `release`."""

    def __init__(self, claims: Location, *, beat_s: float = BEAT_S, stale_s: float = STALE_S) -> None:
        self._claims = claims
        self._name = secrets.token_hex(16)
        self._claim = claims / self._name
        self._content = json.dumps(
            {"machine": _machine(), "host": platform.node(), "process": os.getpid(), "claim": self._name}
        ).encode()
        self._ended = threading.Event()
        _HELD.add(self._name)
        try:
            claims.make_folder()
            self._claim.put(self._content)
            self._refuse_another(stale_s)
        except BaseException:
            self._withdraw()
            raise
        self._beating = threading.Thread(
            target=self._keep_beating, args=(beat_s,), name="claim of a folder", daemon=True
        )
        self._beating.start()

    def check(self) -> None:
        """Raise `StorageError` if the claim is not there any more."""
        if not self._claim.is_file():
            raise StorageError(
                f"another process took {self._claims} over, because this one gave no sign of life for long: nothing "
                "more is written; the same command goes on when that one has ended"
            )

    def beat(self) -> bool:
        """Put the claim again, so that others see that this process lives; return whether it was there.

        If it was not, another process has the folder, which a new claim would only disturb.
        """
        is_there = self._claim.is_file()
        if is_there:
            self._claim.put(self._content)
        return is_there

    def release(self) -> None:
        """Withdraw the claim."""
        self._ended.set()
        self._beating.join()
        self._withdraw()

    def _withdraw(self) -> None:
        _HELD.discard(self._name)
        # A store that does not answer any more ended the work: that is what the user is told, and the claim gets stale.
        with suppress(StorageError):
            self._claim.remove()

    def _refuse_another(self, stale_s: float) -> None:
        """Raise `StoreLockedError` if there is a claim of a process that may live; remove those of others."""
        found = {each.base_name: each for each in self._claims.files()}
        now_ns = found[self._name].mtime_ns
        for name, each in found.items():
            if name == self._name:
                continue
            holder = self._holder(name)
            age_s = (now_ns - each.mtime_ns) / _NS_PER_S
            if holder is None:
                continue  # withdrawn meanwhile
            if age_s >= stale_s or _is_gone(holder):
                (self._claims / name).remove()
                (self._claims / name).draft.remove()
            elif not name.startswith("."):  # a draft claims nothing: who writes it will list the claims after it
                raise StoreLockedError(
                    f"process {holder.get('process')} on {holder.get('host')} works on it, by {self._claims / name}, "
                    f"and gave a sign of life {age_s:.0f} s ago; if that is wrong, remove this file"
                )

    def _holder(self, name: str) -> dict[str, Any] | None:
        try:
            told = json.loads((self._claims / name).read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def _keep_beating(self, beat_s: float) -> None:
        while not self._ended.wait(beat_s):
            try:
                if not self.beat():
                    return
            except StorageError:
                continue  # the store does not answer: perhaps it does next time


def _is_gone(holder: dict[str, Any]) -> bool:
    """Return whether the process of a claim was on this machine and is there no more."""
    process = holder.get("process")
    if holder.get("machine") != _machine() or not isinstance(process, int) or sys.platform == "win32":
        return False
    if process == os.getpid():
        return holder.get("claim") not in _HELD  # an earlier process with this number
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _has_ended(process)


def _has_ended(process: int) -> bool:
    """Return whether a process has ended and is only listed until its parent asks how, which some never do."""
    try:
        state = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:  # no Linux, or it is gone by now: the next attempt sees that
        return False
    return state.rpartition(b")")[2].split()[0] == b"Z"


def _machine() -> str:
    """Return a name of the machine since it was started, and of the processes that see each other on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} {uuid.getnode()}"
