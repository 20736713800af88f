"""Lines in from pipes and files, lines out to pipes: bounded, in order, and never in the way of the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.cli._lines import LineReader, LineWriter, TooLong
from patience import PATIENCE_S, run

Result = TypeVar("Result")


async def all_of(lines: AsyncIterator[bytes | TooLong]) -> list[bytes | TooLong]:
    return [line async for line in lines]


def lines_of(content: bytes, **options: int) -> list[bytes | TooLong]:
    """Return what a reader makes of a pipe that brings some content and ends."""
    reading, writing = os.pipe()

    def feed() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(content)

    feeder = threading.Thread(target=feed)
    feeder.start()

    async def read() -> list[bytes | TooLong]:
        return await all_of(LineReader(reading, **options))

    try:
        return run(read())
    finally:
        feeder.join(PATIENCE_S)
        os.close(reading)


def test_lines_have_no_ends_and_the_last_line_may_lack_its_end():
    assert lines_of(b"one\ntwo\r\n\nlast") == [b"one", b"two", b"", b"last"]


def test_a_line_that_is_too_long_is_skipped_and_reported():
    long = b"x" * 200_000
    assert lines_of(b"a\n" + long + b"\nb\n" + long, max_line_bytes=1_000) == [
        b"a",
        TooLong(1_000),
        b"b",
        TooLong(1_000),
    ]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r")), max_size=10))
def test_joined_lines_are_split_again(lines: list[bytes]):
    assert lines_of(b"".join(line + b"\n" for line in lines)) == lines


def test_a_reader_does_not_block_the_loop_and_ends_when_closed():
    async def wait() -> list[bytes | TooLong]:
        lines = LineReader(reading)
        waiting = asyncio.ensure_future(all_of(lines))
        os.write(writing, b"first\n")
        while not waiting.done():
            # If the reader held up the loop, this would never be reached.
            await asyncio.sleep(0.01)
            lines.close()
        return waiting.result()

    reading, writing = os.pipe()
    try:
        assert run(wait()) in ([], [b"first"])
    finally:
        os.close(writing)
        os.close(reading)


def test_lines_are_written_in_order_and_awaitable():
    reading, writing = os.pipe()
    lines = [f"line {number}\n".encode() for number in range(20_000)]

    async def write() -> None:
        out = LineWriter(writing)
        for line in lines:
            last = out.put(line)
            await out.room()
        await out.written(last)
        await out.close()
        os.close(writing)

    received: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reading, "rb") as pipe:
            received.append(pipe.read())

    reader = threading.Thread(target=drain)
    reader.start()
    run(write())
    reader.join(PATIENCE_S)
    assert received == [b"".join(lines)]


def test_a_line_to_a_closed_pipe_raises():
    reading, writing = os.pipe()
    os.close(reading)

    async def write() -> None:
        out = LineWriter(writing)
        await out.written(out.put(b"x\n"))

    try:
        with pytest.raises(BrokenPipeError):
            run(write())
    finally:
        os.close(writing)
