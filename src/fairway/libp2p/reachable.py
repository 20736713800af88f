"""The addresses at which others reach a host: those that it announces, or those of the machine's interfaces.

A host that listens at 0.0.0.0 or :: listens at every address of the machine, but others cannot dial such an address.
`reachable_addresses` replaces it by the addresses of the interfaces, and by those of the loopback only if no other
exists.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from fairway.libp2p.errors import AddressError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId

_SOMEWHERE: Final = {socket.AF_INET: ("192.0.2.1", 9), socket.AF_INET6: ("2001:db8::1", 9)}
"""Addresses for documentation (RFC 5737, RFC 3849): a route to them is looked up, and nothing is sent."""
_AT: Final = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
"""Offset and length of the address in a ``sockaddr`` of the system."""


def announced(addresses: Sequence[Multiaddr | str], peer_id: PeerId) -> tuple[Multiaddr, ...]:
    """Return addresses that a host announces, with its peer id; raise `AddressError` for one of no use to others."""
    found = []
    for given in addresses:
        address = Multiaddr.parse(given) if isinstance(given, str) else given
        if address.transport is None or not address.port:
            raise AddressError(
                f"{address} cannot be announced: others dial addresses like /ip4/192.0.2.7/tcp/60000 or "
                "/dns4/node.example.org/tcp/443/tls/ws"
            )
        if address.is_unspecified:
            raise AddressError(f"{address} cannot be announced: give the address at which others reach this machine")
        found.append(address.with_peer_id(peer_id))
    return tuple(found)


def reachable_addresses(listening: Sequence[Multiaddr]) -> tuple[Multiaddr, ...]:
    """Return addresses that others can use for those that a host listens at."""
    found: dict[Multiaddr, None] = {}
    for address in listening:
        if not address.is_unspecified:
            found[address] = None
            continue
        version = 4 if address.host_kind == "ip4" else 6
        for host in interface_addresses(version):
            found[Multiaddr(((f"ip{version}", host), *address.components[1:]))] = None
    return tuple(found)


def interface_addresses(version: int) -> tuple[str, ...]:
    """Return the addresses of the machine's interfaces for IP version 4 or 6, public ones first.

    Link-local addresses are skipped, and those of the loopback unless no other exists.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    known = dict.fromkeys([*_from_system(family), *_from_route(family)])
    usable = [host for host in map(ip_address, known) if not (host.is_link_local or host.is_unspecified)]
    outward: list[IPv4Address | IPv6Address] = [host for host in usable if not host.is_loopback]
    chosen = sorted(outward, key=lambda host: not host.is_global) or usable
    return tuple(map(str, chosen)) or (("127.0.0.1",) if version == 4 else ("::1",))


class _InterfaceAddress(ctypes.Structure):
    """The beginning of ``struct ifaddrs``, which is the same in Linux, macOS and the BSDs."""


_InterfaceAddress._fields_ = [
    ("next", ctypes.POINTER(_InterfaceAddress)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def _from_system(family: socket.AddressFamily) -> list[str]:
    """Return the result of getifaddrs(3); nothing if the system does not have it."""
    try:
        system = ctypes.CDLL(None, use_errno=True)
        ask, release = system.getifaddrs, system.freeifaddrs
    except (AttributeError, TypeError, OSError):
        return []  # Windows
    release.argtypes = [ctypes.c_void_p]
    first: Any = ctypes.POINTER(_InterfaceAddress)()
    if ask(ctypes.byref(first)):
        return []
    try:
        found, each = [], first
        while each:
            if (host := _host_at(each.contents.address, family)) is not None:
                found.append(host)
            each = each.contents.next
        return found
    finally:
        release(first)


def _host_at(place: int | None, family: socket.AddressFamily) -> str | None:
    if not place:
        return None  # an interface without an address
    head = ctypes.string_at(place, 2)
    # Linux begins with the family in two bytes, the BSDs and macOS with a length and the family in one each.
    if family not in {int.from_bytes(head, "little"), int.from_bytes(head, "big"), head[1]}:
        return None
    start, size = _AT[family]
    return socket.inet_ntop(family, ctypes.string_at(place + start, size))


def _from_route(family: socket.AddressFamily) -> list[str]:
    """Return the address from which the machine would send to others; nothing without a route to them."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect(_SOMEWHERE[family])
        return [str(asking.getsockname()[0])]
    return []
