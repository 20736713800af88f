"""The main job in one of these worlds (`fairway demo`)."""

from __future__ import annotations

import hashlib
import struct
import zlib

import pytest

from fairway.errors import ConfigurationError
from fairway.simulation.demo import MAX_VIRTUAL_MS, Demo
from fairway.simulation.picture import make_picture
from fairway.storage.nwaku_archive import NwakuArchive

FILE = bytes(range(256)) * 3_500
"""Nine segments, of which one is parity."""


def run(file=FILE, **options):
    demo = Demo(file, **options)
    while not demo.finished:
        demo.advance(5_000)
    return demo


@pytest.mark.parametrize(
    ("loss", "participants", "seed"),
    [(0.0, 2, 1), (0.3, 3, 1), (0.3, 3, 2), (0.3, 5, 3), (0.3, 8, 4), (0.5, 3, 5), (0.5, 4, 6)],
)
def test_everybody_gets_everything_once_and_everybodys_acknowledgement_comes_back(loss, participants, seed):
    result = run(loss=loss, participants=participants, seed=seed).result()
    assert result.succeeded, result
    assert (result.lost, result.duplicates) == (0, 0)
    assert len(result.participants) == participants
    assert result.copies_with_same_hash == participants - 1
    assert result.file_sha256 == hashlib.sha256(FILE).hexdigest()
    assert result.elapsed_ms < MAX_VIRTUAL_MS
    for message in result.messages:
        assert len(message.received_by) == participants - 1
        assert set(message.delivered_to) == set(result.participants) - {message.sender}
        assert message.failed is None
        assert message.sent_at_ms <= message.delivered_at_ms <= result.elapsed_ms
        assert 0 < message.chunks_acknowledged <= message.total_chunks
    assert (result.deliveries_lost > 0) is (loss > 0)


def test_a_file_as_small_as_a_byte_and_one_larger_than_the_usual_limit_can_be_sent():
    assert run(b"x", loss=0.2, seed=5).result().succeeded
    assert run(bytes(3_000_000), loss=0.2, seed=6).result().succeeded


def test_the_same_seed_tells_the_same_story():
    assert run(seed=3).result() == run(seed=3).result() != run(seed=4).result()


def test_progress_shows_while_the_story_goes_on():
    demo = Demo(FILE, loss=0.3)
    assert (demo.elapsed_ms, demo.finished, list(demo.messages())) == (0, False, [])
    held = [demo.segments_held("bob")]
    while not demo.has_file("bob"):
        demo.advance(50)
        held.append(demo.segments_held("bob"))
    assert held == sorted(held)
    assert held[-1] >= 8
    assert demo.has_file("bob")
    assert not demo.has_file("alice")


def test_the_archive_holds_what_was_broadcast_each_once(tmp_path):
    demo = run()
    count = demo.write_archive(tmp_path / "demo.sqlite")
    assert count == demo.result().transmissions
    with NwakuArchive(tmp_path / "demo.sqlite") as archive:
        assert archive.count() == count


def test_a_story_that_cannot_be_finished_ends_when_its_time_is_up():
    demo = Demo(b"x", loss=0.999, seed=1)
    while not demo.finished:
        demo.advance(600_000)
    result = demo.result()
    assert result.elapsed_ms >= MAX_VIRTUAL_MS
    assert not result.succeeded
    assert any(message.failed for message in result.messages)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"participants": 1}, "2 to 8 participants, not 1"),
        ({"participants": 9}, "2 to 8 participants, not 9"),
        ({"loss": 1.0}, r"0 <= loss < 1, not 1\.0"),
        ({"loss": -0.1}, "0 <= loss < 1"),
    ],
)
def test_a_demo_that_cannot_work_is_refused_with_what_would(options, text):
    with pytest.raises(ConfigurationError, match=text):
        Demo(FILE, **options)


@pytest.mark.parametrize("size", [0, 20_000_001])
def test_a_file_that_cannot_be_sent_is_refused(size):
    with pytest.raises(ConfigurationError, match=f"the file has {size} bytes"):
        Demo(bytes(size))


def chunks(png):
    at = 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        (crc,) = struct.unpack_from(">I", png, at + 8 + length)
        assert crc == zlib.crc32(kind + data)
        yield kind, data
        at += 12 + length


def test_the_picture_is_a_png_of_about_one_mebibyte():
    png = make_picture()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert 0.9 * 2**20 < len(png) <= 2**20
    parts = list(chunks(png))
    assert [kind for kind, _ in parts] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", parts[0][1])
    assert (depth, colour) == (8, 2)
    lines = zlib.decompress(parts[1][1])
    assert len(lines) == height * (1 + 3 * width)
    assert {lines[row * (1 + 3 * width)] for row in range(height)} == {0}


def test_the_picture_is_the_same_for_the_same_seed():
    assert make_picture(2) == make_picture(2) != make_picture(3)
