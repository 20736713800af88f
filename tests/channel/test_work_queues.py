"""Requests to a group: its workers share them, and a request survives its worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.errors import ConfigurationError, RequestFailedError, RequestTimeoutError
from fairway.nodes.local import LocalNetwork
from fairway.nodes.local.faults import NetworkFaults
from fairway.testing import Machine, Process, SimulatedDisk, virtual_time
from fairway.wire.envelope import Envelope, EnvelopeKind
from listening import TOPIC, heard_by, join

HOUR_S = 3_600
TAKEN_OVER_S = 330
"""A worker that was killed loses its request within this time."""


class Crew:
    """The workers of one group, and what each of them has begun."""

    def __init__(self, network, work_s=5.0, group="crew"):
        self.network, self.work_s, self.group = network, work_s, group
        self.begun: list[tuple[str, str]] = []
        """Worker and request, in the order of their beginnings."""
        self.at_work: Counter[str] = Counter()
        self.most_at_once = 0

    def serve(self, channel, work_s=None):
        name = channel.sender_id

        async def work(request):
            self.begun.append((name, bytes(request).decode()))
            self.at_work[name] += 1
            self.most_at_once = max(self.most_at_once, self.at_work[name])
            try:
                await asyncio.sleep(self.work_s if work_s is None else work_s)
            finally:
                self.at_work[name] -= 1
            return f"{name} did {bytes(request).decode()}".encode()

        channel.on_request(work, group=self.group)
        return channel

    async def join(self, exits, *names, **more):
        return [self.serve(await exits.enter_async_context(join(self.network, name, **more))) for name in names]

    @property
    def shares(self):
        return Counter(name for name, _ in self.begun)

    @property
    def repeats(self):
        return len(self.begun) - len({request for _, request in self.begun})


async def ask_all(channel, count, *, group="crew", wait_s=2 * HOUR_S):
    return await asyncio.gather(
        *(channel.request(b"%d" % number, group=group, timeout=wait_s) for number in range(count))
    )


@pytest.mark.parametrize("loss", [0.0, 0.3])
@virtual_time()
async def test_three_workers_share_many_requests_and_repeat_hardly_any(loss):
    with LocalNetwork(NetworkFaults(loss=loss)) as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network)
            alice = await exits.enter_async_context(join(network, "alice"))
            workers = await crew.join(exits, "bob", "carol", "dave")
            await asyncio.sleep(60)
            replies = await ask_all(alice, 200)
            assert {bytes(reply).split()[-1] for reply in replies} == {b"%d" % number for number in range(200)}
            assert len(crew.begun) <= (210 if loss else 200)
            assert min(crew.shares.values()) > 50
            assert crew.most_at_once == 1
            await asyncio.sleep(HOUR_S)
            assert [worker.statistics().unfinished for worker in (alice, *workers)] == [0] * 4


@virtual_time()
async def test_two_workers_begin_five_requests_side_by_side_in_their_first_second():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=60)
            alice = await exits.enter_async_context(join(network, "alice"))
            await crew.join(exits, "bob", "carol")
            await asyncio.sleep(10)
            asking = asyncio.ensure_future(ask_all(alice, 5))
            await asyncio.sleep(5)
            assert crew.shares == {"bob": 1, "carol": 1}
            await asking
            assert sorted(crew.shares.values()) == [2, 3]


@virtual_time()
async def test_workers_that_do_not_know_each_other_yet_begin_a_request_once():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=HOUR_S)
            alice = await exits.enter_async_context(join(network, "alice"))
            call = asyncio.ensure_future(alice.request(b"tea", group="crew", timeout=2 * HOUR_S))
            await asyncio.sleep(10)
            await asyncio.gather(*(crew.join(exits, name) for name in ("bob", "carol", "dave")))
            await call
            assert len(crew.begun) == 1


@virtual_time()
async def test_workers_that_do_nothing_learn_of_a_new_one():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=1)
            alice = await exits.enter_async_context(join(network, "alice"))
            await crew.join(exits, "bob", "carol")
            for name in ("dave", "erin", "frank"):
                await asyncio.sleep(HOUR_S)
                await crew.join(exits, name)
                await asyncio.sleep(10)
                before = len(crew.begun)
                await ask_all(alice, 5)
                assert len(crew.begun) - before == 5


@virtual_time()
async def test_a_request_that_a_requester_without_a_store_repeats_is_done_once():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=60)
            [bob] = await crew.join(exits, "bob")
            calls = []
            for _ in range(2):
                async with join(network, "alice") as alice:
                    asking = alice.request(b"tea", group="crew", timeout=HOUR_S, request_id="task 1")
                    calls.append(asyncio.ensure_future(asking))
                    await asyncio.sleep(20)
            await asyncio.gather(*calls, return_exceptions=True)
            await asyncio.sleep(60)
            assert len(crew.begun) == 1
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_a_request_waits_for_a_worker_that_comes_after_hours():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network)
            alice = await exits.enter_async_context(join(network, "alice"))
            await asyncio.sleep(8 * HOUR_S)
            assert alice.members() == ()
            asking = asyncio.ensure_future(ask_all(alice, 3, wait_s=8 * HOUR_S))
            await asyncio.sleep(4 * HOUR_S)
            await crew.join(exits, "bob")
            assert len(await asking) == 3


@virtual_time()
async def test_a_requester_sends_no_more_requests_than_workers_can_keep():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=HOUR_S)
            alice = await exits.enter_async_context(join(network, "alice"))
            [bob] = await crew.join(exits, "bob")
            asking = asyncio.ensure_future(ask_all(alice, 1_100))
            await asyncio.sleep(60)
            assert bob.statistics().unfinished == 1_000
            await asyncio.sleep(HOUR_S)
            assert bob.statistics().unfinished == 1_000
            with pytest.raises(RequestTimeoutError, match="not accepted for sending"):
                await alice.request(b"1 more", group="crew", timeout=1)
            asking.cancel()
            await asyncio.sleep(60)
            assert bob.statistics().unfinished == 0


@pytest.mark.parametrize("loss", [0.0, 0.3])
@virtual_time()
async def test_a_long_request_stays_with_its_worker(loss):
    with LocalNetwork(NetworkFaults(loss=loss)) as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=3 * HOUR_S)
            alice = await exits.enter_async_context(join(network, "alice"))
            await crew.join(exits, "bob", "carol", "dave")
            await asyncio.sleep(60)
            await ask_all(alice, 1, wait_s=4 * HOUR_S)
            assert len(crew.begun) == 1


@virtual_time()
async def test_a_worker_that_joins_later_gets_its_share():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network)
            alice = await exits.enter_async_context(join(network, "alice"))
            await crew.join(exits, "bob")
            asking = asyncio.ensure_future(ask_all(alice, 60))
            await asyncio.sleep(100)
            await crew.join(exits, "carol")
            await asking
            assert crew.repeats == 0
            assert crew.shares["carol"] > 10


class Lives:
    """Workers whose processes can be killed, each with a store on a disk."""

    def __init__(self, network, disk, crew):
        self.network, self.disk, self.crew = network, disk, crew
        self.machine = Machine(asyncio.get_running_loop())
        self.processes: dict[str, Process] = {}

    def begin(self, name, work_s=None):
        process = Process(name, self.machine)

        async def live():
            node, store = self.network.node(), self.disk.store(name)
            async with create_reliable_channel(node, "harbour", name, TOPIC, store=store) as channel:
                self.crew.serve(channel, work_s)
                await asyncio.Event().wait()

        process.spawn(live())
        self.processes[name] = process

    def kill(self, name):
        self.disk.power_loss(name)
        self.processes[name].kill()


@pytest.mark.parametrize("away_s", [1, 60, HOUR_S])
@virtual_time()
async def test_the_request_of_a_killed_worker_is_done_by_it_after_a_short_time_away_else_by_another(away_s):
    with LocalNetwork() as network, SimulatedDisk() as disk:
        crew = Crew(network)
        lives = Lives(network, disk, crew)
        async with join(network, "alice") as alice:
            for name in ("bob", "carol"):
                lives.begin(name, work_s=2 * HOUR_S)
            await asyncio.sleep(30)
            call = asyncio.ensure_future(alice.request(b"tea", group="crew", timeout=12 * HOUR_S))
            await asyncio.sleep(30)
            [(first, _)] = crew.begun
            lives.kill(first)
            await asyncio.sleep(away_s)
            lives.begin(first)
            reply = await call
            assert len(crew.begun) == 2
            if away_s < TAKEN_OVER_S:
                assert reply.sender_id == first
            else:
                assert reply.sender_id != first
        for name in lives.processes:
            lives.kill(name)


@virtual_time()
async def test_the_request_of_a_worker_that_says_goodbye_is_soon_done_by_another():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            crew = Crew(network, work_s=600)
            alice = await exits.enter_async_context(join(network, "alice"))
            workers = await crew.join(exits, "bob", "carol")
            await asyncio.sleep(30)
            call = asyncio.ensure_future(alice.request(b"tea", group="crew", timeout=HOUR_S))
            await asyncio.sleep(30)
            [(first, _)] = crew.begun
            await next(worker for worker in workers if worker.sender_id == first).close()
            await asyncio.sleep(30)
            assert len(crew.begun) == 2
            assert (await call).sender_id != first


@virtual_time()
async def test_workers_that_are_killed_again_and_again_do_every_request():
    with LocalNetwork(NetworkFaults(loss=0.2)) as network, SimulatedDisk() as disk:
        crew = Crew(network, work_s=20)
        lives = Lives(network, disk, crew)
        names = ("bob", "carol", "dave")
        for name in names:
            lives.begin(name)
        async with join(network, "alice") as alice:
            await asyncio.sleep(60)
            asking = asyncio.ensure_future(ask_all(alice, 60, wait_s=10 * HOUR_S))
            for killed in range(12):
                name = names[killed % 3]
                await asyncio.sleep(37)
                lives.kill(name)
                await asyncio.sleep(11)
                lives.begin(name)
            await asking
            # Each kill interrupts at most one request, and makes it begin again.
            assert crew.repeats <= 12 + 6
        for name in names:
            lives.kill(name)


@virtual_time()
async def test_a_requester_that_was_killed_finds_the_replies():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with AsyncExitStack() as exits:
            crew = Crew(network)
            await crew.join(exits, "bob", "carol")
            machine = Machine(asyncio.get_running_loop())
            replies = []

            async def life():
                node, store = network.node(), disk.store("alice")
                async with create_reliable_channel(node, "harbour", "alice", TOPIC, store=store) as alice:
                    asking = [
                        alice.request(b"%d" % n, group="crew", timeout=HOUR_S, request_id=f"task {n}")
                        for n in range(10)
                    ]
                    replies.extend(await asyncio.gather(*asking))

            first = Process("alice", machine)
            first.spawn(life())
            await asyncio.sleep(12)
            disk.power_loss("alice")
            first.kill()
            await asyncio.sleep(300)
            assert len(crew.begun) == 10
            second = Process("alice", machine)
            second.spawn(life())
            await asyncio.sleep(60)
            assert len(replies) == len(crew.begun) == 10
            disk.power_loss("alice")
            second.kill()


@virtual_time()
async def test_groups_and_requests_without_a_group_do_not_mix():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            alice = await exits.enter_async_context(join(network, "alice"))
            cooks, sailors = Crew(network, group="cooks"), Crew(network, group="sailors")
            [bob] = await cooks.join(exits, "bob")
            await sailors.join(exits, "carol")
            dave = sailors.serve(cooks.serve(await exits.enter_async_context(join(network, "dave"))))
            dave.on_request(lambda request: b"for dave: " + bytes(request))
            payloads = heard_by(alice), heard_by(bob)
            await asyncio.gather(ask_all(alice, 10, group="cooks"), ask_all(alice, 20, group="sailors"))
            assert bytes(await alice.request(b"you?", to="dave")) == b"for dave: you?"
            assert (len(cooks.begun), len(sailors.begun)) == (10, 20)
            assert cooks.shares.keys() == {"bob", "dave"}
            assert sailors.shares.keys() == {"carol", "dave"}
            assert payloads == ([], [])


@virtual_time()
async def test_a_loop_gets_one_request_at_a_time():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            bobs, carols = bob.requests(group="crew"), carol.requests(group="crew")
            asking = asyncio.ensure_future(ask_all(alice, 3))
            first, second = await asyncio.gather(anext(bobs), anext(carols))
            assert bytes(first) != bytes(second)
            third = asyncio.ensure_future(anext(bobs))
            await asyncio.sleep(600)
            assert not third.done()
            await first.reply(b"done")
            await (await third).reply(b"done")
            await second.reply(b"done")
            assert [bytes(reply) for reply in await asking] == [b"done"] * 3


@virtual_time()
async def test_a_program_that_asks_for_no_request_holds_none():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob, join(network, "carol") as carol:
            bob.requests(group="crew")
            remove = carol.on_request(lambda _: b"carol", group="crew")
            await asyncio.sleep(30)
            assert {reply.sender_id for reply in await ask_all(alice, 10)} == {"carol"}
            remove()
            with pytest.raises(ConfigurationError, match="not both"):
                await alice.request(b"tea", group="crew", to="bob")
            with pytest.raises(RequestTimeoutError):
                await alice.request(b"tea", group="crew", timeout=HOUR_S)


@virtual_time()
async def test_a_request_that_fails_expires_or_is_cancelled_frees_its_worker():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            alice = await exits.enter_async_context(join(network, "alice"))
            crew = Crew(network, work_s=HOUR_S)
            [bob] = await crew.join(exits, "bob")
            await asyncio.sleep(10)
            with pytest.raises(RequestTimeoutError):
                await alice.request(b"slow", group="crew", timeout=60)
            await asyncio.sleep(5)
            assert crew.at_work["bob"] == 0
            call = asyncio.ensure_future(alice.request(b"unwanted", group="crew", timeout=HOUR_S))
            await asyncio.sleep(10)
            assert crew.at_work["bob"] == 1
            call.cancel()
            await asyncio.sleep(10)
            assert crew.at_work["bob"] == 0

            def refuse(request):
                raise LookupError("no tea")

            bob.on_request(refuse, group="kitchen")
            with pytest.raises(RequestFailedError, match="no tea"):
                await alice.request(b"tea", group="kitchen")
            await asyncio.sleep(60)
            assert bob.statistics().unfinished == 0


@virtual_time()
async def test_a_worker_goes_on_after_a_stop_of_its_channel(tmp_path):
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            alice = await exits.enter_async_context(join(network, "alice"))
            crew = Crew(network, work_s=10)
            [bob] = await crew.join(exits, "bob", store=tmp_path / "bob.db")
            asking = asyncio.ensure_future(ask_all(alice, 4))
            for _ in range(3):
                await asyncio.sleep(5)
                await bob.stop()
                await asyncio.sleep(20)
                await bob.start()
            assert {bytes(reply) for reply in await asking} == {b"bob did %d" % number for number in range(4)}


@virtual_time()
async def test_claims_of_strangers_neither_stop_a_worker_nor_stay_in_memory():
    with LocalNetwork() as network:
        async with AsyncExitStack() as exits:
            alice = await exits.enter_async_context(join(network, "alice"))
            crew = Crew(network)
            [bob] = await crew.join(exits, "bob")
            for number in range(50):
                claim = Envelope(
                    b"", kind=EnvelopeKind.CLAIM, to="x" * number, correlation_id=f"{number}", group="crew"
                )
                await alice.send(claim)
            assert len(await ask_all(alice, 3)) == 3
            assert bob.statistics().unfinished == 0
