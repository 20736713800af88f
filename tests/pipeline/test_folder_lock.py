"""One process at a time works on a folder, on this machine and in an object store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from fairway.errors import StorageError, StoreLockedError
from fairway.pipeline.folder_lock import ClaimLock, lock_folder
from fairway.pipeline.location import Location
from patience import PATIENCE_S
from s3_server import s3_server

HOLDER = """
import sys, time
from fairway.pipeline.folder_lock import lock_folder
from fairway.pipeline.location import Location
lock = lock_folder(Location.of(sys.argv[1], "--out"), "manifest.json")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(
    params=["here", "s3", *(pytest.param(name, marks=pytest.mark.full) for name in ("hdfs", "gcs", "azure"))]
)
def uri(request, tmp_path):
    if request.param in {"gcs", "azure"}:
        return request.getfixturevalue(request.param).format(request.node.originalname)
    if request.param == "hdfs":
        return f"{request.getfixturevalue('hdfs')}/{request.node.name}"
    return str(tmp_path) if request.param == "here" else request.getfixturevalue("bucket").uri("run")


def locked(uri: str):
    return lock_folder(Location.of(uri, "--out"), "manifest.json")


def test_a_folder_is_locked_once_and_again_when_it_was_released(uri):
    lock = locked(uri)
    lock.check()
    with pytest.raises(StoreLockedError):
        locked(uri)
    lock.check()
    lock.release()
    locked(uri).release()


def test_a_process_that_was_killed_holds_nothing(uri):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreLockedError, match=f"process {holder.pid}"):
            locked(uri)
        holder.kill()
    locked(uri).release()


def test_a_process_that_reads_the_files_of_its_folder_keeps_the_lock(tmp_path):
    lock = locked(str(tmp_path))
    for file in tmp_path.iterdir():
        file.read_bytes()
    another = [sys.executable, "-c", HOLDER, str(tmp_path)]
    refused = subprocess.run(another, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert f"used by process {os.getpid()}" in refused.stderr
    lock.release()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at the state of a process in /proc")
def test_nor_does_one_for_whose_end_nobody_has_asked(uri):
    """So it is for a while after a kill, and for ever in a container whose first process asks for no other."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "locked\n"
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        locked(uri).release()


def claims_of(bucket) -> Location:
    return Location.of(bucket.uri("run/manifest.json.claims"), "--out")


def elsewhere(bucket, **changes: object) -> None:
    """Put the claim of a process on another machine."""
    told = {"machine": "another", "host": "db7", "process": 1, "claim": "c1"} | changes
    bucket.write("run/manifest.json.claims/c1", json.dumps(told).encode())


def test_a_process_on_another_machine_is_believed_to_live_until_it_is_silent_for_long(bucket):
    elsewhere(bucket)
    with pytest.raises(StoreLockedError, match=r"process 1 on db7 works on it, by s3://.*/run/manifest.json.claims/c1"):
        ClaimLock(claims_of(bucket))
    assert bucket.keys("run") == ["manifest.json.claims/c1"]
    ClaimLock(claims_of(bucket), stale_s=0).release()
    assert bucket.keys("run") == []


def test_an_unreadable_claim_counts_as_one(bucket):
    bucket.write("run/manifest.json.claims/c1", b"{")
    with pytest.raises(StoreLockedError):
        ClaimLock(claims_of(bucket))


def test_an_earlier_process_of_the_same_number_is_gone(bucket):
    lock = ClaimLock(claims_of(bucket))
    (key,) = bucket.keys("run")
    content = json.loads(bucket.read(f"run/{key}"))
    lock.release()
    elsewhere(bucket, machine=content["machine"], process=content["process"])
    ClaimLock(claims_of(bucket)).release()


def test_who_lost_the_folder_is_told_before_it_writes(bucket):
    lock = ClaimLock(claims_of(bucket))
    other = ClaimLock(claims_of(bucket), stale_s=0)
    with pytest.raises(StorageError, match=r"another process took s3://.* over"):
        lock.check()
    lock.release()
    other.check()
    other.release()


def test_a_claim_is_put_again_as_long_as_it_is_there(bucket):
    """The time of the object moves on: seen by its content, which is put back after it was changed."""
    lock = ClaimLock(claims_of(bucket), beat_s=0.01)
    (key,) = bucket.keys("run")
    bucket.write(f"run/{key}", b"changed")
    waited = threading.Event()
    for _ in range(round(PATIENCE_S / 0.05)):
        if bucket.read(f"run/{key}") != b"changed":
            break
        waited.wait(0.05)
    assert json.loads(bucket.read(f"run/{key}"))["claim"] in key
    lock.release()
    assert bucket.keys("run") == []


def test_a_process_that_lost_the_folder_puts_no_new_claim(bucket):
    lock = ClaimLock(claims_of(bucket))
    (key,) = bucket.keys("run")
    bucket.remove(f"run/{key}")
    assert not lock.beat()
    assert bucket.keys("run") == []
    lock.release()


def test_what_a_process_left_that_was_killed_while_it_put_its_claim_is_removed(tmp_path):
    """A file system with folders first, as HDFS is: a claim is written beside its place, and moved there."""
    folder = tmp_path / "claims"
    claims = Location(SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "claims", "hdfs://host/claims")
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    lock = ClaimLock(claims)
    (own,) = folder.iterdir()
    content = json.loads(own.read_bytes())
    lock.release()
    told = json.dumps(content | {"process": gone.pid}).encode()
    (folder / "c1").write_bytes(told)
    (folder / ".c1.new").write_bytes(b"")  # killed when it put its claim again
    (folder / ".c2.new").write_bytes(told)  # killed when it put it for the first time
    (folder / ".c3.new").write_bytes(b"")  # just begins, perhaps
    lock = ClaimLock(claims)
    assert sorted(path.name.startswith(".") for path in folder.iterdir()) == [False, True]
    assert (folder / ".c3.new").exists()
    lock.release()
    ClaimLock(claims, stale_s=0).release()
    assert not list(folder.iterdir())


@pytest.mark.full
def test_a_lock_in_a_store_that_answers_no_more_is_released_without_an_error():
    with s3_server() as server:
        lock = ClaimLock(claims_of(server.new_bucket()))
    with pytest.raises(StorageError):
        lock.check()
    lock.release()
