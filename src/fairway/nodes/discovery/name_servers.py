"""`NameServers`: reads the texts of a name from the DNS, with dnspython.

Without addresses it queries the name servers of the machine. A missing name, a silent server and a text that is not
ASCII all raise `NameServerError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdatatype
import dns.rdtypes.ANY.TXT
import dns.resolver

from fairway.errors import ConfigurationError
from fairway.nodes.discovery.node_list import NameServerError

LOOKUP_TIMEOUT_S: Final = 5.0
"""Longest time for one look-up, with all repetitions."""
_PORT: Final = 53


class NameServers:
    """The name servers that are queried."""

    def __init__(self, addresses: Sequence[str] = (), *, timeout_s: float = LOOKUP_TIMEOUT_S) -> None:
        """``addresses`` are like "192.0.2.1", "192.0.2.1:5353" or "[2001:db8::1]:53".

        Raises `ConfigurationError` for anything else, and `NameServerError` if the machine has no name servers.
        """
        self._timeout_s: Final = timeout_s
        servers = [_server(address) for address in addresses]
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not servers)
        except dns.resolver.NoResolverConfiguration as error:
            raise NameServerError("this machine has no name servers; give some") from error
        if servers:
            self._resolver.nameservers = servers

    async def texts(self, name: str) -> tuple[str, ...]:
        """Return the TXT records of a name, each in one piece; raise `NameServerError` if there are none."""
        try:
            answer = await self._resolver.resolve(
                name, dns.rdatatype.TXT, search=False, lifetime=self._timeout_s, raise_on_no_answer=True
            )
            records = [record for record in answer if isinstance(record, dns.rdtypes.ANY.TXT.TXT)]
            return tuple(b"".join(record.strings).decode("ascii") for record in records)
        except (dns.exception.DNSException, UnicodeError, OSError) as error:
            raise NameServerError(f"no text at {name}: {error}") from error


def _server(address: str) -> dns.nameserver.Do53Nameserver:
    host, _, port = address.rpartition(":")
    if address.endswith("]") or (address.count(":") != 1 and not address.startswith("[")):
        host, port = address, str(_PORT)
    try:
        ip = str(ip_address(host.removeprefix("[").removesuffix("]")))
        number = int(port)
    except ValueError:
        number, ip = 0, ""
    if not 0 < number <= 0xFFFF:
        raise ConfigurationError(f"{address!r} is no name server; give an IP address, or one with a port: 192.0.2.1:53")
    return dns.nameserver.Do53Nameserver(ip, number)
