"""`NoiseSession`: encrypts and decrypts after the handshake (libp2p "Noise", "Wire Format").

A frame has two bytes of length, big endian, then at most 65,535 bytes of ChaCha20-Poly1305 ciphertext with its tag of
16 bytes. Each direction counts its frames. The count is the nonce, so a frame that is lost, repeated, reordered or
changed raises `FrameError`; then the connection must be closed. There is no I/O.
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fairway.libp2p.errors import FrameError
from fairway.libp2p.noise.pattern import TAG_BYTES, SessionKeys

MAX_FRAME_BYTES: Final = 65_535
MAX_PLAINTEXT_BYTES: Final = MAX_FRAME_BYTES - TAG_BYTES

_LENGTH: Final = struct.Struct(">H")
_NONCE: Final = struct.Struct("<4xQ")


class NoiseSession:
    """Encrypts and decrypts the frames of one connection."""

    __slots__ = ("_buffer", "_opener", "_received", "_sealer", "_sent", "handshake_hash")

    handshake_hash: bytes
    """32 bytes, the same at both sides, that identify the session."""

    def __init__(self, keys: SessionKeys) -> None:
        self._sealer = ChaCha20Poly1305(keys.send)
        self._opener = ChaCha20Poly1305(keys.receive)
        self._buffer = bytearray()
        self._sent = self._received = 0  # frames
        self.handshake_hash = keys.handshake_hash

    def encrypt(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return ``data`` in as few frames as possible; no frame for empty data."""
        size = len(data)
        seal, pack_nonce, count = self._sealer.encrypt, _NONCE.pack, self._sent
        self._sent += -(-size // MAX_PLAINTEXT_BYTES)
        if 0 < size <= MAX_PLAINTEXT_BYTES:
            return _LENGTH.pack(size + TAG_BYTES) + seal(pack_nonce(count), data, None)
        parts: list[bytes] = []
        view = memoryview(data)
        for start in range(0, size, MAX_PLAINTEXT_BYTES):
            piece = view[start : start + MAX_PLAINTEXT_BYTES]
            parts += (_LENGTH.pack(len(piece) + TAG_BYTES), seal(pack_nonce(count), piece, None))
            count += 1
        return b"".join(parts)

    def receive_data(self, data: bytes | bytearray | memoryview) -> bytes:
        """Process received bytes, and return the plaintext of all complete frames.

        Raises `FrameError` for a frame that the peer did not encrypt as the next one of this session.
        """
        if self._buffer:
            self._buffer += data
            with memoryview(self._buffer) as view:
                plaintext, end = self._open_frames(view)
            del self._buffer[:end]
            return plaintext
        with memoryview(data) as view:
            plaintext, end = self._open_frames(view)
            self._buffer += view[end:]
        return plaintext

    def receive_eof(self) -> None:
        """Note that the peer has closed its side; raise `FrameError` if that was within a frame."""
        if self._buffer:
            raise FrameError(f"the connection ended inside a Noise frame, after {len(self._buffer)} of its bytes")

    def _open_frames(self, view: memoryview) -> tuple[bytes, int]:
        """Return the plaintext of the complete frames at the beginning of ``view``, and the position of their end."""
        unpack, opener, pack_nonce = _LENGTH.unpack_from, self._opener.decrypt, _NONCE.pack
        offset, available = 0, len(view)
        parts: list[bytes] = []
        while offset + 2 <= available:
            (size,) = unpack(view, offset)
            end = offset + 2 + size
            # A frame that is too short is refused before the rest of it arrives.
            if size < TAG_BYTES:
                raise FrameError(f"a Noise frame of {size} bytes; it has a tag of {TAG_BYTES} at least")
            if end > available:
                break
            try:
                parts.append(opener(pack_nonce(self._received), view[offset + 2 : end], None))
            except InvalidTag as error:
                raise FrameError(
                    f"Noise frame {self._received} was not sealed by the peer as the next of this session, or was "
                    "changed"
                ) from error
            self._received += 1
            offset = end
        return (parts[0] if len(parts) == 1 else b"".join(parts)), offset

    def __repr__(self) -> str:
        return f"<NoiseSession {self.handshake_hash.hex()[:16]}: {self._sent} sent, {self._received} received>"
