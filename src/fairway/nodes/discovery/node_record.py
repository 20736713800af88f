"""`NodeRecord`: the description of a node, signed with its identity key (EIP-778; 31/WAKU2-ENR for Waku's fields).

Invariant: a `NodeRecord` is valid. `NodeRecord.decode` and `NodeRecord.parse` verify the signature (identity scheme
"v4"), and `NodeRecord.sign` makes one. The Waku fields are decoded on access. A field that cannot be decoded counts as
absent, so that a record with unknown content stays usable.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.libp2p.errors import AddressError
from fairway.libp2p.keys import IdentityKey, KeyType, PublicKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.signatures import has_signed, point_of
from fairway.wire.hashing import keccak256
from fairway.wire.relay_shards import (
    BIT_VECTOR_KEY,
    INDEX_LIST_KEY,
    RelayShards,
    decode_relay_shards,
    relay_shards_entry,
)
from fairway.wire.rlp import RlpItem, decode_rlp, decode_rlp_number, encode_rlp, encode_rlp_number

MAX_RECORD_BYTES: Final = 300
"""EIP-778, "RLP Encoding": "The maximum encoded size of a node record is 300 bytes"."""
MAX_ADDRESSES: Final = 16
"""Addresses of one record that are read."""

_PREFIX: Final = "enr:"
_SCHEME: Final = b"v4"
_MAX_SEQUENCE: Final = 2**64 - 1


class NodeRecordError(DecodeError):
    """A node record that is not valid."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(f"a node record with a wrong {fault}: {detail}")
        self.fault = fault
        """The fault in a word, for counters."""


class Capability(IntFlag):
    """Services of a node: the bits of the field ``waku2`` (31/WAKU2-ENR)."""

    RELAY = 1
    STORE = 2
    FILTER = 4
    LIGHT_PUSH = 8
    SYNC = 16
    """Reconciliation of stores; nwaku's bit, which 31/WAKU2-ENR does not have."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A valid node record. Equal records have the same bytes."""

    encoded: bytes
    """The record as RLP, at most 300 bytes."""
    sequence: int = field(compare=False)
    """Larger in each newer record of a node."""
    fields: Mapping[bytes, RlpItem] = field(compare=False, repr=False)
    """All pairs, by key."""
    public_key: bytes = field(compare=False, repr=False)
    """The node's public key, compressed, 33 bytes."""

    @classmethod
    def parse(cls, text: str) -> NodeRecord:
        """Read the text form "enr:...", or raise `NodeRecordError`."""
        if not text.startswith(_PREFIX):
            raise NodeRecordError("text", f"{text[:40]!r} does not begin with {_PREFIX!r}")
        if len(text) > 2 * MAX_RECORD_BYTES:
            raise NodeRecordError("too long", f"{len(text)} characters")
        body = text.removeprefix(_PREFIX)
        try:
            data = urlsafe_b64decode(body + "=" * (-len(body) % 4))
        except ValueError as error:
            raise NodeRecordError("text", f"{text[:40]!r}: {error}") from error
        if _base64(data) != body:
            raise NodeRecordError("text", f"{text[:40]!r} is not the base64 form without padding")
        return cls.decode(data)

    @classmethod
    def decode(cls, data: bytes) -> NodeRecord:
        """Read the binary form and verify its signature, or raise `NodeRecordError`."""
        if len(data) > MAX_RECORD_BYTES:
            raise NodeRecordError("too long", f"{len(data)} bytes, at most {MAX_RECORD_BYTES} are allowed")
        items, sequence = _items(data)
        fields = _fields(items[2:])
        if fields.get(b"id") != _SCHEME:
            raise NodeRecordError("scheme", f"{fields.get(b'id')!r}; only v4 is verified")
        public_key, signature = fields.get(b"secp256k1"), items[0]
        try:
            point = point_of(public_key if isinstance(public_key, bytes) else b"")
        except ValueError as error:
            raise NodeRecordError("key", str(error)) from error
        if not isinstance(signature, bytes) or not has_signed(point, signature, encode_rlp(items[1:])):
            raise NodeRecordError("signature", "the key in the record did not sign it")
        assert isinstance(public_key, bytes)
        return cls(data, sequence, MappingProxyType(fields), public_key)

    @classmethod
    def sign(
        cls,
        key: IdentityKey,
        *,
        sequence: int,
        addresses: Iterable[Multiaddr] = (),
        relay_shards: RelayShards | None = None,
        capabilities: Capability | None = None,
        extra: Mapping[bytes, bytes] | None = None,
    ) -> NodeRecord:
        """Make the record of a node, and sign it.

        The first plain TCP address with an IP address also fills ``ip`` and ``tcp``. Addresses that would make the
        record longer than 300 bytes are left out, the last ones first. ``extra`` are further pairs.

        Raises `ConfigurationError` for a key that is not secp256k1, and for a sequence number beyond 64 bits. It also
        raises it if the pairs are too long even without addresses.
        """
        if key.public_key.type is not KeyType.SECP256K1:
            raise ConfigurationError(f"a node record needs a secp256k1 key, not {key.public_key.type.name}")
        if not 0 <= sequence <= _MAX_SEQUENCE:
            raise ConfigurationError(f"the sequence number of a node record has 64 bits; {sequence} does not fit")
        given = [address.without_peer_id() for address in addresses][:MAX_ADDRESSES]
        pairs = dict(extra or {}) | {b"id": _SCHEME, b"secp256k1": key.public_key.data}
        if relay_shards is not None:
            name, value = relay_shards_entry(relay_shards)
            pairs[name.encode()] = value
        if capabilities is not None:
            pairs[b"waku2"] = bytes([capabilities])
        pairs |= _endpoint(given)
        while True:
            listed = {b"multiaddrs": _encode_addresses(given)} if given else {}
            content: list[RlpItem] = [encode_rlp_number(sequence)]
            for name_bytes, value in sorted((pairs | listed).items()):
                content += (name_bytes, value)
            record = encode_rlp([key.sign_digest(keccak256(encode_rlp(content))), *content])
            if len(record) <= MAX_RECORD_BYTES:
                return cls.decode(record)
            if not given:
                raise ConfigurationError(f"a node record has at most {MAX_RECORD_BYTES} bytes, not {len(record)}")
            given.pop()

    @property
    def peer_id(self) -> PeerId:
        """The libp2p peer id of the node, which has the same key."""
        return PeerId.from_public_key(PublicKey(KeyType.SECP256K1, self.public_key))

    @property
    def relay_shards(self) -> RelayShards | None:
        """Cluster and shards that the node relays (RELAY-SHARDING); None without, or with both forms of, that field."""
        found = [value for key in (INDEX_LIST_KEY, BIT_VECTOR_KEY) if (value := self.fields.get(key.encode()))]
        if len(found) != 1 or not isinstance(found[0], bytes):
            return None
        try:
            return decode_relay_shards(found[0])
        except DecodeError:
            return None

    @property
    def capabilities(self) -> Capability | None:
        """Services of the node; None without the field. Unknown bits are kept."""
        value = self.fields.get(b"waku2")
        return Capability(value[0]) if isinstance(value, bytes) and len(value) == 1 else None

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Addresses of the node with its peer id: those of ``multiaddrs``, then ``ip`` and ``ip6``.

        nwaku lists 0.0.0.0, which is no address of another machine.
        """
        found: dict[Multiaddr, None] = {}
        for address in (*self._listed(), *self._endpoints()):
            is_own = address.peer_id in {None, self.peer_id}
            if address.transport is not None and is_own and not address.is_unspecified:
                found[address.with_peer_id(self.peer_id)] = None
        return tuple(found)[:MAX_ADDRESSES]

    def __str__(self) -> str:
        return _PREFIX + _base64(self.encoded)

    def _listed(self) -> Iterable[Multiaddr]:
        value = self.fields.get(b"multiaddrs")
        rest = value if isinstance(value, bytes) else b""
        while len(rest) > 2:
            end = 2 + int.from_bytes(rest[:2])
            one, rest = rest[2:end], rest[end:]
            try:
                address = Multiaddr.from_bytes(one)
            except AddressError:
                continue  # an unknown transport; the next address may have a known one
            yield address

    def _endpoints(self) -> Iterable[Multiaddr]:
        for name, port_names, kind in (("ip", ("tcp",), IPv4Address), ("ip6", ("tcp6", "tcp"), IPv6Address)):
            host = self.fields.get(name.encode())
            ports = [value for key in port_names if isinstance(value := self.fields.get(key.encode()), bytes)]
            if isinstance(host, bytes) and len(host) == kind(0).max_prefixlen // 8 and ports and len(ports[0]) <= 2:
                yield Multiaddr.of(str(kind(host)), int.from_bytes(ports[0]))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _items(data: bytes) -> tuple[tuple[RlpItem, ...], int]:
    """Return signature, sequence number, keys and values, and the sequence number as a number."""
    try:
        items = decode_rlp(data)
        sequence = decode_rlp_number(items[1]) if isinstance(items, tuple) and items[1:] else None
    except DecodeError as error:
        raise NodeRecordError("encoding", str(error)) from error
    if sequence is None or not isinstance(items, tuple) or len(items) % 2:
        raise NodeRecordError("encoding", "no list of signature, sequence number, keys and values")
    return items, sequence


def _fields(items: tuple[RlpItem, ...]) -> dict[bytes, RlpItem]:
    """Return the pairs by key; "Key/value pairs must be sorted by key and must be unique"."""
    fields: dict[bytes, RlpItem] = {}
    before = None
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, bytes):
            raise NodeRecordError("encoding", "a key is a list")
        if before is not None and key <= before:
            raise NodeRecordError("order", f"{key[:20]!r} after {before[:20]!r}")
        fields[key] = value
        before = key
    return fields


def _endpoint(addresses: Iterable[Multiaddr]) -> dict[bytes, bytes]:
    """Return the pairs for the first TCP address with an IP address."""
    for address in addresses:
        if address.transport == "tcp" and address.host_kind in {"ip4", "ip6"} and address.port:
            host, port = str(address.host), encode_rlp_number(address.port)
            if address.host_kind == "ip4":
                return {b"ip": IPv4Address(host).packed, b"tcp": port}
            return {b"ip6": IPv6Address(host).packed, b"tcp6": port}
    return {}


def _encode_addresses(addresses: Iterable[Multiaddr]) -> bytes:
    """Return the field ``multiaddrs`` (31/WAKU2-ENR): each address behind its length in two bytes."""
    encoded = [address.to_bytes() for address in addresses]
    return b"".join(len(one).to_bytes(2) + one for one in encoded)
