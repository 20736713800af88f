"""Requests with replies, deadlines and cancellation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    RequestFailedError,
    RequestTimeoutError,
)
from fairway.nodes.local import LocalNetwork
from fairway.nodes.local.faults import NetworkFaults
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.storage.memory_store import MemoryStore
from fairway.testing import DiskFault, Machine, Process, SimulatedDisk, virtual_time
from fairway.wire.envelope import Envelope, EnvelopeKind
from listening import TOPIC, heard_by, join

HOUR_S = 3_600


async def echo(request):
    return b"re: " + request.payload


@virtual_time()
async def test_a_request_gets_the_reply_of_its_addressee_also_over_a_lossy_network():
    with LocalNetwork(NetworkFaults(loss=0.4)) as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            carol.on_request(lambda _: b"I am not asked")
            bob.on_request(echo)
            question = Envelope(b"when?", content_type="text/plain", headers={"urgent": "yes"})
            reply = await alice.request(question, to="bob", timeout=HOUR_S)
            assert (reply.sender_id, bytes(reply)) == ("bob", b"re: when?")


@virtual_time()
async def test_a_loop_over_requests_answers_them_in_any_order():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            calls = [asyncio.ensure_future(alice.request(b"%d" % n, to="bob")) for n in range(3)]
            requests = bob.requests()
            first, second, third = [await anext(requests) for _ in range(3)]
            assert [request.sender_id for request in (first, second, third)] == ["alice"] * 3
            for request in (third, first, second):
                assert await request.reply(Envelope(request.payload * 2, headers={"to": request.payload.decode()}))
            replies = await asyncio.gather(*calls)
            assert [reply.payload for reply in replies] == [b"00", b"11", b"22"]
            assert [reply.headers for reply in replies] == [{"to": "0"}, {"to": "1"}, {"to": "2"}]
            assert not await first.reply(b"again")


@virtual_time()
async def test_without_an_addressee_the_first_reply_counts():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            bob.on_request(echo)
            carol.on_request(lambda _: asyncio.sleep(10, b"late"))
            assert (await alice.request(b"who is there?")).sender_id == "bob"


@virtual_time()
async def test_without_an_addressee_the_failure_of_one_participant_leaves_the_request_to_the_others():
    def refuse(request):
        raise LookupError("no tea here")

    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            for each in (bob, carol):
                await each.send(b"I am here")
            await asyncio.sleep(10)
            bob.on_request(refuse)
            remove = carol.on_request(lambda _: asyncio.sleep(10, b"yes"))
            assert bytes(await alice.request(b"tea?")) == b"yes"
            remove()
            remove = carol.on_request(lambda _: None)
            with pytest.raises(RequestFailedError, match=r"^bob did not reply: LookupError: no tea here$"):
                await alice.request(b"tea?", timeout=20)
            remove()
            carol.on_request(refuse)
            async with asyncio.timeout(10):
                with pytest.raises(RequestFailedError, match="carol did not reply: LookupError: no tea here"):
                    await alice.request(b"tea?", timeout=HOUR_S)


@virtual_time()
async def test_requests_do_not_appear_among_messages_and_envelopes_do():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            payloads, own = heard_by(bob), heard_by(alice)
            bob.on_request(echo)
            await alice.request(b"when?", to="bob")
            await alice.send(Envelope(b'{"at": 7}', content_type="application/json"))
            await alice.send(b"raw")
            await asyncio.sleep(60)
            enveloped, raw = map(Envelope.of, payloads)
            assert (enveloped.content, enveloped.content_type) == (b'{"at": 7}', "application/json")
            assert raw == Envelope(b"raw")
            assert own == []
            assert bob.statistics().unfinished == alice.statistics().unfinished == 0


@virtual_time()
async def test_a_handler_that_raises_tells_the_requester():
    def refuse(request):
        raise LookupError(f"no {request.payload.decode()} here")

    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            remove = bob.on_request(refuse)
            with pytest.raises(RequestFailedError, match="bob did not reply: LookupError: no tea here"):
                await alice.request(b"tea", to="bob")
            with pytest.raises(ConfigurationError, match="has a handler"):
                bob.on_request(echo)
            remove()
            bob.on_request(lambda _: "text is not bytes")  # type: ignore[arg-type,return-value]
            with pytest.raises(RequestFailedError, match="must be"):
                await alice.request(b"tea", to="bob")


@virtual_time()
async def test_a_request_that_nobody_answers_says_whether_it_arrived():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            with pytest.raises(RequestTimeoutError, match="no reply came within 20 s; the request is with bob"):
                await alice.request(b"when?", to="bob", timeout=20)
            with pytest.raises(TimeoutError, match="carol did not acknowledge the request within 20 s"):
                await alice.request(b"when?", to="carol", timeout=20)
            await asyncio.sleep(60)
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_a_request_is_over_at_its_deadline_or_when_its_caller_is_cancelled():
    running, ended = [], []

    async def work(request):
        running.append(request)
        try:
            await asyncio.sleep(HOUR_S)
        finally:
            ended.append(request.payload)

    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            bob.on_request(work)
            with pytest.raises(RequestTimeoutError):
                await alice.request(b"slow", to="bob", timeout=10)
            await asyncio.sleep(1)
            assert ended == [b"slow"]
            call = asyncio.ensure_future(alice.request(b"unwanted", to="bob", timeout=HOUR_S))
            await asyncio.sleep(5)
            call.cancel()
            await asyncio.sleep(60)
            assert ended == [b"slow", b"unwanted"]
            assert not any(request.is_open for request in running)
            assert bob.statistics().unfinished == 0


@pytest.mark.parametrize("fault", [DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER])
@virtual_time()
async def test_a_crash_at_the_reply_neither_loses_the_request_nor_repeats_the_reply(fault):
    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine = Machine(asyncio.get_running_loop())
        answers = []

        async def life(answer):
            async with create_reliable_channel(network.node(), "harbour", "bob", TOPIC, store=disk.store("bob")) as bob:
                async for request in bob.requests():
                    if not answers:
                        disk.strike("bob", fault)
                    answers.append(answer)
                    await request.reply(answer)

        first = Process("bob", machine)
        disk.on_crash = lambda _: first.kill()
        first.spawn(life(b"now"))
        async with join(network, "alice") as alice:
            call = asyncio.ensure_future(alice.request(b"when?", to="bob", timeout=HOUR_S))
            await asyncio.sleep(60)
            second = Process("bob", machine)
            second.spawn(life(b"later"))
            reply = await call
            await asyncio.sleep(60)
            assert answers == [b"now", b"later"]
            assert reply.payload == (b"now" if fault is DiskFault.CRASH_AFTER else b"later")
            replies = [Envelope.of(each.payload).content for each in await alice.history() if not each.is_own]
            assert replies == [reply.payload]
        second.kill()


@virtual_time()
async def test_a_handler_is_called_again_if_its_channel_was_stopped_when_it_replied(tmp_path):
    calls = []

    async def work(request):
        calls.append(request.correlation_id)
        await asyncio.sleep(10)
        return b"done"

    with LocalNetwork() as network:
        async with (
            join(network, "alice") as alice,
            join(network, "bob", store=tmp_path / "bob.db") as bob,
        ):
            bob.on_request(work)
            call = asyncio.ensure_future(alice.request(b"job", to="bob", timeout=HOUR_S))
            await asyncio.sleep(5)
            await bob.stop()
            await asyncio.sleep(20)
            await bob.start()
            assert (await call).payload == b"done"
            assert calls == calls[:1] * 2


@virtual_time()
async def test_a_stopped_channel_raises_in_replies_and_lets_calls_be_cancelled(tmp_path):
    with LocalNetwork() as network:
        async with (
            join(network, "alice", store=tmp_path / "alice.db") as alice,
            join(network, "bob", store=tmp_path / "bob.db") as bob,
        ):
            call = asyncio.ensure_future(alice.request(b"job", to="bob", timeout=HOUR_S))
            request = await anext(bob.requests())
            await bob.stop()
            with pytest.raises(ChannelClosedError, match="not started"):
                await request.reply(b"done")
            await alice.stop()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


@virtual_time()
async def test_replies_at_the_same_time_are_one_reply(tmp_path):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob", store=tmp_path / "bob.db") as bob:
            call = asyncio.ensure_future(alice.request(b"job", to="bob"))
            request = await anext(bob.requests())
            answers = await asyncio.gather(*(request.reply(b"done") for _ in range(3)))
            assert any(answers)
            assert (await call).payload == b"done"


@virtual_time()
async def test_a_reply_that_cannot_be_sent_fails_the_request():
    with LocalNetwork() as network:
        options = ReliableChannelOptions(segmentation=SegmentationConfig(max_message_size_bytes=1_000))
        async with join(network, "alice") as alice, join(network, "bob", options=options) as bob:
            remove = bob.on_request(lambda _: bytes(2_000))
            with pytest.raises(RequestFailedError, match="MessageTooLargeError"):
                await alice.request(b"tea", to="bob")
            remove()
            bob.on_request(lambda _: Envelope(b"", headers={"count": 1}))  # type: ignore[dict-item]
            with pytest.raises(RequestFailedError, match="ConfigurationError: headers must be a mapping of text"):
                await alice.request(b"tea", to="bob")


@virtual_time()
async def test_requests_of_other_implementations_get_a_reply_with_any_id_and_deadline():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            bob.on_request(echo)
            replies = heard_by(alice)
            for number, (name, expiry_ms) in enumerate([("long" * 1_000, 1_000_000), ("late", 2**64 - 1), ("none", 0)]):
                kind = EnvelopeKind.REQUEST
                content = b"%d" % number
                await alice.send(Envelope(content, kind=kind, correlation_id=name, expires_after_ms=expiry_ms))
            await asyncio.sleep(60)
            answers = [Envelope.of(each.payload) for each in await alice.history() if not each.is_own]
            assert {answer.content for answer in answers} == {b"re: 0", b"re: 1", b"re: 2"}
            assert replies == []
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_a_request_without_an_expiry_that_gets_no_reply_is_over_after_a_day():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            bob.on_request(lambda _: None)
            await alice.send(Envelope(b"when?", kind=EnvelopeKind.REQUEST, correlation_id="1"))
            await asyncio.sleep(23 * HOUR_S)
            assert bob.statistics().unfinished == 1
            await asyncio.sleep(2 * HOUR_S)
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_a_restart_hands_all_open_requests_over_again(tmp_path):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            async with join(network, "bob", store=tmp_path / "bob.db") as bob:
                bob.on_request(lambda _: asyncio.sleep(HOUR_S))
                calls = [asyncio.ensure_future(alice.request(b"%d" % n, to="bob", timeout=HOUR_S)) for n in range(150)]
                await asyncio.sleep(60)
            async with join(network, "bob", store=tmp_path / "bob.db") as bob:
                bob.on_request(echo)
                assert len(await asyncio.gather(*calls)) == 150


@pytest.mark.parametrize(
    "wrong",
    [
        *({"timeout": value} for value in (0, -1, None, timedelta(0), float("nan"), float("inf"), "3", True)),
        *({"request_id": value} for value in ("", 5, ["a"], "a" * 300)),
        {"to": ""},
        {"to": "alice"},
    ],
)
@virtual_time()
async def test_a_request_with_wrong_arguments_is_rejected(wrong):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            with pytest.raises(ConfigurationError):
                await alice.request(b"when?", **wrong)


@virtual_time()
async def test_a_reply_that_came_while_the_requester_was_down_is_found():
    with LocalNetwork() as network:
        store = MemoryStore()
        async with join(network, "bob") as bob:
            requests = bob.requests()
            async with join(network, "alice", store=store) as alice:
                call = asyncio.ensure_future(alice.request(b"when?", to="bob", timeout=HOUR_S, request_id="job 7"))
                request = await anext(requests)
            with pytest.raises(ChannelClosedError):
                await call
            async with join(network, "alice", store=store) as alice:
                await request.reply(b"now")
                await asyncio.sleep(60)
                again = await alice.request(b"when?", to="bob", timeout=HOUR_S, request_id="job 7")
                assert again.payload == b"now"
                with pytest.raises(ConfigurationError, match="another payload"):
                    await alice.request(b"where?", to="bob", timeout=HOUR_S, request_id="job 7")


@virtual_time()
async def test_a_request_id_used_again_for_another_question_gets_its_own_reply_also_without_a_store():
    with LocalNetwork() as network:
        async with join(network, "bob") as bob:
            bob.on_request(echo)
            for question in (b"1", b"2"):
                async with join(network, "alice") as alice:
                    reply = await alice.request(question, to="bob", timeout=HOUR_S, request_id="job")
                    assert reply.payload == b"re: " + question


@virtual_time()
async def test_a_program_that_serves_no_requests_keeps_a_bounded_number():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            calls = [asyncio.ensure_future(alice.request(b"%d" % n, to="bob", timeout=HOUR_S)) for n in range(150)]
            await asyncio.sleep(60)
            assert bob.statistics().unfinished == 100
            payloads = heard_by(bob)
            await alice.send(b"still here")
            await asyncio.sleep(60)
            assert payloads == [b"still here"]
            await asyncio.sleep(2 * HOUR_S)
            assert bob.statistics().unfinished == 0
            assert {type(error) for error in await asyncio.gather(*calls, return_exceptions=True)} == {
                RequestTimeoutError
            }


@pytest.mark.parametrize(
    "wrong",
    [Envelope("text"), Envelope(None), Envelope(b"", headers=None), Envelope(b"", headers={"a": None})],  # type: ignore[arg-type,dict-item]
)
@virtual_time()
async def test_an_envelope_with_a_field_of_a_wrong_type_is_not_sent(wrong):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            for call in (alice.send, alice.request):
                with pytest.raises(ConfigurationError, match="must be"):
                    await call(wrong)
