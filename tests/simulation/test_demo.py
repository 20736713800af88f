"""The demonstration: everybody gets the file and the texts, and the archive holds what was broadcast."""

from __future__ import annotations

import zlib

import pytest

from fairway.errors import ConfigurationError
from fairway.simulation.demo import Demo
from fairway.simulation.picture import make_picture
from fairway.storage.nwaku_archive import NwakuArchive


def finish(demo):
    while not demo.finished:
        demo.advance(60_000)
    return demo.result()


@pytest.mark.parametrize(("loss", "participants", "seed"), [(0.0, 2, 1), (0.3, 3, 2), (0.3, 5, 3), (0.5, 4, 4)])
def test_everybody_gets_everything_once_and_acknowledges_it(loss, participants, seed):
    result = finish(Demo(bytes(300_000) + b"end", loss=loss, participants=participants, seed=seed))
    assert (result.lost, result.duplicates) == (0, 0)
    assert result.copies_with_same_hash == participants - 1
    assert result.succeeded
    assert all(len(message.delivered_to) == participants - 1 for message in result.messages)


def test_a_file_as_small_as_a_byte_and_larger_than_the_usual_limit_can_be_sent():
    assert finish(Demo(b"x", loss=0.2, seed=5)).succeeded
    assert finish(Demo(bytes(3_000_000), loss=0.2, seed=6)).succeeded


def test_the_archive_holds_every_broadcast_that_is_not_ephemeral(tmp_path):
    demo = Demo(bytes(200_000), loss=0.3, seed=7)
    result = finish(demo)
    written = demo.write_archive(tmp_path / "demo.sqlite")
    with NwakuArchive(tmp_path / "demo.sqlite", read_only=True) as archive:
        assert archive.count() == written == result.transmissions


@pytest.mark.parametrize("wrong", [{"participants": 1}, {"participants": 99}, {"loss": 1.0}, {"loss": -1}])
def test_what_cannot_be_shown_is_refused_in_words(wrong):
    with pytest.raises(ConfigurationError):
        Demo(b"x", **wrong)
    with pytest.raises(ConfigurationError, match="choose another"):
        Demo(b"")


def test_the_picture_is_a_png_of_about_a_mebibyte_and_the_same_for_the_same_seed():
    picture = make_picture(1)
    assert picture == make_picture(1) != make_picture(2)
    assert 900_000 < len(picture) <= 1_048_576
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, []
    while at < len(picture):
        size = int.from_bytes(picture[at : at + 4], "big")
        kind, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]
        assert int.from_bytes(picture[at + 8 + size : at + 12 + size], "big") == zlib.crc32(kind + data)
        chunks.append((kind, data))
        at += 12 + size
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    assert len(zlib.decompress(chunks[1][1])) == 528 * (1 + 3 * 800)
