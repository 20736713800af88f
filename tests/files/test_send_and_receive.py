"""A file that is sent is saved by others, under its name, whole, whatever its size and whatever the network loses."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import fairway
from fairway.errors import (
    ConfigurationError,
    DeliveryFailedError,
    FileChangedError,
)
from fairway.events import MessageSending
from fairway.files.outcomes import FileArriving, FileReceived
from fairway.files.receiving import FileReceiver
from fairway.files.sending import PARTS_UNDER_WAY, send_file
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.options import Profile, SegmentationConfig
from fairway.testing import run

SMALL_SEGMENTS = SegmentationConfig(segment_size_bytes=1_024, max_message_size_bytes=10_240)


async def receive(channel, folder, outcomes, until=FileReceived):
    """Take what comes into a folder until a file of a kind of outcome."""
    receiver = await FileReceiver.open(channel, folder)
    async for message in channel:
        outcomes.append(await receiver.take(message))
        if isinstance(outcomes[-1], until):
            channel.finish(message)
            return


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.value)
def test_a_file_in_parts_arrives_unchanged(join, make_file, tmp_path, seed, profile, loss):
    path = make_file(100_000)
    options = replace(profile.options(), max_retry_attempts=100, segmentation=SMALL_SEGMENTS)

    async def work():
        steps, outcomes = [], []
        with LocalNetwork(NetworkFaults(loss=loss), seed=seed) as network:
            async with join(network, "alice", options=options) as alice, join(network, "bob", options=options) as bob:
                receiving = asyncio.ensure_future(receive(bob, tmp_path / "in", outcomes))
                delivery = await send_file(alice, path, by={"bob"}, progress=steps.append)
                await receiving
        return delivery, steps, outcomes

    delivery, steps, outcomes = run(work(), seed=seed)
    assert delivery.delivered_to == ("bob",)
    assert (delivery.size_bytes, delivery.name, delivery.resumed_messages) == (100_000, "chart.pdf", 0)
    assert delivery.total_messages > 10
    last = outcomes[-1]
    assert (last.sender_id, last.name, last.media_type, last.size_bytes, last.message_id, last.redelivered) == (
        "alice", "chart.pdf", "application/pdf", 100_000, delivery.message_id, False,
    )  # fmt: skip
    assert last.path == tmp_path / "in" / "chart.pdf"
    assert last.path.read_bytes() == path.read_bytes()
    arriving = [each for each in outcomes if isinstance(each, FileArriving)]
    assert [each.parts_received for each in arriving] == list(range(len(arriving)))
    assert {each.total_parts for each in arriving} == {delivery.total_messages - 1}
    assert steps[0].segments_sent == 0
    assert steps[-1].segments_acknowledged == steps[-1].segments_sent == steps[-1].total_segments >= 98
    assert steps[-1].messages_acknowledged == steps[-1].total_messages
    acknowledged = [step.segments_acknowledged for step in steps]
    assert acknowledged == sorted(acknowledged)
    assert len(set(acknowledged)) > delivery.total_messages, "it is shown by segment, not by part"


def test_a_bounded_number_of_parts_is_in_flight_and_all_are_full(join, make_file, tmp_path, seed):
    path = make_file(200_000)

    async def work():
        open_requests, sizes, outcomes = set(), {}, []
        with LocalNetwork(seed=seed) as network:
            async with join(network, "alice") as alice, join(network, "bob") as bob:

                def note(event):
                    open_requests.add(alice.statistics().protocol.open_requests)
                    if not event.chunk_info.is_parity:
                        sizes[event.request_id] = event.chunk_info.total_chunks

                alice.on(MessageSending, note)
                receiving = asyncio.ensure_future(receive(bob, tmp_path / "in", outcomes))
                await send_file(alice, path)
                await receiving
        return open_requests, list(sizes.values())

    open_requests, sizes = run(work(), seed=seed)
    assert max(open_requests) == PARTS_UNDER_WAY
    assert set(sizes[1:-1]) == {10}


def test_an_unacknowledged_part_fails_the_file_and_a_repeated_send_continues(join, make_file, tmp_path, seed):
    path = make_file(50_000)

    async def work():
        outcomes = []
        with LocalNetwork(seed=seed) as network:
            options = fairway.ReliableChannelOptions(
                retry_interval_ms=1_000, max_retry_attempts=2, segmentation=SMALL_SEGMENTS
            )
            async with join(network, "alice", options=options) as alice:
                with pytest.raises(DeliveryFailedError, match=r"of 6 of chart\.pdf: .* send the file again"):
                    await send_file(alice, path)
                async with join(network, "bob") as bob:
                    receiving = asyncio.ensure_future(receive(bob, tmp_path / "in", outcomes))
                    delivery = await send_file(alice, path)
                    await receiving
        return delivery

    assert run(work(), seed=seed).delivered_to == ("bob",)
    assert (tmp_path / "in" / "chart.pdf").read_bytes() == path.read_bytes()


def test_a_second_send_of_a_delivered_file_is_saved_beside_the_first(join, make_file, tmp_path, seed):
    path = make_file(30_000)

    async def work():
        deliveries = []
        with LocalNetwork(seed=seed) as network:
            async with join(network, "alice") as alice, join(network, "bob") as bob:
                for _ in range(3):
                    receiving = asyncio.ensure_future(receive(bob, tmp_path / "in", []))
                    deliveries.append(await send_file(alice, path))
                    await receiving
                later = await FileReceiver.open(bob, tmp_path / "in")
                paths = [later.path_of("alice", each.message_id) for each in deliveries]
                others = [later.path_of(*key) for key in (("bob", deliveries[0].message_id), ("alice", "../x"))]
        return deliveries, paths, others

    deliveries, paths, others = run(work(), seed=seed)
    assert [each.name for each in paths] == ["chart.pdf", "chart (2).pdf", "chart (3).pdf"]
    assert others == [None, None]
    assert [each.resumed_messages for each in deliveries] == [0, 0, 0]
    assert len({each.message_id for each in deliveries}) == 3
    saved = sorted(each.name for each in (tmp_path / "in").iterdir() if each.is_file())
    assert saved == ["chart (2).pdf", "chart (3).pdf", "chart.pdf"]
    assert {(tmp_path / "in" / name).read_bytes() for name in saved} == {path.read_bytes()}


def test_a_file_acknowledged_in_the_background_is_not_sent_again(join, make_file, tmp_path, seed):
    path, store = make_file(30_000), tmp_path / "alice.db"

    async def work():
        left = []
        with LocalNetwork(seed=seed) as network:
            node = network.node("alice")
            async with join(network, "alice", node=node, store=store) as alice:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(3):
                        await send_file(alice, path)
            async with join(network, "bob") as bob:
                async with join(network, "alice", node=node, store=store):
                    await receive(bob, tmp_path / "in", [])
                    await asyncio.sleep(60)
                async with join(network, "alice", node=node, store=store) as alice:
                    alice.on(MessageSending, left.append)
                    first = await send_file(alice, path)
                    assert left == []
                async with join(network, "alice", node=node, store=store) as alice:
                    receiving = asyncio.ensure_future(receive(bob, tmp_path / "in", []))
                    again = await send_file(alice, path)
                    await receiving
        return first, again

    first, again = run(work(), seed=seed)
    assert (first.resumed_messages, first.delivered_to) == (first.total_messages, ("bob",))
    assert again.resumed_messages == 0
    assert again.message_id != first.message_id, "a sending that returned is over"
    assert sorted(each.name for each in (tmp_path / "in").iterdir() if each.is_file()) == ["chart (2).pdf", "chart.pdf"]


def test_a_file_that_changes_during_its_send_raises(join, make_file, tmp_path, seed):
    path = make_file(200_000)

    async def work():
        with LocalNetwork(seed=seed) as network:
            async with join(network, "alice") as alice, join(network, "bob"):
                sending = asyncio.ensure_future(send_file(alice, path))
                await asyncio.sleep(0.001)
                path.write_bytes(bytes(200_000))
                with pytest.raises(FileChangedError, match="changed while it was being sent"):
                    await sending

    run(work(), seed=seed)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("chart.pdf", {"name": "../../x"}, "one component of a path.*name="),
        (".hidden", {}, "begins with a dot.*rename the file"),
        ("chart.pdf", {"media_type": "pdf"}, "such as image/jpeg.*media_type="),
        ("missing/chart.pdf", {}, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_sent_is_refused_with_a_next_step(join, make_file, tmp_path, seed, name, given, told):
    path = make_file(50_000, name) if "/" not in name else tmp_path / name

    async def work():
        with LocalNetwork(seed=seed) as network:
            async with join(network, "alice") as alice:
                with pytest.raises(ConfigurationError, match=told):
                    await send_file(alice, path, **given)

    run(work(), seed=seed)
