"""A disk that refuses the name of one file, or has no room for it: other files are saved all the same."""

from __future__ import annotations

import asyncio
import os

import pytest

from fairway.files.file_names import names_for, portable_name
from fairway.files.outcomes import FileArriving, FileReceived, FileRefusalReason, FileRefused
from fairway.files.receiving import AGAIN_AFTER_MS, FileReceiver
from fairway.files.sending import send_file
from fairway.nodes.local import LocalNetwork
from fairway.testing import run
from fairway.wire.file_message import WholeFile, encode_file_message
from full_disks import files_of_at_most

KEY = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("chart.pdf", "chart.pdf"),
        ("Grüße vom Hafen.txt", "Grüße vom Hafen.txt"),
        ("12:30 notes?.txt", "12_30 notes_.txt"),
        ("trailing. . .", "trailing"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("LPT1.tar.gz", "_LPT1.tar.gz"),
        ("console.txt", "console.txt"),
        ("n" * 251 + ".txt", "n" * 96 + ".txt"),
        ("é" * 127, "é" * 50),
        ("a." + "x" * 253, "a." + "x" * 98),
        ("???", "___"),
        ("? .", "_"),
    ],
)
def test_a_portable_name_is_the_same_or_like_it(name, portable):
    assert portable_name(name) == portable
    assert portable_name(portable) == portable
    assert len(portable.encode()) <= 100


def test_on_windows_the_name_of_a_device_is_not_used():
    assert list(names_for("nul.txt", KEY, on_windows=True)) == ["_nul.txt", "file-0123456789ab.txt"]
    assert list(names_for("nul.txt", KEY, on_windows=False)) == ["nul.txt", "_nul.txt", "file-0123456789ab.txt"]
    assert list(names_for("a.txt", KEY, on_windows=True)) == ["a.txt", "file-0123456789ab.txt"]


def deep_folder(base, room):
    """Make a folder in which a path has room for a name of so many bytes."""
    while (rest := 4_095 - len(os.fsencode(base)) - 1 - room) > 1:
        base = base / ("d" * min(200, rest - 1 if rest < 202 else 200))
        base.mkdir()
    return base


def test_a_file_whose_name_the_disk_refuses_is_saved_under_another_one(join, tmp_path):
    folder = deep_folder(tmp_path, 150)
    names = ["first.txt", "n" * 251 + ".txt", "m" * 255, "last.txt"]

    async def work():
        with LocalNetwork() as network:
            async with join(network, "alice") as alice, join(network, "bob") as bob:
                receiver = await FileReceiver.open(bob, folder)
                for name in names:
                    await alice.send(encode_file_message(WholeFile(name=name, content=name.encode())))
                outcomes = []
                async for message in bob:
                    outcomes.append(await receiver.take(message))
                    if len(outcomes) == len(names):
                        break
                return outcomes

    outcomes = run(work())
    assert [each.name for each in outcomes] == names
    assert [each.path.read_bytes() for each in outcomes] == [name.encode() for name in names]
    assert [each.path.name for each in outcomes] == ["first.txt", "n" * 96 + ".txt", "m" * 100, "last.txt"]


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_a_file_without_room_on_the_disk_waits_while_others_are_saved(join, make_file, tmp_path, in_parts):
    large, small = make_file(60_000 if in_parts else 9_000, "large.bin"), make_file(100, "small.txt")
    limit = 30_000 if in_parts else 8_192

    async def work():
        loop = asyncio.get_running_loop()
        outcomes = []
        with LocalNetwork() as network:
            async with join(network, "alice") as alice, join(network, "bob") as bob:
                receiver = await FileReceiver.open(bob, tmp_path / "in")

                async def receive():
                    async for message in bob:
                        with files_of_at_most(limit) if loop.time() < 20 else files_of_at_most(1 << 30):
                            outcomes.append((loop.time(), await receiver.take(message)))

                receiving = asyncio.ensure_future(receive())
                await send_file(alice, large)
                await send_file(alice, small)
                await asyncio.sleep(2 * AGAIN_AFTER_MS / 1_000)
                receiving.cancel()
                assert bob.statistics().unfinished == 0
        return outcomes

    outcomes = [(at_s, each) for at_s, each in run(work()) if not isinstance(each, FileArriving)]
    refused = [each for _, each in outcomes if isinstance(each, FileRefused)]
    assert {each.reason for each in refused} == {FileRefusalReason.NOT_SAVED}
    assert "the next attempt is in 30 s" in refused[0].detail
    saved = {each.name: (at_s, each) for at_s, each in outcomes if isinstance(each, FileReceived)}
    assert saved["small.txt"][0] < 20 < saved["large.bin"][0]
    assert saved["large.bin"][1].path.read_bytes() == large.read_bytes()
    assert saved["small.txt"][1].path.read_bytes() == small.read_bytes()
