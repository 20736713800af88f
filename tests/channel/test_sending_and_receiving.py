"""Participants receive each message once and in order, and the sender learns who has it."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from fairway.errors import ChannelClosedError, ConfigurationError
from fairway.nodes.local import NetworkFaults
from fairway.options import SegmentationConfig
from fairway.storage.memory_store import MemoryStore
from groups import in_group, run_in_group


@in_group()
async def test_a_message_reaches_the_others_and_its_acknowledgement_comes_back(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    receipt = await alice.send(b"who is on watch?")
    message = await anext(aiter(bob))
    assert (message.sender_id, bytes(message), message.channel_id) == ("alice", b"who is on watch?", "harbour")
    assert message.message_id == receipt.message_id == alice.get_message_id(b"who is on watch?")
    await receipt.sent()
    acknowledgement = await receipt.delivered()
    assert acknowledgement.delivered_to == ("bob",)
    assert acknowledgement.chunks_acknowledged == (0,)
    assert receipt.has_ended


@in_group()
async def test_a_send_that_is_repeated_asks_for_more(group):
    alice, _, _ = [await group.channel(name) for name in ("alice", "bob", "carol")]
    receipt = await alice.send(b"all hands", request_id="all hands")
    await receipt.delivered()
    repeated = await alice.send(b"all hands", request_id="all hands", by={"bob", "carol"})
    assert repeated is receipt
    assert (await receipt.delivered()).delivered_to == ("bob", "carol")
    assert (await alice.send(b"all hands", request_id="all hands", count=2)).has_ended


class OneAtATime(MemoryStore):
    """Commits all that waits together, in a second each time, as a store on a slow disk does."""

    def open(self, *owner):
        self._waiting, self._is_busy = [], False
        return super().open(*owner)

    def submit(self, write, done, *, hurry=True):
        self._waiting.append((write, done, hurry))
        self._begin(hurry)

    def _begin(self, hurry):
        if hurry and not self._is_busy:
            self._commit()
        elif not self._is_busy:
            asyncio.get_running_loop().call_later(0.002, self._begin, True)

    def _commit(self):
        taken, self._waiting = self._waiting, []
        self._is_busy = bool(taken)
        if taken:
            asyncio.get_running_loop().call_later(1, self._committed, taken)

    def _committed(self, taken):
        for write, done, _ in taken:
            super().submit(write, done)
        self._is_busy = False
        if self._waiting:
            self._begin(any(hurry for *_, hurry in self._waiting))


@pytest.mark.parametrize("delay_ms", [0, 300])
def test_a_send_waits_for_the_commit_of_its_own_message_and_for_no_other(delay_ms):
    async def scenario(group):
        alice = await group.channel("alice", store=OneAtATime())
        await alice.send(b"the first waits for the start as well")
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        receipts = [await alice.send(bytes([number])) for number in range(1, 11)]
        assert loop.time() - start_s == pytest.approx(10)
        await asyncio.gather(*(receipt.sent() for receipt in receipts))
        assert loop.time() - start_s < 13, "nothing comes with which the last answer could be kept"

    faults = NetworkFaults(min_delay_ms=delay_ms, max_delay_ms=delay_ms)
    run_in_group(scenario, faults=faults, sync_min_interval_ms=0, retry_interval_ms=3_600_000)


def test_a_file_crosses_a_network_that_loses_a_third_and_shows_its_progress():
    content = bytes(range(256)) * 2_048

    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        receipt = await alice.send(content, by=["bob"])
        steps = [progress async for progress in receipt.updates()]
        assert (await anext(aiter(bob))).payload == content
        assert steps[-1].total_chunks == 6
        assert [len(step.chunks_acknowledged) for step in steps] == sorted(
            len(step.chunks_acknowledged) for step in steps
        )
        assert (await receipt.delivered()).delivered_to == ("bob",)

    run_in_group(scenario, faults=NetworkFaults(loss=0.3, duplication=0.1, min_delay_ms=1, max_delay_ms=20))


@in_group()
async def test_an_ephemeral_message_is_received_and_not_acknowledged(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    stream = aiter(bob)
    receipt = await alice.send_ephemeral(b"is typing")
    await receipt.sent()
    message = await anext(stream)
    assert (message.payload, message.ephemeral) == (b"is typing", True)
    assert bob.statistics().unfinished == 0


@in_group()
async def test_a_send_with_an_id_of_ones_own_can_be_repeated(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    first = await alice.send(b"pay 10", request_id="order-17")
    assert (await alice.send(b"pay 10", request_id="order-17")) is first
    await first.delivered()
    again = await alice.send(b"pay 10", request_id="order-17")
    assert (await again.delivered()).delivered_to == ("bob",)
    with pytest.raises(ConfigurationError, match="order-17"):
        await alice.send(b"pay 99", request_id="order-17")
    await alice.send(b"done")
    assert (await group.take(aiter(bob), 2)) == [b"pay 10", b"done"]


@in_group()
async def test_every_receipt_raises_an_error_of_its_own_when_the_channel_closes(group):
    alice = await group.channel("alice")
    receipts = [await alice.send(b"message %d" % number) for number in range(50)]
    waiting = [asyncio.ensure_future(receipt.delivered()) for receipt in receipts]
    await asyncio.sleep(0.01)
    await alice.close()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in errors} == {ChannelClosedError}
    assert all("kept" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 50
    assert len({len("".join(traceback.format_exception(error))) for error in errors}) == 1


@pytest.mark.parametrize("fields", [{"count": 0}, {"by": "bob"}, {"by": 3}, {"by": ["alice"]}])
@in_group()
async def test_a_wish_that_can_never_be_met_is_refused(group, fields):
    alice = await group.channel("alice")
    with pytest.raises(ConfigurationError) as refused:
        await alice.send(b"x", **fields)
    assert "required_" not in str(refused.value), "the channel has no argument of this name"


@in_group(segmentation=SegmentationConfig(segment_size_bytes=1_024))
async def test_progress_counts_parity_from_the_number_of_data_segments_also_after_a_restart(group):
    alice, all_and_parity = await group.channel("alice"), tuple(range(11))
    receipt = await alice.send(bytes(10 * 1_024))
    await receipt.sent()
    assert (receipt.progress.total_chunks, receipt.progress.chunks_sent) == (10, all_and_parity)
    request_id = receipt.request_id
    del receipt
    await alice.stop()
    await alice.start()
    again = alice.receipt(request_id)
    progress = again.progress
    await again.sent()
    assert (progress.total_chunks, progress.chunks_sent, progress.chunks_acknowledged) == (10, all_and_parity, ())
