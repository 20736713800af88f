"""Lists of nodes, and a DNS server on loopback that has them."""

from __future__ import annotations

import asyncio
from base64 import b32encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.nodes.discovery.node_list import hash_of
from fairway.wire.hashing import keccak256


def list_key(number: int = 1) -> IdentityKey:
    """Return a key that signs lists."""
    return IdentityKey.from_secret(number.to_bytes(32), KeyType.SECP256K1)


def url_of(key: IdentityKey, domain: str) -> str:
    return f"enrtree://{b32encode(key.public_key.data).decode().rstrip('=')}@{domain}"


def name_of(text: str) -> str:
    return hash_of(text)


def root_text(key: IdentityKey, records: str, links: str, sequence: int = 1) -> str:
    signed = f"enrtree-root:v1 e={records} l={links} seq={sequence}"
    signature = key.sign_digest(keccak256(signed.encode())) + b"\0"
    return f"{signed} sig={urlsafe_b64encode(signature).decode().rstrip('=')}"


def make_list(
    domain: str, key: IdentityKey, records: Sequence[str] = (), links: Sequence[str] = (), sequence: int = 1
) -> dict[str, str]:
    """Return the texts of a list by name, with at most three entries in a branch."""
    texts: dict[str, str] = {}

    def tree(leaves: Sequence[str]) -> str:
        names = [add(leaf) for leaf in leaves]
        while len(names) > 3:
            names = [add("enrtree-branch:" + ",".join(names[at : at + 3])) for at in range(0, len(names), 3)]
        return add("enrtree-branch:" + ",".join(names))

    def add(text: str) -> str:
        texts[f"{name_of(text)}.{domain}"] = text
        return name_of(text)

    texts[domain] = root_text(key, tree(records), tree(links), sequence)
    return texts


@dataclass
class DnsServer:
    """A name server; ``invent`` answers for names that are not in ``texts``."""

    texts: Mapping[str, str]
    invent: Callable[[str], str | None] = lambda _: None
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, wire: bytes, *, most: int = 65_535) -> bytes:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        self.asked.append(name)
        reply = dns.message.make_response(query)
        texts = {known.lower(): text for known, text in self.texts.items()}
        text = texts.get(name.lower()) or self.invent(name)
        if text is None or question.rdtype != dns.rdatatype.TXT:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        else:
            parts = " ".join(f'"{text[at : at + 255]}"' for at in range(0, len(text), 255))
            reply.answer.append(dns.rrset.from_text(question.name, 60, "IN", "TXT", parts))
        encoded = reply.to_wire(max_size=65_535)
        if len(encoded) <= most:
            return encoded
        short = dns.message.make_response(query)
        short.flags |= dns.flags.TC
        return short.to_wire()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(self._server.answer(data, most=512), addr)


@asynccontextmanager
async def dns_server(
    texts: Mapping[str, str], invent: Callable[[str], str | None] = lambda _: None
) -> AsyncIterator[DnsServer]:
    """Serve texts over UDP and, on the same port, over TCP for those that do not fit into 512 bytes."""
    server = DnsServer(texts, invent)

    async def over_tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(2))
            reply = server.answer(await reader.readexactly(size))
            writer.write(len(reply).to_bytes(2) + reply)
            await writer.drain()
        finally:
            writer.close()

    stream = await asyncio.start_server(over_tcp, "127.0.0.1", 0)
    port = stream.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(server), local_addr=("127.0.0.1", port))
    server.address = f"127.0.0.1:{port}"
    try:
        yield server
    finally:
        datagrams.close()
        stream.close()
        await stream.wait_closed()
