"""The time of a page of a service node's archive with ten thousand messages to a million, and the rate of writing.

    python -m benchmarks.node_store --sizes 10000 100000 1000000
    python -m benchmarks.node_store --sizes 300000 --archive postgresql://user@127.0.0.1/bench

Every query goes through `NodeArchive.page`, as those of peers do. The messages are of the last day, seeded, with 200
bytes of payload. Every fifth is in one popular content topic, fifty are in a rare one, and the rest is spread over a
thousand. The database must be empty, and keeps the messages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fairway.errors import StorageError
from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service.archives import NodeArchive, Retention
from fairway.service.open_archive import open_archive
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/1/0"
POPULAR, RARE = "/popular/1/chat/proto", "/rare/1/chat/proto"
OTHERS = [f"/app{number}/1/chat/proto" for number in range(1_000)]
PAYLOAD_BYTES = 200
DAY_NS = 86_400_000_000_000
SEED = 20_261_121
_MAX_WAITING = 20_000
_SIZES = [10_000, 100_000, 1_000_000]


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What is known of an archive's content."""

    start_ns: int
    sample: list[bytes]
    """Hashes of a thousand messages, oldest first."""


def messages(count: int, start_ns: int) -> Iterator[RoutedMessage]:
    """Yield messages, oldest first."""
    rng = random.Random(SEED)
    rare = set(rng.sample(range(count), 50))
    for number in range(count):
        topic = RARE if number in rare else POPULAR if number % 5 == 0 else rng.choice(OTHERS)
        timestamp_ns = start_ns + number * DAY_NS // count
        message = WakuMessage(
            payload=rng.randbytes(PAYLOAD_BYTES), content_topic=topic, version=0, timestamp_ns=timestamp_ns
        )
        yield RoutedMessage.of(SHARD, message)


async def fill(archive: NodeArchive, count: int) -> tuple[Filled, float]:
    """Put messages as fast as they are written, and return what is known of them, and messages per second."""
    start_ns = time.time_ns() - DAY_NS + 60_000_000_000
    sample = []
    spent_s = 0.0
    batch: list[RoutedMessage] = []
    for number, message in enumerate(messages(count, start_ns)):
        if number % max(1, count // 1_000) == 0:
            sample.append(message.message_hash)
        batch.append(message)
        if len(batch) == _MAX_WAITING or number == count - 1:
            started_s = time.perf_counter()
            for one in batch:
                archive.put(one, start_ns)
            while (await archive.statistics()).waiting:
                await archive.page(StoreQuery(message_hashes=(message.message_hash,)))
            spent_s += time.perf_counter() - started_s
            batch = []
    dropped = (await archive.statistics()).dropped
    if dropped:
        raise SystemExit(f"{dropped} messages were not kept; is the database an empty one?")
    return Filled(start_ns=start_ns, sample=sample), count / spent_s


Ask = Callable[[random.Random], tuple[StoreQuery, bytes | None]]


def kinds(filled: Filled) -> dict[str, Ask]:
    """Return the queries by name; each takes its places at random."""

    def somewhere(rng: random.Random) -> int:
        return filled.start_ns + rng.randrange(DAY_NS * 9 // 10)

    def deep(rng: random.Random) -> bytes:
        return rng.choice(filled.sample[len(filled.sample) * 8 // 10 : len(filled.sample) * 9 // 10])

    def asked(**fields: object) -> StoreQuery:
        return StoreQuery(**fields)  # type: ignore[arg-type] # passes names on

    return {
        "range of time": lambda rng: (asked(start_ns=somewhere(rng)), None),
        "shard, deep cursor": lambda rng: (asked(pubsub_topic=SHARD), deep(rng)),
        "newest first": lambda rng: (asked(newest_first=True, end_ns=somewhere(rng) + DAY_NS // 20), None),
        "popular topic": lambda rng: (asked(content_topics=(POPULAR,), start_ns=somewhere(rng)), None),
        "popular topic, deep cursor": lambda rng: (asked(content_topics=(POPULAR,), pubsub_topic=SHARD), deep(rng)),
        "popular topic, newest first": lambda _: (asked(content_topics=(POPULAR,), newest_first=True), None),
        "rare topic": lambda _: (asked(content_topics=(RARE,), pubsub_topic=SHARD), None),
        "three topics": lambda rng: (asked(content_topics=(POPULAR, RARE, rng.choice(OTHERS))), deep(rng)),
        "fifty topics": lambda rng: (asked(content_topics=tuple(rng.sample(OTHERS, 50))), deep(rng)),
        "ten hashes": lambda rng: (asked(message_hashes=tuple(rng.sample(filled.sample, 10))), None),
        "topic without messages": lambda _: (asked(content_topics=("/nobody/1/has/proto",)), None),
    }


async def latencies_ms(archive: NodeArchive, ask: Ask, count: int) -> list[float]:
    """Return the sorted latencies of so many pages."""
    rng = random.Random(SEED)
    spent = []
    for _ in range(count):
        query, cursor = ask(rng)
        started_s = time.perf_counter()
        await archive.page(query, cursor)
        spent.append((time.perf_counter() - started_s) * 1e3)
    return sorted(spent)


async def scan_ms(archive: NodeArchive) -> float:
    """Return how long the worst query took: a thousand content topics without messages."""
    query = StoreQuery(content_topics=tuple(f"/nobody/1/{number}/proto" for number in range(1_000)))
    started_s = time.perf_counter()
    try:
        await archive.page(query)
    except StorageError as error:
        print(f"  1,000 topics: {error}")
    return (time.perf_counter() - started_s) * 1e3


async def measure(address: str, count: int, pages: int) -> dict[str, str]:
    """Fill an archive, and return its figures by the name of the row."""
    archive = await open_archive(address, Retention(max_age_s=None))
    try:
        filled, per_second = await fill(archive, count)
        figures = {}
        for name, ask in kinds(filled).items():
            spent = await latencies_ms(archive, ask, pages)
            figures[name] = f"{statistics.median(spent):.2f} / {spent[len(spent) * 99 // 100]:.2f}"
        figures["1,000 topics without messages, once"] = f"{await scan_ms(archive):,.1f}"
        figures["messages written a second"] = f"{per_second:,.0f}"
    finally:
        await archive.close()
    return figures


def main() -> None:
    """Measure every size, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="numbers of messages"
    )
    parser.add_argument("--pages", type=int, default=300, help="pages of each kind")
    parser.add_argument("--archive", help="an empty PostgreSQL database, for one size; without it SQLite files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as folder:
        columns = [
            asyncio.run(measure(given.archive or f"sqlite:{folder}/{count}.db", count, given.pages))
            for count in given.sizes
        ]
    print(f"| page of, p50 / p99 in ms | {' | '.join(f'{count:,}' for count in given.sizes)} |")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
