"""Multiaddrs: addresses that describe themselves, as text ("/ip4/127.0.0.1/tcp/60000/p2p/12D3...").

Implements the parts of the multiaddr specification and of libp2p's "Addressing" that TCP and WebSocket peers use.
Addresses of other known transports can be read but not dialled. The binary form (`Multiaddr.to_bytes`) is that of node
records. IPv6 zones are refused, because they have a meaning on one machine only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import AddressError, FrameError, IdentityError
from fairway.libp2p.peer_id import PeerId
from fairway.wire.varint import encode_uvarint

MAX_ADDRESS_CHARACTERS: Final = 1024
"""Longer addresses are not read."""

_IP_ADDRESSES: Final = frozenset({"ip4", "ip6"})
_NAMES: Final = frozenset({"dns", "dns4", "dns6", "dnsaddr", "sni"})
_PORTS: Final = frozenset({"tcp", "udp"})
_CODES: Final = {
    "ip4": 4,
    "tcp": 6,
    "ip6": 41,
    "dns": 53,
    "dns4": 54,
    "dns6": 55,
    "dnsaddr": 56,
    "udp": 273,
    "webrtc-direct": 280,
    "webrtc": 281,
    "p2p-circuit": 290,
    "p2p": 421,
    "https": 443,
    "tls": 448,
    "sni": 449,
    "noise": 454,
    "quic": 460,
    "quic-v1": 461,
    "webtransport": 465,
    "ws": 477,
    "wss": 478,
    "http": 480,
}
"""The known protocols, with their codes in the multicodec table."""

_PROTOCOLS: Final = {code: name for name, code in _CODES.items()}
_ALIASES: Final = {"ipfs": "p2p"}
_WITH_VALUE: Final = {"p2p", *_IP_ADDRESSES, *_NAMES, *_PORTS}

_FIXED_BYTES: Final = {"ip4": 4, "ip6": 16, "tcp": 2, "udp": 2}
"""Length of binary values without a length prefix."""

_TRANSPORTS: Final = {
    ("tcp",): "tcp",
    ("tcp", "ws"): "ws",
    ("tcp", "wss"): "wss",
    ("tcp", "tls", "ws"): "wss",
    ("tcp", "tls", "sni", "ws"): "wss",
    ("tcp", "sni", "tls", "ws"): "wss",
}
"""The transports that can be dialled, by the protocols between the host and the peer id."""

_NAME_PATTERN: Final = re.compile(r"[!-.0-~]{1,253}")
"""Printable ASCII without a slash: a name in another script is written in its "xn--" form."""
_PORT_PATTERN: Final = re.compile(r"[0-9]{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Multiaddr:
    """An address as a row of (protocol, value) pairs; the value of a protocol without one is None.

    Made by `parse` and `of`, which check it; equal addresses are equal values.
    """

    components: tuple[tuple[str, str | None], ...]
    """The parts in order, each value in its shortest text form."""

    @classmethod
    def parse(cls, text: str) -> Multiaddr:
        """Read the text form, or raise `AddressError`. "/ipfs/ID" is read as "/p2p/ID"."""
        if len(text) > MAX_ADDRESS_CHARACTERS:
            raise AddressError(f"an address of {len(text)} characters; at most {MAX_ADDRESS_CHARACTERS} are read")
        if not text.startswith("/") or text == "/":
            raise AddressError(f"{text!r} is no multiaddr: it looks like /ip4/127.0.0.1/tcp/60000")
        words = iter(text.rstrip("/")[1:].split("/"))
        components: list[tuple[str, str | None]] = []
        for word in words:
            name = _ALIASES.get(word, word)
            if name not in _CODES:
                zone = " (zones mean something on one machine only)" if name == "ip6zone" else ""
                raise AddressError(f"{text!r}: the protocol {word!r} is unknown{zone}; known are {', '.join(_CODES)}")
            value = None
            if name in _WITH_VALUE:
                value = next(words, None)
                if value is None:
                    raise AddressError(f"{text!r} ends where the value of {word!r} is expected")
                value = _canonical(name, value, text)
            components.append((name, value))
        return cls(tuple(components))

    @classmethod
    def of(cls, host: str, port: int, *, transport: str = "tcp", peer_id: PeerId | None = None) -> Multiaddr:
        """Return the address of ``host`` (an IP address or a DNS name) and ``port`` over "tcp", "ws" or "wss"."""
        if transport not in {"tcp", "ws", "wss"}:
            raise AddressError(f"the transport {transport!r} is unknown; known are tcp, ws and wss")
        try:
            kind = f"ip{ip_address(host).version}"
        except ValueError:
            kind = "dns"
        secured = {"tcp": "", "ws": "/ws", "wss": "/tls/ws"}[transport]
        address = cls.parse(f"/{kind}/{host}/tcp/{port}{secured}")
        return address if peer_id is None else address.with_peer_id(peer_id)

    def to_bytes(self) -> bytes:
        """Return the binary form."""
        parts = []
        for name, value in self.components:
            parts.append(encode_uvarint(_CODES[name]))
            if value is not None:
                parts.append(_to_binary(name, value))
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Multiaddr:
        """Read the binary form, or raise `AddressError`."""
        if len(data) > MAX_ADDRESS_CHARACTERS:
            raise AddressError(f"an address of {len(data)} bytes; at most {MAX_ADDRESS_CHARACTERS} are read")
        parts, rest = [], data
        while rest:
            code, rest = _number(rest)
            name = _PROTOCOLS.get(code)
            if name is None:
                raise AddressError(f"the protocol with code {code} is unknown; known are {', '.join(_CODES)}")
            parts.append(name)
            if name in _WITH_VALUE:
                value, rest = _from_binary(name, rest)
                parts.append(value)
        return cls.parse("/" + "/".join(parts))

    @property
    def host(self) -> str | None:
        """The IP address or DNS name that comes first, or None."""
        name, value = self.components[0]
        return value if name in _IP_ADDRESSES or name in {"dns", "dns4", "dns6", "dnsaddr"} else None

    @property
    def host_kind(self) -> str | None:
        """The protocol of `host`: "ip4", "ip6", "dns", "dns4", "dns6" or "dnsaddr"; None without a host."""
        return self.components[0][0] if self.host is not None else None

    @property
    def is_unspecified(self) -> bool:
        """Whether the host is 0.0.0.0 or ::, at which one can listen and which one cannot dial."""
        return self.host_kind in _IP_ADDRESSES and ip_address(self.host or "").is_unspecified

    @property
    def port(self) -> int | None:
        """The TCP or UDP port, or None."""
        value = next((value for name, value in self.components if name in _PORTS), None)
        return None if value is None else int(value)

    @property
    def transport(self) -> str | None:
        """The transport to dial: "tcp", "ws" or "wss"; None if the address cannot be dialled directly."""
        if self.host is None or self.host_kind == "dnsaddr":
            return None
        middle = self.components[1:]
        if middle and middle[-1][0] == "p2p":
            middle = middle[:-1]
        return _TRANSPORTS.get(tuple(name for name, _ in middle))

    @property
    def server_name(self) -> str | None:
        """The host name that TLS expects: that of "sni", else a DNS host, else None."""
        named = next((value for name, value in self.components if name == "sni"), None)
        return named or (self.host if self.host_kind in {"dns", "dns4", "dns6"} else None)

    @property
    def peer_id(self) -> PeerId | None:
        """The peer id at the end, or None."""
        name, value = self.components[-1]
        return PeerId.parse(value) if name == "p2p" and value is not None else None

    def with_peer_id(self, peer_id: PeerId) -> Multiaddr:
        """Return the address with that peer id at its end; `AddressError` when it ends with another."""
        known = self.peer_id
        if known is not None and known != peer_id:
            raise AddressError(f"{self} names another peer than {peer_id}")
        return self if known is not None else Multiaddr((*self.components, ("p2p", str(peer_id))))

    def without_peer_id(self) -> Multiaddr:
        """Return the address without a peer id at its end; an address that consists of a peer id is unchanged."""
        if self.peer_id is None or len(self.components) == 1:
            return self
        return Multiaddr(self.components[:-1])

    def __str__(self) -> str:
        return "".join(f"/{name}" if value is None else f"/{name}/{value}" for name, value in self.components)

    def __repr__(self) -> str:
        return f"Multiaddr({str(self)!r})"


def _canonical(name: str, value: str, whole: str) -> str:
    """Return the one text form of a value, or raise `AddressError`."""
    try:
        if name == "ip4":
            return str(IPv4Address(value))
        if name == "ip6":
            if "%" in value:
                raise AddressError(f"{whole!r}: a zone means something on one machine only; leave {value!r} without it")
            return str(IPv6Address(value))
        if name == "p2p":
            return str(PeerId.parse(value))
    except (AddressValueError, IdentityError) as error:
        raise AddressError(f"{whole!r}: {error}") from error
    if name in _PORTS:
        if not _PORT_PATTERN.fullmatch(value) or int(value) > 0xFFFF:
            raise AddressError(f"{whole!r}: a port is a number from 0 to 65535, not {value!r}")
        return str(int(value))
    if not _NAME_PATTERN.fullmatch(value):
        raise AddressError(f"{whole!r}: {value!r} is no DNS name")
    return value


def _to_binary(name: str, value: str) -> bytes:
    if name == "ip4":
        return IPv4Address(value).packed
    if name == "ip6":
        return IPv6Address(value).packed
    if name in _PORTS:
        return int(value).to_bytes(2)
    raw = PeerId.parse(value).multihash if name == "p2p" else value.encode()
    return encode_uvarint(len(raw)) + raw


def _number(data: bytes) -> tuple[int, bytes]:
    """Return the varint at the beginning, and the rest."""
    try:
        read = decode_uvarint(data)
    except FrameError as error:
        raise AddressError(f"no multiaddr: {error}") from error
    if read is None:
        raise AddressError("no multiaddr: a number is cut off")
    return read[0], data[read[1] :]


def _from_binary(name: str, data: bytes) -> tuple[str, bytes]:
    """Return the text of the value at the beginning, and the rest."""
    size = _FIXED_BYTES.get(name)
    if size is None:
        size, data = _number(data)
    value, rest = data[:size], data[size:]
    if len(value) < size:
        raise AddressError(f"no multiaddr: {size} bytes of {name!r} are announced, {len(value)} are there")
    if name in _IP_ADDRESSES:
        return str(ip_address(value)), rest
    if name in _PORTS:
        return str(int.from_bytes(value)), rest
    try:
        return str(PeerId(value)) if name == "p2p" else value.decode("ascii"), rest
    except (IdentityError, UnicodeDecodeError) as error:
        raise AddressError(f"no multiaddr: {value[:60]!r} is no value of {name!r}") from error
