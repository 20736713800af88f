"""A picture to send by default: a PNG of about 1 MiB, the same for the same seed."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

_WIDTH: Final = 800
_HEIGHT: Final = 528
_GRAIN: Final = 28
"""Strength of the noise, which is what keeps the file from compressing."""


def make_picture(seed: int = 1) -> bytes:
    """Return a PNG of an evening sea, 800 x 528 pixels, slightly less than 1 MiB."""
    y, x = np.mgrid[0:_HEIGHT, 0:_WIDTH] / np.array([[[_HEIGHT]], [[_WIDTH]]])
    horizon = 0.55
    sky = np.stack([0.95 - 0.5 * (horizon - y), 0.55 + 0.1 * y, 0.35 + 0.5 * (horizon - y)], axis=-1)
    depth = np.clip(y - horizon, 0, 1)
    waves = 0.05 * np.sin(90 * np.sqrt(depth) + 6 * np.sin(7 * x + 20 * depth))
    sea = np.stack([0.25 + waves, 0.3 + waves, 0.45 + waves - 0.3 * depth], axis=-1)
    sun = np.exp(-(((x - 0.68) * 1.5) ** 2 + (y - 0.42) ** 2) / 0.004)[..., None] * np.array([1.0, 0.9, 0.6])
    picture = np.where((y < horizon)[..., None], sky + sun, sea)
    grain = np.random.default_rng(seed).integers(0, _GRAIN, picture.shape)
    return _png((np.clip(picture, 0, 1) * (255 - _GRAIN) + grain).astype(np.uint8))


def _png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
