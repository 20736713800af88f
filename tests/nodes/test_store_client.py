"""The client of nwaku's store endpoint, against a small server that answers as nwaku does."""

from __future__ import annotations

import base64
import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from fairway.errors import NodeUnavailableError, StoreQueryError, StoreRefusedError
from fairway.nodes.node import StoreQuery
from fairway.nodes.rest import RestStoreClient, http_client
from fairway.nodes.rest.store_messages import store_answer, store_request
from fairway.wire.waku_message import WakuMessage, message_hash
from patience import PATIENCE_S

SHARD = "/waku/2/rs/1/0"


def entry(number: int, *, topic: str = "/app/1/team/proto") -> dict:
    """A message as nwaku writes it."""
    message = WakuMessage(payload=b"%d" % number, content_topic=topic, timestamp_ns=1_000 + number)
    return {
        "messageHash": f"0x{message_hash(SHARD, message).hex()}",
        "message": {
            "payload": base64.b64encode(message.payload).decode(),
            "contentTopic": topic,
            "version": 0,
            "timestamp": message.timestamp_ns,
            "ephemeral": False,
        },
        "pubsubTopic": SHARD,
    }


class FakeStore:
    """What the endpoint does: select, order, cut a page, point to the next."""

    def __init__(self, entries: list[dict]) -> None:
        self.entries = sorted(entries, key=lambda item: (item["message"]["timestamp"], item["messageHash"]))
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.failures: list[tuple[int, dict, bytes]] = []
        self.drop_connections = 0

    def answer(self, path: str) -> bytes:
        parts = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append({"path": parts.path, **asked})
        found = self.entries
        if hashes := asked.get("hashes"):
            found = [item for item in found if item["messageHash"] in hashes.split(",")]
        if topics := asked.get("contentTopics"):
            found = [item for item in found if item["message"]["contentTopic"] in topics.split(",")]
        start, end = int(asked.get("startTime", 0)), int(asked.get("endTime", 0))
        found = [item for item in found if start <= 0 or item["message"]["timestamp"] >= start]
        found = [item for item in found if end <= 0 or item["message"]["timestamp"] <= end]
        ascending = asked.get("ascending") == "true"
        found = found if ascending else found[::-1]
        if cursor := asked.get("cursor"):
            found = found[[item["messageHash"] for item in found].index(cursor) + 1 :]
        size = min(int(asked.get("pageSize", 20)), 100)
        page = found[:size]
        body = {"requestId": "", "statusCode": 200, "statusDesc": "OK"}
        body["messages"] = page if ascending else page[::-1]
        if len(found) > size:
            body["paginationCursor"] = page[-1]["messageHash"]
        return json.dumps(body).encode()


@contextmanager
def serving(store: FakeStore):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            store.headers.append(dict(self.headers))
            if store.drop_connections:
                store.drop_connections -= 1
                self.close_connection = True
                return
            status, headers, body = store.failures.pop(0) if store.failures else (200, {}, store.answer(self.path))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=PATIENCE_S)


@pytest.fixture
def store():
    return FakeStore([entry(number) for number in range(250)])


def payloads(answers) -> list[int]:
    return [int(found.message.payload) for answer in answers for found in answer.entries]


def test_all_pages_come_once_and_in_order(store):
    with serving(store) as address, RestStoreClient(address) as client:
        answers = list(client.pages(StoreQuery(page_size=100)))
    assert [len(answer.entries) for answer in answers] == [100, 100, 50]
    assert payloads(answers) == list(range(250))
    assert {request["path"] for request in store.requests} == {"/store/v3/messages"}
    found = answers[0].entries[7]
    assert (found.pubsub_topic, found.message.content_topic, found.message.timestamp_ns, found.message.meta) == (
        SHARD,
        "/app/1/team/proto",
        1_007,
        None,
    )
    assert found.message_hash == message_hash(SHARD, found.message)


def test_newest_first_turns_the_pages_and_not_what_is_on_them(store):
    with serving(store) as address, RestStoreClient(address) as client:
        answer = client.page(StoreQuery(page_size=3, newest_first=True))
    assert payloads([answer]) == [247, 248, 249]


def test_what_was_not_asked_for_is_left_out(store):
    """Times that are not positive and long lists of topics are not understood by nodes."""
    store.entries += [entry(900, topic="/app/1/other/proto")]
    topics = ("/app/1/other/proto", *(f"/app/1/{number}/proto" for number in range(10)))
    with serving(store) as address, RestStoreClient(address) as client:
        assert payloads(client.pages(StoreQuery(start_ns=-5, end_ns=0))) == []
        assert payloads(client.pages(StoreQuery(content_topics=topics))) == [900]
        assert payloads(client.pages(StoreQuery(pubsub_topic="/waku/2/rs/1/1"))) == []
    assert all("contentTopics" not in request for request in store.requests)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again_with_growing_pauses(store, status):
    pauses = []
    store.failures = [(status, {}, b"later")] * 3
    with serving(store) as address, RestStoreClient(address, pause=pauses.append) as client:
        assert payloads(client.pages(StoreQuery())) == list(range(250))
    assert pauses == [1, 2, 4]
    # It may have been too much for the node to answer in time.
    assert store.requests[0]["pageSize"] == ("100" if status == 429 else "12")


def test_a_page_that_is_too_long_is_asked_for_with_fewer_messages(store, monkeypatch):
    monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 5_000)
    with serving(store) as address, RestStoreClient(address, pause=lambda _: None) as client:
        assert payloads(client.pages(StoreQuery())) == list(range(250))
        monkeypatch.setattr(http_client, "MAX_BODY_BYTES", 100)
        with pytest.raises(StoreRefusedError, match="more than 100 bytes, for one message"):
            client.page(StoreQuery())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"time range exceeds 24h"),
        (500, b"BAD_REQUEST: time range exceeds 24h"),
        (200, b'{"statusCode": 400, "statusDesc": "BAD_REQUEST: time range exceeds 24h", "messages": []}'),
        (200, b'{"statusCode": 300, "statusDesc": "archive error: query exceeds 24 hours", "messages": []}'),
    ],
)
def test_a_store_that_refuses_a_query_is_not_asked_again(store, status, body):
    store.failures = [(status, {}, body)]
    with (
        serving(store) as address,
        RestStoreClient(address) as client,
        pytest.raises(StoreRefusedError, match="exceeds 24"),
    ):
        client.page(StoreQuery())


def test_a_node_says_how_long_to_wait(store):
    pauses = []
    store.failures = [
        (429, {"Retry-After": "7"}, b""),
        (429, {"Retry-After": "86400"}, b""),
        (429, {"Retry-After": "?"}, b""),
    ]
    with serving(store) as address, RestStoreClient(address, pause=pauses.append) as client:
        client.page(StoreQuery())
    assert pauses == [7, 60, 60]


def test_a_connection_that_breaks_is_made_anew(store):
    store.drop_connections = 2
    pauses = []
    with serving(store) as address, RestStoreClient(address, pause=pauses.append) as client:
        assert payloads(client.pages(StoreQuery(page_size=100))) == list(range(250))
    assert pauses == [1, 2]


def test_what_will_not_pass_is_told_at_once(store):
    pauses = []
    store.failures = [(412, {}, b"No suitable service peer & no discovery method")]
    with (
        serving(store) as address,
        RestStoreClient(address, pause=pauses.append) as client,
        pytest.raises(StoreQueryError, match="answers 412: No suitable service peer"),
    ):
        client.page(StoreQuery())
    assert pauses == []


def test_patience_ends(store):
    store.failures = [(503, {}, b"busy")] * 9
    with (
        serving(store) as address,
        RestStoreClient(address, attempts=3, pause=lambda _: None) as client,
        pytest.raises(StoreQueryError, match="answers 503: busy"),
    ):
        client.page(StoreQuery())
    assert len(store.failures) == 6
    with RestStoreClient(address, attempts=2, pause=lambda _: None) as client, pytest.raises(NodeUnavailableError):
        client.page(StoreQuery())


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("has_new_cursors", [False, True])
def test_a_node_that_leads_in_a_circle_is_left(store, count, has_new_cursors):
    page = json.loads(store.answer("/store/v3/messages?pageSize=1&ascending=true"))
    page["messages"] = page["messages"][:count]

    def answer(_):
        if has_new_cursors:
            page["paginationCursor"] = f"0x{os.urandom(32).hex()}"
        return json.dumps(page).encode()

    store.answer = answer
    with (
        serving(store) as address,
        RestStoreClient(address) as client,
        pytest.raises(StoreQueryError, match="twice"),
    ):
        list(client.pages(StoreQuery()))


def test_address_credentials_and_peer_are_used_and_not_shown(store):
    with serving(store) as address:
        place = address.removeprefix("http://")
        peer = "/ip4/127.0.0.1/tcp/60000/p2p/16Uiu2"
        with RestStoreClient(f"http://alice:s%26cret@{place}/behind/proxy/?peerAddr={peer}") as client:
            client.page(StoreQuery())
        assert client.name == f"http://{place}/behind/proxy"
        assert "cret" not in repr(client)
    assert store.requests[0] == {
        "path": "/behind/proxy/store/v3/messages",
        "includeData": "true",
        "peerAddr": peer,
        "ascending": "true",
        "pageSize": "100",
    }
    assert base64.b64decode(store.headers[0]["Authorization"].removeprefix("Basic ")) == b"alice:s&cret"


def answer_with(*messages, **fields) -> bytes:
    return json.dumps({"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": messages, **fields}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"messageHash": "0x12"},
        {"messageHash": "zz" * 32},
        {"message": None},
        {"message": {**entry(1)["message"], "payload": "!"}},
        {"message": {**entry(1)["message"], "timestamp": 2**63}},
        {"message": {**entry(1)["message"], "timestamp": "soon"}},
        {"message": {**entry(1)["message"], "version": -1}},
        {"pubsubTopic": 5},
    ],
)
def test_an_entry_of_the_wrong_shape_costs_itself_and_is_handed_on(change):
    bad = {**entry(1), **change}
    answer = store_answer(answer_with(entry(0), bad, entry(2)), StoreQuery())
    assert payloads([answer]) == [0, 2]
    assert [json.loads(raw) for raw in answer.undecodable] == [bad]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "not the answer of a store"),
        (b"[]", "not the answer of a store"),
        (b"\xff", "not the answer of a store"),
        (answer_with(statusCode=503, statusDesc="SERVICE_UNAVAILABLE"), "503: SERVICE_UNAVAILABLE"),
        (answer_with(paginationCursor="0x00"), "no message hash"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_one_error(body, why):
    with pytest.raises(StoreQueryError, match=why):
        store_answer(body, StoreQuery())


def test_base64_without_padding_and_unknown_fields_are_read():
    odd = entry(1)
    odd["message"] |= {"payload": "YQ", "meta": "bQ==", "proof": "cA==", "new": 1}
    (found,) = store_answer(answer_with(odd), StoreQuery()).entries
    assert (found.message.payload, found.message.meta, found.message.rate_limit_proof) == (b"a", b"m", b"p")


def test_a_topic_with_a_comma_cannot_be_asked_for():
    assert "contentTopics" not in store_request(StoreQuery(content_topics=("a,b",)))
    assert "contentTopics=%2Fa%2Cb" in store_request(StoreQuery(content_topics=("/a", "b")))
