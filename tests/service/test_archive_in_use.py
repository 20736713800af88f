"""An archive in SQLite that a node has open is refused to another one, until that node has ended in any way."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from fairway.errors import StoreLockedError
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.storage.nwaku_archive import NwakuArchive
from patience import PATIENCE_S


def node(archive):
    return ServiceNode.start(ServiceOptions(archive=archive))


@pytest.mark.parametrize("again", ["sqlite:{}", "sqlite://{}", "{}", "sqlite:{}/../archive.db", "link"])
async def test_a_second_node_of_the_process_is_refused_until_the_first_ends(tmp_path, again):
    path = tmp_path / "archive.db"
    (tmp_path / "link.db").symlink_to(path)
    (tmp_path / "archive.db.d").mkdir()
    place = {"link": f"sqlite:{tmp_path / 'link.db'}"}.get(again, again.format(path))
    place = place.replace(f"{path}/../", f"{tmp_path}/archive.db.d/../")
    async with await node(f"sqlite:{path}"):
        with pytest.raises(StoreLockedError, match=r"close the other node first, or give each node its own archive"):
            await node(place)
        with NwakuArchive(path, read_only=True) as reader:
            assert reader.count() == 0, "programs that only read need no lock"
    async with await node(place) as second:
        assert second.status.store


async def test_a_node_that_cannot_open_its_archive_keeps_no_lock(tmp_path):
    path = tmp_path / "archive.db"
    path.write_bytes(b"this is no database, and never was one" * 100)
    for _ in range(2):
        with pytest.raises(Exception, match=r"archive\.db") as caught:
            await node(f"sqlite:{path}")
        assert not isinstance(caught.value, StoreLockedError)
    path.unlink()
    async with await node(f"sqlite:{path}"):
        pass


async def test_another_process_has_the_archive_until_it_is_killed(tmp_path):
    path = tmp_path / "archive.db"
    command = [sys.executable, "-m", "fairway", "node", "--json", "--no-rest", "--archive", f"sqlite:{path}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert json.loads(await process.stdout.readline())["peer_id"]
        with pytest.raises(StoreLockedError, match=rf"archive\.db is used by process {process.pid}: end that"):
            await node(f"sqlite:{path}")
    finally:
        process.kill()
        await process.communicate()
    async with await node(f"sqlite:{path}") as heir:
        assert heir.status.store
