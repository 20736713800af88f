"""An hour of waiting takes no time, the order of tasks comes from the seed, and a killed program never goes on."""

from __future__ import annotations

import asyncio
import time

import pytest

import fairway
from fairway.testing import Deadlock, Machine, Process, VirtualLoop, run, virtual_time
from fairway.waku.local import LocalNetwork, NetworkFaults

TOPIC = "/harbour/1/team/proto"


@virtual_time(seed=7)
async def test_the_crew_hears_everything_in_an_hour_of_heavy_loss():
    with LocalNetwork(NetworkFaults(loss=0.3), seed=7) as network:
        alice, bob = [
            await fairway.create_reliable_channel(network.node(name), "crew", name, TOPIC) for name in ("alice", "bob")
        ]
        async with alice, bob:
            for minute in range(60):
                await alice.send(f"minute {minute}".encode())
                await asyncio.sleep(60)
            messages = bob.messages()
            heard = [(await anext(messages)).payload.decode() for _ in range(60)]
    assert heard == [f"minute {minute}" for minute in range(60)]


def test_sleeping_takes_no_time():
    async def sleep() -> float:
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time() - began_s

    assert run(sleep()) == 365 * 86_400


def test_timers_go_off_in_the_order_of_their_times():
    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for delay_s in (3, 1, 2):
            loop.call_later(delay_s, seen.append, delay_s)
        loop.call_later(1.5, seen.append, 15).cancel()
        await asyncio.sleep(4)
        return seen

    assert run(main()) == [1, 2, 3]


async def order_of_tasks() -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    await asyncio.gather(*(note(number) for number in range(20)))
    return order


def test_the_seed_draws_the_order_of_tasks():
    assert run(order_of_tasks(), seed=1) == run(order_of_tasks(), seed=1)
    assert run(order_of_tasks(), seed=1) != run(order_of_tasks(), seed=2)
    assert sorted(run(order_of_tasks(), seed=3)) == list(range(20))


def test_callbacks_keep_the_order_in_which_they_were_scheduled():
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    assert run(main(), seed=4) == list(range(20))


def test_waiting_for_what_nobody_does_is_an_error_and_no_hang():
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="no timer is set and no callback is ready"):
        run(wait())


def test_what_a_forgotten_task_raised_is_told():
    async def fail() -> None:
        raise ValueError("nobody awaits me")

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)
        del task

    with pytest.raises(RuntimeError) as raised:
        run(main())
    assert isinstance(raised.value.__cause__, ValueError)


def test_what_is_given_to_a_thread_runs_at_once():
    async def main() -> int:
        return await asyncio.to_thread(sum, [1, 2, 3])

    assert run(main()) == 6


def test_a_timeout_ends_a_wait_in_virtual_time():
    async def main() -> float:
        try:
            async with asyncio.timeout(90):
                await asyncio.sleep(3_600)
        except TimeoutError:
            return asyncio.get_running_loop().time()
        raise AssertionError

    began_s = time.perf_counter()
    assert run(main()) == 90
    assert time.perf_counter() - began_s < 60


def test_a_killed_program_never_goes_on_and_runs_no_clean_up_that_lasts():
    async def main() -> list[str]:
        seen: list[str] = []

        async def program() -> None:
            try:
                for _ in range(100):
                    seen.append("tick")
                    await asyncio.sleep(1)
            finally:
                await asyncio.sleep(1)
                seen.append("cleaned up")

        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process = Process("p", Machine(loop))
        process.spawn(program())
        process.run(loop.call_later, 5, seen.append, "timer")
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(60)
        return seen

    assert run(main()) == ["tick"] * 3


def test_each_program_has_the_wall_clock_of_its_machine():
    from fairway.environment import time_ns

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        right, wrong = Machine(loop), Machine(loop, skew_ms=60_000)

        async def look() -> int:
            return time_ns()

        times = [await Process("p", machine).spawn(look()) for machine in (right, wrong)]
        wrong.skew_ms = -5_000
        return [time - times[0] for time in (*times, await Process("p", wrong).spawn(look()))]

    assert run(main()) == [0, 60_000_000_000, -5_000_000_000]
