"""The picture that is sent when nobody has a file at hand."""

from __future__ import annotations

import struct
import zlib

from fairway.apps.demonstration_picture import make_picture


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
