"""What a sender may do to a receiver: nothing is written outside the folder, and nothing beyond the limits."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from fairway.errors import ConfigurationError, StorageError, StoreFullError
from fairway.events import MessageReceived
from fairway.files.outcomes import FileArriving, FileLimits, FileReceived, FileRefusalReason, FileRefused
from fairway.files.receiving import FileReceiver
from fairway.nodes.local import LocalNetwork
from fairway.testing import run
from fairway.wire.file_message import (
    FILE_PREFIX,
    FileManifest,
    FilePart,
    WholeFile,
    encode_file_message,
    manifest_id,
    name_problem,
)
from fairway.wire.proto import file_pb2 as pb
from full_disks import files_of_at_most

PARTS = (b"a" * 100, b"b" * 100, b"c" * 40)


def announced(parts=PARTS, **changed):
    fields = {
        "name": "chart.pdf",
        "size_bytes": sum(map(len, parts)),
        "part_size_bytes": len(parts[0]),
        "content_hash": sha256(b"".join(parts)).digest(),
        "part_hashes": tuple(sha256(part).digest() for part in parts),
    }
    return FileManifest(**(fields | changed))


def part_of(manifest, index, content=None):
    named = manifest_id(encode_file_message(manifest))
    return FilePart(manifest_id=named, index=index, content=PARTS[index] if content is None else content)


def received(content, sender_id="mallory", *, redelivered=False):
    payload = content if isinstance(content, bytes) else encode_file_message(content)
    return MessageReceived(
        message_id=sha256(payload).hexdigest(),
        sender_id=sender_id,
        channel_id="harbour",
        content_topic="/fairway/1/harbour/proto",
        payload=payload,
        timestamp_ns=1,
        message_hashes=(),
        sds_ids=(),
        redelivered=redelivered,
    )


class Taking:
    """A receiver that gets messages as a channel would hand them over."""

    def __init__(self, receiver):
        self.receiver = receiver

    async def __call__(self, content, sender_id="mallory", *, redelivered=False):
        return await self.receiver.take(received(content, sender_id, redelivered=redelivered))


@pytest.fixture
def taking(join, tmp_path):
    """Run ``work(take)`` with a new receiver into ``tmp_path / "in"``."""

    def run_with(work, limits=None, name="bob"):
        async def begin():
            with LocalNetwork() as network:
                async with join(network, name) as channel:
                    return await work(Taking(await FileReceiver.open(channel, tmp_path / "in", limits)))

        return run(begin())

    return run_with


def visible_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def hidden_files(folder: Path) -> list[Path]:
    return list((folder / ".fairway").iterdir())


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/../../x", "..", ".ssh", "x\0y"], ids=ascii)
def test_a_name_outside_the_folder_is_refused_and_nothing_is_written(taking, tmp_path, name):
    assert name_problem(name)
    whole = pb.FileMessage(whole=pb.WholeFile(name=name, media_type="text/plain", content=b"x"))
    manifest = pb.FileMessage(
        manifest=pb.FileManifest(
            name=name,
            media_type="text/plain",
            size_bytes=1,
            part_size_bytes=1,
            content_hash=bytes(32),
            part_hashes=[bytes(32)],
        )
    )

    async def work(take):
        return [await take(FILE_PREFIX + each.SerializeToString()) for each in (whole, manifest)]

    before = set(tmp_path.rglob("*"))
    for outcome in taking(work):
        assert isinstance(outcome, FileRefused)
        assert outcome.reason is FileRefusalReason.MALFORMED
        assert "cannot be one" in outcome.detail
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "in", tmp_path / "in" / ".fairway"}


@pytest.mark.parametrize(
    "payload",
    [FILE_PREFIX, FILE_PREFIX + b"\xff" * 40, FILE_PREFIX + b"\x12\x02\x20\x01"],
    ids=["empty", "garbage", "manifest"],
)
def test_a_file_message_that_cannot_be_decoded_is_refused(taking, payload):
    async def work(take):
        return await take(payload)

    assert taking(work).reason is FileRefusalReason.MALFORMED


@pytest.mark.parametrize(
    ("limits", "reason", "told"),
    [
        (FileLimits(max_file_bytes=239), FileRefusalReason.TOO_LARGE, "240 bytes, at most 239 .*--max-file-bytes"),
        (FileLimits(max_parts=2), FileRefusalReason.TOO_MANY_PARTS, "3 parts, at most 2"),
        (FileLimits(max_incomplete_bytes=239), FileRefusalReason.TOO_MANY_FILES, "max_incomplete_bytes"),
    ],
    ids=lambda each: each.value if isinstance(each, FileRefusalReason) else "",
)
def test_a_manifest_beyond_a_limit_is_refused_together_with_its_parts(taking, tmp_path, limits, reason, told):
    manifest = announced()

    async def work(take):
        return [await take(manifest), *[await take(part_of(manifest, index)) for index in range(3)]]

    first, *parts = taking(work, limits)
    assert isinstance(first, FileRefused)
    assert first.reason is reason
    assert re.search(told, first.detail)
    assert not first.is_repeated
    assert [part.reason for part in parts] == [FileRefusalReason.NO_MANIFEST] * 3
    assert all(part.is_repeated for part in parts)
    assert hidden_files(tmp_path / "in") == []


def test_a_file_larger_than_the_free_space_is_refused_at_its_manifest(taking, tmp_path):
    size = 1 << 46
    manifest = announced(size_bytes=size, part_size_bytes=1 << 31, part_hashes=(bytes(32),) * (1 << 15))
    limits = FileLimits(max_file_bytes=size, max_parts=1 << 15, max_incomplete_bytes=size)

    async def work(take):
        return await take(manifest)

    outcome = taking(work, limits)
    assert outcome.reason is FileRefusalReason.NO_ROOM
    assert "the disk has room for" in outcome.detail
    assert "make room, and ask its sender to send it again" in outcome.detail
    assert hidden_files(tmp_path / "in") == []


def test_incomplete_files_are_limited_and_old_ones_are_evicted(taking, tmp_path):
    limits = FileLimits(max_incomplete_files=2, max_age_ms=60_000)
    one, two, three = (announced(name=name) for name in "abc")

    async def work(take):
        outcomes = [await take(one), await take(two), await take(three)]
        return outcomes, take.receiver.incomplete

    outcomes, incomplete = taking(work, limits)
    assert [type(each) for each in outcomes] == [FileArriving, FileArriving, FileRefused]
    assert outcomes[2].reason is FileRefusalReason.TOO_MANY_FILES
    assert sorted(each.name for each in incomplete) == ["a", "b"]

    async def later(take):
        await asyncio.sleep(3_600)
        return await take(three), take.receiver.incomplete

    for path in hidden_files(tmp_path / "in"):
        os.utime(path, (0, 0))
    outcome, incomplete = taking(later, limits)
    assert isinstance(outcome, FileArriving)
    assert [each.name for each in incomplete] == ["c"]


def test_a_part_without_a_manifest_of_its_sender_is_refused(taking):
    manifest = announced()

    async def work(take):
        first = await take(part_of(manifest, 0))
        await take(manifest, "alice")
        return [first, await take(part_of(manifest, 0)), await take(part_of(manifest, 0), "alice")]

    unknown, of_another, good = taking(work)
    assert unknown.reason is of_another.reason is FileRefusalReason.NO_MANIFEST
    assert good.parts_received == 1


@pytest.mark.parametrize(
    ("index", "content"),
    [(0, b"x" * 100), (0, b"a" * 99), (0, b"a" * 101), (3, b"a" * 100), (2**32 - 1, b"a"), (2, b"c" * 100)],
)
def test_a_part_that_contradicts_the_manifest_is_refused_and_the_right_part_accepted(taking, tmp_path, index, content):
    manifest = announced()

    async def work(take):
        await take(manifest)
        wrong = await take(part_of(manifest, index, content))
        return wrong, [await take(part_of(manifest, index)) for index in (2, 0, 0, 1)]

    wrong, rest = taking(work)
    assert wrong.reason is FileRefusalReason.WRONG_CONTENT
    assert [each.parts_received for each in rest[:-1]] == [1, 2, 2]
    assert isinstance(rest[-1], FileReceived)
    assert visible_files(tmp_path / "in") == {"chart.pdf": b"".join(PARTS)}


def test_a_full_disk_raises_and_the_part_is_accepted_when_there_is_room(taking, tmp_path):
    size = 1 << 20
    parts = (b"a" * size, b"b" * size)
    manifest = announced(parts)

    async def work(take):
        await take(manifest)
        await take(part_of(manifest, 0, parts[0]))
        with files_of_at_most(size), pytest.raises(StoreFullError, match="make room and start again"):
            await take(part_of(manifest, 1, parts[1]))
        assert take.receiver.incomplete[0].parts_received == 1
        return await take(part_of(manifest, 1, parts[1]))

    assert taking(work).path.read_bytes() == b"".join(parts)


def test_a_removed_folder_is_a_storage_error_and_an_impossible_one_a_configuration_error(taking, tmp_path):
    async def work(take):
        (tmp_path / "in" / ".fairway").rmdir()
        (tmp_path / "in").rmdir()
        with pytest.raises(StorageError, match="the message is kept"):
            await take(WholeFile(name="a", content=b"x"))

    taking(work)
    (tmp_path / "in").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="name a folder that may be written"):
        taking(work)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_a_crash_after_a_file_was_named_creates_no_second_file(taking, tmp_path, in_parts):
    manifest = announced()
    last = part_of(manifest, 2) if in_parts else WholeFile(name="chart.pdf", content=b"x" * 100)
    folder = tmp_path / "in"

    async def work(take):
        for before in (manifest, part_of(manifest, 0), part_of(manifest, 1)) if in_parts else ():
            await take(before)
        return await take(last)

    async def again(take):
        return [await take(last, redelivered=True) for _ in range(2)]

    assert taking(work).path == folder / "chart.pdf"
    # As it is on the disk before the entry says that the file was saved.
    (entry,) = (folder / ".fairway").glob("*.json")
    told = json.loads(entry.read_text())
    del told["saved"]
    entry.write_text(json.dumps(told if in_parts else {"state": "whole"}))
    entry.with_suffix(".content").hardlink_to(folder / "chart.pdf")

    first, second = taking(again)
    assert first.path == folder / "chart.pdf"
    assert isinstance(second, FileArriving if in_parts else FileReceived)
    assert list(visible_files(folder)) == ["chart.pdf"]


def test_a_repeated_file_is_saved_again_only_if_the_saved_file_is_gone(taking, tmp_path):
    folder, message = tmp_path / "in", WholeFile(name="chart.pdf", content=b"x" * 100)

    async def work(take):
        saved, again = await take(message), await take(message)
        (folder / "chart.pdf").write_bytes(b"y" * 100)
        return saved, again, await take(message)

    saved, again, beside = taking(work)
    assert (saved.redelivered, again) == (False, replace(saved, redelivered=True))
    assert (beside.path.name, beside.redelivered) == ("chart (2).pdf", False)
    assert visible_files(folder) == {"chart.pdf": b"y" * 100, "chart (2).pdf": b"x" * 100}
