"""A simulated disk keeps for sure what was forced to it, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from fairway.protocol.effects import Change
from fairway.storage import sqlite_connection
from fairway.storage.channel_store import Write
from fairway.testing import SimulatedDisk, run


@pytest.mark.parametrize(("synchronous", "is_kept"), [("FULL", True), ("NORMAL", False), ("OFF", False)])
def test_a_power_cut_keeps_a_commit_only_if_it_was_forced_to_the_disk(
    monkeypatch: pytest.MonkeyPatch, synchronous: str, is_kept: bool
) -> None:
    connect = sqlite_connection.connect

    def as_told(*arguments: object, **named: object) -> object:
        connection = connect(*arguments, **named)  # type: ignore[arg-type]
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        return connection

    monkeypatch.setattr("fairway.testing.disk.connect", as_told)
    kept: list[str] = []

    async def two_lives() -> None:
        with SimulatedDisk(seed=3) as disk:
            store = disk.store("alice")
            store.open("room", "alice", "/a/1/b/proto")
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            store.submit(Write(changes=(Change(table="history", key="one", row=(1,)),)), done.set_result)
            assert await done is None
            disk.power_loss("alice")
            stored = disk.store("alice").open("room", "alice", "/a/1/b/proto")
            kept.extend(change.key for change in stored.changes)

    run(two_lives(), seed=3)
    assert ("one" in kept) is is_kept
