import json
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.libp2p.errors import AddressError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "multiaddr.json").read_text())
PEER = PeerId.parse("12D3KooWCryG7Mon9orvQxcS1rYZjotPgpwoJNHHKcLLfE4Hf5mV")
OTHER = PeerId.parse("QmcgpsyWgH8Y8ajJz1Cu72KnS5uo2Aa2LpzU7kinSupNKC")

hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda ip: f"/ip4/{ip}"),
    st.ip_addresses(v=6).filter(lambda ip: ip.scope_id is None).map(lambda ip: f"/ip6/{ip}"),
    st.sampled_from(["dns", "dns4", "dns6"]).map(lambda name: f"/{name}/node-01.example.org"),
)
tails = st.sampled_from(["", "/ws", "/wss", "/tls/ws", "/tls/sni/x.example/ws", "/p2p-circuit", "/ws/p2p-circuit"])
ends = st.sampled_from(["", f"/p2p/{PEER}", f"/p2p/{OTHER}"])
texts = st.builds("{}/tcp/{}{}{}".format, hosts, st.integers(0, 65535), tails, ends)


def canonical(text):
    """Return the text as it is written back: no closing slash, "p2p" for "ipfs", ids in base58btc."""
    words = text.rstrip("/").replace("/ipfs/", "/p2p/").split("/")
    return "/".join(
        str(PeerId.parse(w)) if before == "p2p" else w for before, w in zip(["", *words], words, strict=False)
    )


@pytest.mark.parametrize("text", VECTORS["readable"])
def test_an_address_of_the_vectors_is_read_and_has_a_binary_form(text):
    address = Multiaddr.parse(text)
    assert str(address) == canonical(text)
    assert address.to_bytes()


@pytest.mark.parametrize("vector", VECTORS["binary"], ids=lambda vector: vector["text"])
def test_the_binary_form_is_that_of_the_vectors(vector):
    assert Multiaddr.parse(vector["text"]).to_bytes().hex() == vector["hex"]


@pytest.mark.parametrize("text", VECTORS["wrong"])
def test_a_wrong_address_is_refused(text):
    with pytest.raises(AddressError):
        Multiaddr.parse(text)


@given(texts)
def test_every_address_is_written_as_it_was_read(text):
    address = Multiaddr.parse(text)
    assert str(address) == text
    assert hash(address) == hash(Multiaddr.parse(text))


@pytest.mark.parametrize("text", ["/ip6/fe80::1%eth0/tcp/1", "/ip6zone/eth0/ip6/fe80::1/tcp/1"])
def test_an_ip6_zone_is_refused_with_the_reason(text):
    with pytest.raises(AddressError, match="one machine"):
        Multiaddr.parse(text)


@pytest.mark.parametrize(
    "text",
    ["/dns4//tcp/1", "/dns4/a b/tcp/1", "/dns4/a\nb/tcp/1", "/dns4/" + "a" * 254 + "/tcp/1", "/dns4/österreich/tcp/1",
     "/dns4/\ud800/tcp/1", "/ip4/1.2.3.4/tcp/+1", "/ip4/1.2.3.4/tcp/١", "ip4/1.2.3.4", "/ip4/1.2.3.4//tcp/1",
     "/ip4/1.2.3.4/tcp/1" * 100],
)  # fmt: skip
def test_other_malformed_texts_are_refused(text):
    with pytest.raises(AddressError):
        Multiaddr.parse(text)


@pytest.mark.parametrize(
    ("text", "host_kind", "host", "port", "transport", "server_name"),
    [
        ("/ip4/127.0.0.1/tcp/60000", "ip4", "127.0.0.1", 60000, "tcp", None),
        ("/ip6/::1/tcp/0/ws", "ip6", "::1", 0, "ws", None),
        ("/dns4/node.example/tcp/443/wss", "dns4", "node.example", 443, "wss", "node.example"),
        ("/dns/node.example/tcp/443/tls/ws", "dns", "node.example", 443, "wss", "node.example"),
        ("/dns6/a.example/tcp/443/tls/sni/b.example/ws", "dns6", "a.example", 443, "wss", "b.example"),
        ("/ip4/1.2.3.4/tcp/443/sni/b.example/tls/ws", "ip4", "1.2.3.4", 443, "wss", "b.example"),
        ("/dnsaddr/boot.example", "dnsaddr", "boot.example", None, None, None),
        ("/ip4/1.2.3.4/udp/4001/quic-v1", "ip4", "1.2.3.4", 4001, None, None),
        ("/ip4/1.2.3.4/tcp/1/tls", "ip4", "1.2.3.4", 1, None, None),
        ("/ip4/1.2.3.4", "ip4", "1.2.3.4", None, None, None),
        (f"/p2p/{OTHER}", None, None, None, None, None),
        (f"/ip4/1.2.3.4/tcp/1/p2p/{OTHER}/p2p-circuit", "ip4", "1.2.3.4", 1, None, None),
    ],
)
def test_an_address_says_how_it_is_dialled(text, host_kind, host, port, transport, server_name):
    address = Multiaddr.parse(text)
    found = (address.host_kind, address.host, address.port, address.transport, address.server_name)
    assert found == (host_kind, host, port, transport, server_name)
    if transport is not None:
        named = address.with_peer_id(PEER)
        assert (named.host, named.port, named.transport, named.server_name) == (host, port, transport, server_name)


def test_a_peer_id_is_added_once_and_never_replaced():
    plain = Multiaddr.parse("/ip4/127.0.0.1/tcp/60000")
    named = plain.with_peer_id(PEER)
    assert plain.peer_id is None
    assert (str(named), named.peer_id) == (f"/ip4/127.0.0.1/tcp/60000/p2p/{PEER}", PEER)
    assert named.with_peer_id(PEER) == named
    assert named.without_peer_id() == plain == plain.without_peer_id()
    with pytest.raises(AddressError, match="another peer"):
        named.with_peer_id(OTHER)


def test_an_address_is_made_of_host_and_port():
    assert str(Multiaddr.of("127.0.0.1", 1)) == "/ip4/127.0.0.1/tcp/1"
    assert str(Multiaddr.of("::1", 2, transport="ws")) == "/ip6/::1/tcp/2/ws"
    assert str(Multiaddr.of("n.example", 3, transport="wss", peer_id=PEER)) == f"/dns/n.example/tcp/3/tls/ws/p2p/{PEER}"
    with pytest.raises(AddressError, match="transport"):
        Multiaddr.of("127.0.0.1", 1, transport="quic")
    with pytest.raises(AddressError):
        Multiaddr.of("a/b", 1)


@given(st.ip_addresses(v=4), st.ip_addresses(v=6).filter(lambda ip: ip.scope_id is None))
def test_ip_addresses_are_written_as_their_bytes(four: IPv4Address, six: IPv6Address):
    assert Multiaddr.parse(f"/ip4/{four}").to_bytes() == b"\x04" + four.packed
    assert Multiaddr.parse(f"/ip6/{six.exploded}").to_bytes() == b"\x29" + six.packed


@given(texts)
def test_the_binary_form_survives(text):
    address = Multiaddr.parse(text)
    assert Multiaddr.from_bytes(address.to_bytes()) == address


@given(st.binary(max_size=60))
def test_any_bytes_are_an_address_or_refused(data):
    try:
        address = Multiaddr.from_bytes(data)
    except AddressError:
        return
    assert Multiaddr.from_bytes(address.to_bytes()) == address


@pytest.mark.parametrize(
    "data",
    ["", "04", "047f0000", "ff7f", "36056578616d", "a50301ff", "35022f2f", "80", "3600"],
    ids=lambda data: data or "none",
)
def test_wrong_bytes_are_refused(data):
    with pytest.raises(AddressError):
        Multiaddr.from_bytes(bytes.fromhex(data))
