"""The REST API over TLS: clients that trust its certificate, others, renewal, and commands with --ca."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time

import pytest
from cryptography import x509
from typer.testing import CliRunner

from certificates import Authority
from fairway.cli import app
from fairway.errors import ConfigurationError, NodeUnavailableError
from fairway.nodes.connecting import connect
from fairway.nodes.node import RoutedMessage
from fairway.service.rest import RestOptions, RestServer
from fairway.wire.waku_message import WakuMessage
from nodes_in_threads import NodeInThread
from patience import PATIENCE_S


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def options(authority):
    issued = authority.issue()
    return RestOptions(tls_cert=issued.certificate, tls_key=issued.key)


def certificate_at(server, authority):
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
    ):
        return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True)).serial_number


async def test_a_client_that_trusts_the_authority_sends_and_receives_and_no_other_one_does(rest, authority, options):
    async with rest.serving(options) as (node, server):
        assert server.url == f"https://127.0.0.1:{server.port}"
        async with await connect(server.url, tls_ca_file=authority.file) as client:
            heard = await client.subscribe(rest.shard, [rest.topic])
            message = WakuMessage(payload=b"hello", content_topic=rest.topic, timestamp_ns=time.time_ns())
            assert (await node.send(RoutedMessage.of(rest.shard, message))).accepted
            assert (await anext(aiter(heard))).message.payload == b"hello"
            answer = WakuMessage(payload=b"hi", content_topic=rest.topic, timestamp_ns=time.time_ns())
            assert (await client.send(RoutedMessage.of(rest.shard, answer))).accepted
        with pytest.raises(NodeUnavailableError, match=r"certificate is not trusted: .* tls_ca_file"):
            await connect(server.url, connect_timeout_s=100 * PATIENCE_S)
        with pytest.raises(NodeUnavailableError, match="answer"):
            await connect(server.url.replace("https", "http"), connect_timeout_s=2.0)


def test_pages_of_the_servers_own_name_may_use_the_api_over_tls_alone(rest, authority, options):
    def status_of(server, origin, context):
        raw = socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)
        with context.wrap_socket(raw, server_hostname="localhost") if context else raw as connection:
            head = f"GET /health HTTP/1.1\r\nHost: node.example.org\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            return int(connection.recv(100).split()[1])

    trusting = ssl.create_default_context(cafile=str(authority.file))
    with NodeInThread(options) as serving:
        assert status_of(serving.server, "https://node.example.org", trusting) == 200
        assert status_of(serving.server, "http://node.example.org", trusting) == 403
        assert status_of(serving.server, "https://other.example.org", trusting) == 403
    with NodeInThread(RestOptions()) as serving:
        assert status_of(serving.server, "https://node.example.org", None) == 403


def test_a_renewed_certificate_is_used_by_the_next_connection(authority, options):
    with NodeInThread(options) as serving:
        first = certificate_at(serving.server, authority)
        renewed = authority.issue("renewed")
        shutil.move(renewed.certificate, options.tls_cert)
        shutil.move(renewed.key, options.tls_key)
        serving.server.context.certificate.refresh()
        second = certificate_at(serving.server, authority)
        assert second != first
        options.tls_key.write_bytes(b"no key")
        serving.server.context.certificate.refresh()
        assert certificate_at(serving.server, authority) == second


async def test_an_invalid_certificate_raises_an_error_before_the_server_listens(rest, tmp_path, options):
    with pytest.raises(ConfigurationError, match="go together"):
        RestOptions(tls_cert=options.tls_cert)
    async with rest.serving() as (node, _):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            await RestServer.start(node, RestOptions(tls_cert=tmp_path / "none.pem", tls_key=options.tls_key))


@pytest.mark.full
def test_commands_reach_a_node_with_a_certificate_of_ones_own_authority(authority, options):
    def command(*words, ca):
        environment = {"FAIRWAY_NODE": serving.server.url, "FAIRWAY_CHANNEL": "team", "FAIRWAY_CA": None}
        return CliRunner().invoke(app, [*words, *(["--ca", str(ca)] if ca else [])], env=environment)

    with NodeInThread(options, cluster_id=1, shards=tuple(range(8)), shard_count=8) as serving:
        sent = command("send", "--sender", "alice", "--wait", "sent", "hello", ca=authority.file)
        assert sent.exit_code == 0, sent.output
        words = ["tail", "--sender", "bob", "--count", "1", "--linger", "0", "--json"]
        heard = command(*words, ca=authority.file)
        assert json.loads(heard.stdout.splitlines()[0])["sender_id"] == "alice", heard.output
        refused = command("send", "--sender", "carol", "--wait", "sent", "hello", ca=None)
        assert isinstance(refused.exception, NodeUnavailableError)
        assert "certificate" in str(refused.exception)
        wrong = command("send", "--sender", "carol", "hello", ca=options.tls_key)
        assert isinstance(wrong.exception, ConfigurationError)
        assert "names no certificate authority" in str(wrong.exception)
