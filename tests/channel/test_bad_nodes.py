"""Nodes that refuse, do not answer, end and are replaced, or forget a subscription: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairway.nodes.local import NO_FAULTS, NetworkFaults
from fairway.options import ReliableChannelOptions
from groups import in_group, run_in_group
from listening import heard_by

DEFAULTS = ReliableChannelOptions()
PAYLOADS = [b"message %d" % number for number in range(20)]


@pytest.mark.parametrize(
    "faults",
    [
        {"too_many_requests": 0.4},
        {"invalid_message": 0.4},
        {"no_peers_to_relay": 0.4},
        {"answer_loss": 0.4},
        {"answer_loss": 0.4, "answer_errors": 1.0},
    ],
)
def test_everything_arrives_once_and_in_order_over_each_kind_of_bad_node(faults):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        heard = heard_by(bob)
        receipts = [await alice.send(payload) for payload in PAYLOADS]
        for receipt in receipts:
            assert (await receipt.delivered()).delivered_to == ("bob",)
        assert heard == PAYLOADS

    run_in_group(scenario, faults=NetworkFaults(**faults), options=DEFAULTS)


@in_group(options=DEFAULTS)
async def test_a_message_refused_for_its_timestamp_is_sent_with_another_one(group):
    alice = await group.channel("alice")
    node, refused, taken = group.nodes["alice"], [], []
    send = node.send

    async def note(message):
        result = await send(message)
        if not result.accepted:
            refused.append(message.message)
        return result

    node.send = note
    group.network.faults = replace(NO_FAULTS, invalid_message=1.0)
    group.network.observers.append(lambda _, message: taken.append(message.message))
    receipt = await alice.send(b"what time is it?")
    await asyncio.sleep(30)
    assert len(refused) > 1
    group.network.faults = NO_FAULTS
    await receipt.sent()
    payload = refused[0].payload
    stamps = [message.timestamp_ns for message in (*refused, *taken) if message.payload == payload]
    assert len(stamps) > 2
    assert stamps == sorted(set(stamps))
    assert any(message.payload == payload for message in taken)


@in_group(options=DEFAULTS)
async def test_a_send_that_the_node_does_not_answer_delays_no_other(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    node, heard = group.nodes["alice"], heard_by(bob)
    send, silent = node.send, []

    async def lose_the_first_answers(message):
        if len(silent) < 3:
            silent.append(message)
            await asyncio.Event().wait()
        return await send(message)

    node.send = lose_the_first_answers
    receipts = [await alice.send(payload) for payload in PAYLOADS]
    async with asyncio.timeout(1):
        for receipt in receipts[3:]:
            await receipt.sent()
    assert alice.statistics().publishing == 3
    for receipt in receipts:
        await receipt.delivered()
    assert sorted(heard) == sorted(PAYLOADS)
