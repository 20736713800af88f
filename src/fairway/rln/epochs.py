"""`RlnNetwork`: the epochs of a network, and the external nullifier that binds a proof to one of them.

An epoch is floor(unix time / its length), as every validator computes it; 17/WAKU2-RLN-RELAY writes the number in eight
bytes, little-endian, and pads with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.rln.field import ELEMENT_BYTES, hash_to_field, poseidon

NETWORK_IDENTIFIER: Final = b"rln/waku-rln-relay/v2.0.0"
"""RLN identifier of The Waku Network."""
NETWORK_EPOCH_MS: Final = 600_000
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RlnNetwork:
    """The parameters of a network; the defaults are those of The Waku Network."""

    identifier: bytes = NETWORK_IDENTIFIER
    """At most 32 bytes; sent and hashed with zeros appended."""
    epoch_ms: int = NETWORK_EPOCH_MS
    """Length of an epoch in milliseconds."""
    max_epoch_gap: int = 1
    """Largest distance between the epoch of a message and the validator's."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.identifier) <= ELEMENT_BYTES:
            raise ConfigurationError(f"an RLN identifier has 1 to {ELEMENT_BYTES} bytes, not {len(self.identifier)}")
        if self.epoch_ms <= 0:
            raise ConfigurationError(f"epoch_ms must be positive, not {self.epoch_ms}")
        if self.max_epoch_gap < 0:
            raise ConfigurationError(f"max_epoch_gap must not be negative, not {self.max_epoch_gap}")

    @property
    def padded_identifier(self) -> bytes:
        """The identifier in a proof, 32 bytes."""
        return self.identifier.ljust(ELEMENT_BYTES, b"\0")

    def epoch(self, now_ms: int) -> int:
        """Return the epoch of a Unix time in milliseconds."""
        return now_ms // self.epoch_ms

    def external_nullifier(self, epoch: int) -> bytes:
        """Return Poseidon(H(epoch), H(identifier)), with H = `hash_to_field`."""
        return _external_nullifier(self.padded_identifier, epoch)


@lru_cache(maxsize=64)  # a validator handles a few epochs at a time, with thousands of messages in each
def _external_nullifier(padded_identifier: bytes, epoch: int) -> bytes:
    return poseidon(hash_to_field(encode_epoch(epoch)), hash_to_field(padded_identifier))


def encode_epoch(epoch: int) -> bytes:
    """Return an epoch as 32 bytes of a proof. Raises `ConfigurationError` beyond 64 bits."""
    if not 0 <= epoch < 1 << 64:
        raise ConfigurationError(f"an epoch is 0 to 2**64 - 1, not {epoch}")
    return epoch.to_bytes(_NUMBER_BYTES, "little").ljust(ELEMENT_BYTES, b"\0")


def decode_epoch(data: bytes) -> int:
    """Return the epoch in 32 bytes. Raises `DecodeError` for another length or a number beyond 64 bits."""
    if len(data) != ELEMENT_BYTES:
        raise DecodeError(f"an epoch has {ELEMENT_BYTES} bytes, not {len(data)}")
    if any(data[_NUMBER_BYTES:]):
        raise DecodeError("an epoch is a number of 64 bits, and more bits are set")
    return int.from_bytes(data[:_NUMBER_BYTES], "little")
