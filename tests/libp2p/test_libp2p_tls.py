"""WebSocket over TLS: who is trusted, what is renewed, and what mistakes come to."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil

import pytest

from certificates import DAY, Authority
from fairway.errors import ConfigurationError, NodeUnavailableError
from fairway.libp2p.errors import AddressError, DialError
from fairway.libp2p.host import Host
from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.nodes.connecting import connect
from patience import PATIENCE_S, until

WSS = "/ip4/127.0.0.1/tcp/0/tls/ws"
WS = "/ip4/127.0.0.1/tcp/0/ws"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue()


def host(issued, listen=WSS, **changes):
    return Host.start(listen=[listen], certificate=ServerCertificate(issued.certificate, issued.key), **changes)


async def echo(stream):
    while (message := await stream.read_frame(1 << 22)) is not None:
        await stream.write_frame(message)


def at(server, start="/dns4/localhost", end="/tls/ws"):
    return f"{start}/tcp/{server.listening[0].port}{end}/p2p/{server.peer_id}"


@pytest.mark.parametrize("muxer", ["/yamux/1.0.0", "/mplex/6.7.0"])
def test_a_client_that_trusts_the_authority_talks_over_tls(run, authority, issued, muxer):
    async def scenario():
        trust = {"tls_ca_file": authority.file, "muxers": [muxer]}
        async with await host(issued) as server, await Host.start(**trust) as client:
            server.handle("/echo/1", echo)
            assert str(server.addresses[0]).startswith("/ip4/127.0.0.1/tcp/")
            assert "/tls/ws/p2p/" in str(server.addresses[0])
            await client.connect(server.addresses[0])
            async with await client.open_stream(server.peer_id, ["/echo/1"]) as stream:
                for size in (0, 1, 16_384, 16_385, 300_000, 2_000_000):
                    message = os.urandom(size)
                    await stream.write_frame(message)
                    assert await stream.read_frame(1 << 22) == message

    run(scenario())


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("/dns4/localhost", "/tls/ws"),
        ("/dns4/localhost", "/wss"),
        ("/ip4/127.0.0.1", "/wss"),
        ("/ip4/127.0.0.1", "/tls/sni/localhost/ws"),
    ],
)
def test_each_way_to_write_such_an_address_is_dialled(run, authority, issued, start, end):
    async def scenario():
        async with await host(issued) as server, await Host.start(tls_ca_file=authority.file) as client:
            assert (await client.connect(at(server, start, end))).peer_id == server.peer_id

    run(scenario())


def test_a_client_trusts_the_authorities_of_its_system(run, authority, issued, monkeypatch):
    async def scenario():
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        async with await host(issued) as server, await Host.start() as client:
            assert (await client.connect(at(server))).peer_id == server.peer_id

    run(scenario())


async def refused(server, address, words, **changes):
    """A client is refused with words, and the server counts it and serves on."""
    before = server.statistics().failed_handshakes
    async with await Host.start(**changes) as client:
        with pytest.raises(DialError, match=words):
            await client.connect(address)
    await until(lambda: server.statistics().failed_handshakes > before)
    assert server.statistics().connections == 0


def test_a_client_that_does_not_know_the_authority_leaves(run, issued):
    async def scenario():
        async with await host(issued) as server:
            await refused(server, at(server), "its certificate is not trusted: .*; name its authority with tls_ca_file")

    run(scenario())


def test_a_light_client_does_not_wait_for_a_node_whose_certificate_is_not_trusted(run, authority, issued):
    async def scenario():
        async with await host(issued) as server:
            with pytest.raises(NodeUnavailableError, match="name its authority with tls_ca_file"):
                await connect(str(at(server)), connect_timeout_s=100 * PATIENCE_S)
            # It may still wait for another node, and the name of an authority does not help against a wrong name.
            other = authority.issue("other", hosts=("other.example.org",))
            async with await host(other) as elsewhere:
                with pytest.raises(NodeUnavailableError, match=r"Hostname mismatch[^;]*$"):
                    await connect(str(at(elsewhere)), connect_timeout_s=100 * PATIENCE_S, tls_ca_file=authority.file)
            with pytest.raises(NodeUnavailableError, match=r"no service node to work with after 0\.5 s .*refused"):
                await connect(f"{at(server)},/ip4/127.0.0.1/tcp/1", connect_timeout_s=0.5)

    run(scenario())


def test_a_certificate_of_another_name_is_not_trusted(run, authority):
    async def scenario():
        other = authority.issue("other", hosts=("other.example.org",))
        async with await host(other) as server:
            await refused(server, at(server), "Hostname mismatch", tls_ca_file=authority.file)

    run(scenario())


def test_a_plain_client_at_the_port_with_tls_is_refused_and_counted(run, authority, issued):
    async def scenario():
        async with await host(issued) as server:
            await refused(server, at(server, end="/ws"), "no WebSocket handshake")
            await refused(server, at(server, end=""), "cannot connect")
            async with await Host.start(tls_ca_file=authority.file) as client:
                assert (await client.connect(at(server))).peer_id == server.peer_id

    run(scenario())


def test_a_client_with_tls_at_a_plain_port_is_refused_and_counted(run, authority):
    async def scenario():
        async with await Host.start(listen=[WS]) as server:
            await refused(server, at(server), "does the other side use TLS there", tls_ca_file=authority.file)

    run(scenario())


def test_handshakes_that_never_begin_are_bounded_as_others_are(run, authority, issued, monkeypatch):
    """TLS comes after the host has counted a connection, so that silent ones cannot block it."""
    monkeypatch.setattr("fairway.libp2p.limits.MAX_PENDING_HANDSHAKES_PER_IP", 4)

    async def scenario():
        async with await host(issued) as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.listening[0].port) for _ in range(20)]
            await until(lambda: server.statistics().refused_connections >= 16)
            assert server.statistics().pending_handshakes <= 4
            async with await Host.start(tls_ca_file=authority.file) as client:
                assert (await client.connect(at(server))).peer_id == server.peer_id
            for _, writer in silent:
                writer.close()

    run(scenario())


def changed(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a, one: (one.certificate, a.issue("second").key), "does not fit the certificate"),
        (lambda a, one: (one.certificate, one.key.with_name("none.key")), r"none\.key cannot be read: No such file"),
        (lambda a, one: (one.certificate.with_name("none.pem"), one.key), r"none\.pem cannot be read: No such file"),
        (lambda a, one: (one.key, one.key), "holds no certificate in PEM form"),
        (lambda a, one: (one.certificate, one.certificate), "holds no private key in PEM form"),
        (lambda a, one: (one.certificate, changed(one.key, b"")), "holds no private key in PEM form"),
        (lambda a, _: _pair(a.issue("old", begins=-2 * DAY, ends=-DAY)), "has expired on .*: renew it"),
        (lambda a, _: _pair(a.issue("early", begins=DAY, ends=2 * DAY)), "is the clock of this machine right"),
        (lambda a, _: _pair(a.issue("sealed", password=b"secret")), "is encrypted: give a key without a password"),
    ],
    ids=["other-key", "no-key", "no-certificate", "key-twice", "certificate-twice", "empty", "old", "early", "sealed"],
)
def test_a_certificate_is_refused_that_cannot_work(tmp_path, spoil, words):
    own = Authority(tmp_path)
    certificate, key = spoil(own, own.issue())
    with pytest.raises(ConfigurationError, match=words) as caught:
        ServerCertificate(certificate, key)
    assert "BEGIN" not in str(caught.value)


def _pair(issued):
    return issued.certificate, issued.key


def test_an_address_with_tls_needs_a_certificate(run):
    async def scenario():
        with pytest.raises(AddressError, match="without a certificate"):
            await Host.start(listen=[WSS])

    run(scenario())


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_that_names_no_authority_is_refused(run, tmp_path, content):
    async def scenario():
        file = tmp_path / "authority.pem"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="names no certificate authority"):
            await Host.start(tls_ca_file=file)

    run(scenario())


def test_a_renewed_certificate_is_used_for_new_connections(run, authority, tmp_path, caplog):
    async def scenario():
        first, second = authority.issue("first", hosts=("first.example.org",)), authority.issue("renewed")
        pair = tmp_path / "chain.pem", tmp_path / "key.pem"
        for source, target in zip(_pair(first), pair, strict=True):
            shutil.copy(source, target)
        certificate = ServerCertificate(*pair)
        async with await Host.start(listen=[WSS], certificate=certificate) as server:
            await refused(server, at(server), "Hostname mismatch", tls_ca_file=authority.file)
            shutil.copy(second.certificate, pair[0])
            with caplog.at_level(logging.WARNING, "fairway.libp2p"):
                certificate.refresh()  # between the two files
            assert "does not fit" in caplog.text
            await refused(server, at(server), "Hostname mismatch", tls_ca_file=authority.file)
            shutil.copy(second.key, pair[1])
            certificate.refresh()
            async with await Host.start(tls_ca_file=authority.file) as client:
                assert (await client.connect(at(server))).peer_id == server.peer_id

    run(scenario())
