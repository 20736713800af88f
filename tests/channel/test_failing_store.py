"""When the disk fails: an error that says so, nothing that was accepted is lost, nothing unaccepted leaves."""

from __future__ import annotations

import asyncio
import re
import traceback

import pytest

from fairway.errors import StoreFullError
from fairway.storage.channel_store import ChannelStore
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from groups import in_group


class Failing(ChannelStore):
    """A store whose disk is full from a moment on that the test chooses; what it kept before stays kept."""

    def __init__(self, store):
        self._store = store
        self.is_full = False
        self._failed = None

    def open(self, channel_id, sender_id, content_topic):
        self._failed = None
        return self._store.open(channel_id, sender_id, content_topic)

    def submit(self, write, done, *, hurry=True):
        if self.is_full or self._failed:
            self._failed = self._failed or StoreFullError("no space left on alice.db: make room and start again")
            done(self._failed)
        else:
            self._store.submit(write, done)

    def request(self, request_id):
        return self._store.request(request_id)

    def history(self, before, limit):
        return self._store.history(before, limit)

    def message(self, number):
        return self._store.message(number)

    def close(self):
        self._store.close()


class Forgetful(Failing):
    """Keeps what it says it could not keep, as a disk may whose fsync failed."""

    def submit(self, write, done, *, hurry=True):
        if self._failed is None and self.is_full:
            self._failed = StoreFullError("alice.db: writing failed; the disk did not do what it was asked")
            self._store.submit(write, lambda _: done(self._failed))
        else:
            super().submit(write, done)


@in_group(on_disk=True)
async def test_a_full_disk_fails_the_channel_with_one_error_and_a_restart_continues(group, tmp_path):
    store = Failing(SqliteStore(tmp_path / "alice.db"))
    alice, bob = await group.channel("alice", store=store), await group.channel("bob")
    kept = await alice.send(b"kept")
    await kept.delivered()
    waiting = [asyncio.ensure_future(anext(stream)) for stream in (aiter(alice), alice.events())]
    await asyncio.sleep(0)
    heard = aiter(bob)
    assert await group.take(heard, 1) == [b"kept"]

    store.is_full = True
    with pytest.raises(StoreFullError, match="make room"):
        await alice.send(b"refused")
    assert not alice.is_started()
    for call in (alice.send(b"refused too"), *waiting[:1]):
        with pytest.raises(StoreFullError):
            await call
    waiting[1].cancel()

    store.is_full = False
    await alice.start()
    await (await alice.send(b"there is room")).delivered()
    assert await group.take(heard, 1) == [b"there is room"]
    assert (await alice.receipt(kept.request_id).delivered()).delivered_to == ("bob",)


@in_group()
async def test_every_call_of_a_failed_channel_raises_an_error_of_its_own(group):
    store = Failing(MemoryStore())
    alice = await group.channel("alice", store=store)
    receipt = await alice.send(b"kept")
    store.is_full = True
    calls = [alice.send(b"refused"), *(receipt.delivered() for _ in range(20)), anext(aiter(alice))]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    for _ in range(20):
        errors += await asyncio.gather(alice.send(b"refused too"), receipt.sent(), return_exceptions=True)
    assert all(isinstance(error, StoreFullError) and "make room" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == len(errors)
    assert max(len(traceback.format_exception(error)) for error in errors) < 30


@pytest.mark.parametrize("kind", [Failing, Forgetful])
@in_group(on_disk=True)
async def test_a_send_during_a_disk_failure_names_its_request_id_and_can_be_repeated(group, tmp_path, kind):
    store = kind(SqliteStore(tmp_path / "alice.db"))
    alice, bob = await group.channel("alice", store=store), await group.channel("bob")
    heard = aiter(bob)
    store.is_full = True
    with pytest.raises(StoreFullError, match="may or may not be kept") as raised:
        await alice.send(b"perhaps")
    (request_id,) = re.findall(r"request_id='(\w+)'", str(raised.value))

    store.is_full = False
    await alice.start()
    await (await alice.send(b"perhaps", request_id=request_id)).delivered()
    await (await alice.send(b"the end")).delivered()
    assert await group.take(heard, 2) == [b"perhaps", b"the end"]
    assert alice.receipt(request_id).message_id == alice.get_message_id(b"perhaps")
