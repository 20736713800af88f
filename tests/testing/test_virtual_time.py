"""An hour of waiting takes no time, the order of tasks comes from the seed, and a killed program never goes on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import fairway
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.storage.channel_store import Stored
from fairway.storage.sqlite_store import SqliteStore
from fairway.testing import Deadlock, ForeignThread, Machine, Process, VirtualLoop, run

TOPIC = "/harbour/1/team/proto"


def test_sleeping_takes_no_time():
    async def sleep() -> float:
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time() - began_s

    assert run(sleep()) == 365 * 86_400


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


def test_waiting_for_an_event_that_never_happens_raises_deadlock():
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="no timer is set and no callback is ready"):
        run(wait())


def test_a_channel_writes_a_real_file_under_virtual_time(tmp_path):
    async def main(folder: Path) -> list[tuple[float, str]]:
        now_s = asyncio.get_running_loop().time
        seen: list[tuple[float, str]] = []
        with LocalNetwork(NetworkFaults(loss=0.3), seed=7) as network:
            alice, bob = [
                await fairway.create_reliable_channel(
                    network.node(name), "crew", name, TOPIC, store=folder / f"{name}.db"
                )
                for name in ("alice", "bob")
            ]
            async with alice, bob:
                messages = aiter(bob)
                for number in range(20):
                    began_s = now_s()
                    receipt = await alice.send(f"minute {number}".encode())
                    assert now_s() == began_s, "the send is durable, and no time has passed"
                    seen.append((now_s(), (await anext(messages)).payload.decode()))
                    await receipt.delivered()
                    seen.append((now_s(), "delivered"))
        return seen

    runs = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        runs.append(run(main(folder), seed=7))
        bob = SqliteStore(folder / "bob.db")
        assert len(bob.open("crew", "bob", TOPIC).inbox) < 20, "what was read is kept as read"
        bob.close()
    assert runs[0] == runs[1]
    assert runs[0][-1][0] < 3_600


def test_a_call_from_another_thread_raises():
    async def main() -> None:
        thread = threading.Thread(target=call, args=(asyncio.get_running_loop(),), name="elsewhere")
        thread.start()
        thread.join()
        await asyncio.sleep(3_600)

    def call(loop: asyncio.AbstractEventLoop) -> None:
        with pytest.raises(ForeignThread):
            loop.call_soon_threadsafe(print, "never printed")

    with pytest.raises(ForeignThread, match="the thread 'elsewhere' called the loop"):
        run(main())


def test_a_store_opened_outside_virtual_time_raises(tmp_path):
    class Opened(SqliteStore):
        """A store that hands out what it read when it was opened before."""

        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.stored = super().open("crew", "alice", TOPIC)

        def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
            return self.stored

    async def main() -> None:
        with LocalNetwork() as network:
            async with fairway.create_reliable_channel(network.node("alice"), "crew", "alice", TOPIC, store=store):
                await asyncio.Event().wait()

    store = Opened(tmp_path / "alice.db")
    try:
        with pytest.raises(ForeignThread, match="fairway-store"):
            run(main())
    finally:
        store.close()


def test_a_killed_program_never_continues():
    async def main() -> list[str]:
        seen: list[str] = []

        async def program() -> None:
            try:
                for _ in range(100):
                    seen.append("tick")
                    await asyncio.sleep(1)
            finally:
                asyncio.ensure_future(seen_later()).add_done_callback(lambda _: seen.append("ended"))
                await asyncio.sleep(1)
                seen.append("cleaned up")

        async def seen_later() -> None:
            seen.append("cleaned up in a task")

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
