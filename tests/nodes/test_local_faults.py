"""What a node of a local network goes through, and what its program sees of it: the same as behind a light client."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError, StoreQueryError
from fairway.nodes import SendResult
from fairway.nodes.light import LightOptions
from fairway.nodes.light.filter_client import PING_INTERVAL_S
from fairway.nodes.light.liveness import BEAT_S, SILENT_AFTER
from fairway.nodes.local import NO_FAULTS, LocalNetwork, NetworkFaults
from fairway.nodes.local.network import PING_INTERVAL_MS, REQUEST_TIMEOUT_S, SILENCE_MS
from fairway.testing import Machine, Process, virtual_time
from fairway.wire.lightpush import StatusCode

MANY = 2_000


def health_of(changes):
    """Return what a watcher saw so far."""
    return [(status.health.value, status.detail) for status in changes.take()]


def now_s():
    return asyncio.get_running_loop().time()


def test_the_times_are_those_of_a_light_client():
    assert LightOptions().request_timeout_s == REQUEST_TIMEOUT_S
    assert PING_INTERVAL_S * 1_000 == PING_INTERVAL_MS
    assert SILENT_AFTER * BEAT_S * 1_000 == SILENCE_MS


@virtual_time()
async def test_a_node_refuses_as_often_as_it_is_told_to_and_says_so_as_a_light_client_does(say):
    shares = {"too_many_requests": 0.2, "invalid_message": 0.1, "no_peers_to_relay": 0.3}
    with LocalNetwork(NetworkFaults(min_delay_ms=0, max_delay_ms=0, **shares), seed=3) as network:
        alice, taken = network.node("alice"), []
        network.observers.append(lambda name, message: taken.append((name, message)))
        results = [await alice.send(say.message(number)) for number in range(MANY)]
    refused = [result for result in results if not result.accepted]
    said = {code: [result for result in refused if f" {code.value} " in result.detail] for code in StatusCode}
    assert not any(result.permanent for result in refused)
    assert [result for result in refused if result.too_many] == said[StatusCode.TOO_MANY_REQUESTS]
    assert len(said[StatusCode.TOO_MANY_REQUESTS]) / MANY == pytest.approx(0.2, abs=0.03)
    assert len(said[StatusCode.INVALID_MESSAGE]) / MANY == pytest.approx(0.1, abs=0.03)
    without_peers = said[StatusCode.SERVICE_NOT_AVAILABLE], said[StatusCode.NO_PEERS_TO_RELAY]
    assert all(without_peers)
    assert sum(map(len, without_peers)) / MANY == pytest.approx(0.3, abs=0.03)
    assert said[StatusCode.INVALID_MESSAGE][0].detail == "alice#1: 420 INVALID_MESSAGE"
    assert network.statistics().refused == len(refused)
    # Observers are told of what was taken, and of nothing else.
    assert taken == [
        ("alice", say.message(number)) for number, result in enumerate(results) if result == SendResult(accepted=True)
    ]


@virtual_time()
async def test_a_message_whose_answer_is_lost_arrives_while_its_sender_waits_in_vain(say):
    with LocalNetwork(replace(NO_FAULTS, answer_loss=1.0)) as network:
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        result = await alice.send(say.message(1))
        assert (result.accepted, result.permanent, result.too_many) == (False, False, False)
        assert "no response in time" in result.detail
        assert now_s() == REQUEST_TIMEOUT_S
        assert say.payloads(heard.take()) == [b"message 1"]
        assert network.statistics().unanswered == 1


@virtual_time()
async def test_a_node_may_raise_at_once_in_place_of_an_answer_that_is_lost(say):
    with LocalNetwork(replace(NO_FAULTS, answer_loss=1.0, answer_errors=1.0)) as network:
        with pytest.raises(ConnectionResetError, match="the connection with node-1#1 broke before it answered"):
            await network.node().send(say.message(1))
        assert (now_s(), network.statistics().unanswered) == (0, 1)


@virtual_time()
async def test_a_slow_uplink_lets_messages_out_one_by_one_and_holds_nobody_else_up(say):
    with LocalNetwork() as network:
        alice, bob, carol = network.node("alice"), network.node("bob"), network.node("carol")
        heard = await say.listen(carol)
        network.limit_uplink("alice", 2.0)

        async def send(node, number):
            result = await node.send(say.message(number))
            return result.accepted, now_s()

        sends = [send(alice, number) for number in range(25)] + [send(bob, 100)]
        results = await asyncio.gather(*sends)
        # What cannot leave within the time that a client waits for an answer does not leave.
        assert sorted(results[:25]) == [(False, 10.0)] * 5 + [(True, 0.5 * number) for number in range(1, 21)]
        assert results[25] == (True, 0.0)
        assert len(heard) == 21
        network.limit_uplink("alice", None)
        assert await send(alice, 26) == (True, 10.0)
        with pytest.raises(ConfigurationError, match="more than 0"):
            network.limit_uplink("alice", 0)


@virtual_time()
async def test_a_node_whose_service_node_ends_is_gone_at_once_and_back_with_another_one(say):
    with LocalNetwork(NetworkFaults(min_delay_ms=50, max_delay_ms=50)) as network:
        alice, bob = network.node("alice"), network.node("bob")
        heard, changes = await say.listen(bob), bob.status_changes()
        sending = asyncio.create_task(bob.send(say.message(1)))
        await asyncio.sleep(0.01)
        bob.die()
        assert health_of(changes) == [
            ("sufficiently-healthy", ""),
            ("unhealthy", "the connection with bob#1 has ended"),
        ]
        # It was taken, and nobody is there to say so.
        assert not (await sending).accepted
        assert "offline" in (await bob.send(say.message(2))).detail
        with pytest.raises(StoreQueryError, match="offline"):
            await bob.query(say.query())
        bob.come_back()
        assert (bob.service_node, bob.status.connected) == ("bob#2", False)
        await alice.send(say.message(3))
        await asyncio.sleep(0.1)
        assert health_of(changes) == [("sufficiently-healthy", "")]
        await alice.send(say.message(4))
        await asyncio.sleep(0.1)
        assert say.payloads(heard.take()) == [b"message 4"]
        assert say.payloads((await bob.query(say.query())).messages) == [b"message 1", b"message 3", b"message 4"]


@virtual_time()
async def test_a_service_node_that_ends_without_a_word_is_missed_only_after_a_while(say):
    with LocalNetwork() as network:
        alice, bob = network.node("alice"), network.node("bob")
        heard, changes = await say.listen(bob), bob.status_changes()
        bob.die(silently=True)
        await alice.send(say.message(1))
        assert bob.status.connected
        asked = asyncio.create_task(bob.query(say.query()))
        result = await bob.send(say.message(2))
        assert (result.accepted, result.detail, now_s()) == (False, "bob#1: no response in time", 10.0)
        with pytest.raises(StoreQueryError, match="no response in time"):
            await asked
        assert health_of(changes) == [("sufficiently-healthy", ""), ("unhealthy", "bob#1 does not answer")]
        bob.come_back()
        await alice.send(say.message(3))
        assert say.payloads(heard.take()) == [b"message 3"]
        assert health_of(changes) == [("sufficiently-healthy", "")]
        # One that is back before anybody noticed is noticed then: its connection is another one.
        bob.die(silently=True)
        bob.come_back()
        assert health_of(changes) == [
            ("unhealthy", "the connection with bob#2 has ended"),
            ("sufficiently-healthy", ""),
        ]
        await asyncio.sleep(60)
        assert health_of(changes) == []


@virtual_time()
async def test_a_node_that_is_forgotten_by_its_filter_seems_well_and_hears_nothing_until_its_next_ping(say):
    with LocalNetwork(seed=4) as network:
        alice, bob = network.node("alice"), network.node("bob")
        heard, changes = await say.listen(bob), bob.status_changes()
        recovered_s = []
        for number in range(50):
            began_s = now_s()
            bob.go_deaf()
            await alice.send(say.message(2 * number))
            assert bob.status.connected
            assert (await bob.send(say.message(2 * number))).accepted
            while (health := health_of(changes))[-1:] != [("sufficiently-healthy", "")] or len(health) == 1:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            assert health[-2:] == [
                ("unhealthy", "no node has the filter subscription"),
                ("sufficiently-healthy", ""),
            ]
            recovered_s.append(now_s() - began_s)
            await alice.send(say.message(2 * number + 1))
            assert say.payloads(heard.take()) == [b"message %d" % (2 * number + 1)]
        assert max(recovered_s) <= 60.5
        assert sum(recovered_s) / 50 == pytest.approx(30, abs=8)


@virtual_time()
async def test_what_a_killed_program_sent_arrives_all_the_same(say):
    faults = NetworkFaults(min_delay_ms=1_000, max_delay_ms=1_000, store_lag_ms=5_000)
    with LocalNetwork(faults) as network:
        alice, bob = network.node("alice"), network.node("bob")
        heard = await say.listen(bob)
        program = Process("alice", Machine(asyncio.get_running_loop()))
        program.spawn(alice.send(say.message(1)))
        await asyncio.sleep(0.01)
        alice.leave()
        program.kill()
        await asyncio.sleep(2)
        assert say.payloads(heard.take()) == [b"message 1"]
        await asyncio.sleep(4)
        assert say.payloads((await bob.query(say.query())).messages) == [b"message 1"]


@virtual_time()
async def test_a_network_that_falls_apart_anew_shows_who_comes_what_a_side_has(say):
    with LocalNetwork() as network:
        nodes = {name: network.node(name) for name in "abc"}

        async def seen():
            return [say.payloads((await node.query(say.query())).messages) for node in nodes.values()]

        network.partition({"a"}, {"b"}, {"c"})
        await nodes["a"].send(say.message(1))
        network.partition({"a", "b"}, {"c"})
        assert await seen() == [[b"message 1"], [b"message 1"], []]
        await nodes["a"].send(say.message(2))
        network.partition({"a"}, {"b", "c"})
        # c reaches b, whose side has what a said before it went.
        assert await seen() == [[b"message 1", b"message 2"]] * 3
        await nodes["a"].send(say.message(3))
        assert await seen() == [[b"message 1", b"message 2", b"message 3"], *[[b"message 1", b"message 2"]] * 2]
        network.heal()
        assert await seen() == [[b"message 1", b"message 2", b"message 3"]] * 3
        network.partition({"a"})
        assert await seen() == [[b"message 1", b"message 2", b"message 3"]] * 3


@virtual_time()
async def test_who_comes_back_finds_in_the_store_what_was_said_by_nodes_that_have_left_since(say):
    with LocalNetwork(replace(NO_FAULTS, store_lag_ms=10_000)) as network:
        speaker, absent = network.node("speaker"), network.node("absent")
        network.partition({"absent"})
        await speaker.send(say.message(1))
        await asyncio.sleep(10)
        await speaker.send(say.message(2))
        # The second message is on its way to the store when the speaker goes.
        network.partition({"absent"}, {"speaker"})
        await speaker.send(say.message(3))
        assert not (await absent.query(say.query())).messages
        network.partition({"speaker"})
        await asyncio.sleep(10)
        assert say.payloads((await absent.query(say.query())).messages) == [b"message 1", b"message 2"]


@virtual_time()
async def test_a_store_that_lies_gives_some_false_answers_and_keeps_what_it_has(say):
    with LocalNetwork(seed=2) as network:
        node = network.node("alice")
        for number in range(20):
            await node.send(say.message(number))
        truth = await node.query(say.query())
        network.faults = replace(NO_FAULTS, store_lies=0.5)
        answers = [await node.query(say.query()) for _ in range(100)]
        network.faults = NO_FAULTS
        assert await node.query(say.query()) == truth
        false = [answer for answer in answers if answer != truth]
        # Some lies are the truth by chance.
        assert 25 <= len(false) <= network.statistics().queries_belied <= 65


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ({"loss": -0.01}, r"loss is a share and must lie in 0\.\.1"),
        ({"query_loss": float("inf")}, r"query_loss is a share and must lie in 0\.\.1"),
        ({"min_delay_ms": 5, "max_delay_ms": 4}, "0 <= min_delay_ms <= max_delay_ms, not 5 and 4"),
        ({"max_message_bytes": 1_048_577}, "the longest message that is parsed"),
        ({"messages_per_epoch": -1}, "messages_per_epoch must be at least 0, or None"),
        ({"epoch_ms": 0}, "epoch_ms must be positive"),
        ({"store_lag_ms": -1}, "store_lag_ms must be at least 0, not -1"),
        ({"too_many_requests": 0.6, "no_peers_to_relay": 0.6}, "shares of one whole, not 1.2 together"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults, text):
    with pytest.raises(ConfigurationError, match=text):
        NetworkFaults(**faults)
