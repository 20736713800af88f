"""A store node that answers queries over nwaku's REST API, over HTTP on loopback, from a list of messages."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fairway.storage.archive import ArchivedMessage
from fairway.wire.waku_message import WakuMessage, message_hash
from patience import PATIENCE_S


def archived(message: WakuMessage, shard: str) -> ArchivedMessage:
    """Return a message of a shard as an archive has it."""
    return ArchivedMessage(
        message_hash=message_hash(shard, message),
        pubsub_topic=shard,
        content_topic=message.content_topic,
        payload=message.payload,
        version=0,
        timestamp_ns=message.timestamp_ns or 0,
        meta=message.meta,
    )


@dataclass
class RestStore:
    """The node; more messages can be added while it runs."""

    uri: str
    entries: list[dict[str, Any]]

    def add(self, messages: Iterable[ArchivedMessage]) -> None:
        """Add messages to the store."""
        known = {entry["messageHash"] for entry in self.entries}
        for kept in messages:
            entry = entry_of(kept)
            if entry["messageHash"] not in known:
                known.add(entry["messageHash"])
                self.entries.append(entry)
        self.entries.sort(key=lambda entry: (entry["message"]["timestamp"], entry["messageHash"]))


def entry_of(kept: ArchivedMessage) -> dict[str, Any]:
    """Return a message as answers have it."""
    message: dict[str, Any] = {
        "payload": base64.b64encode(kept.payload).decode(),
        "contentTopic": kept.content_topic,
        "timestamp": kept.timestamp_ns,
    }
    if kept.meta:
        message["meta"] = base64.b64encode(kept.meta).decode()
    return {"messageHash": f"0x{kept.message_hash.hex()}", "message": message, "pubsubTopic": kept.pubsub_topic}


@contextmanager
def rest_store(messages: Iterable[ArchivedMessage] = (), *, page: int = 7) -> Iterator[RestStore]:
    """Start a node that returns pages of ``page`` messages, and stop it."""
    entries: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            times = int(asked.get("startTime", 0)), int(asked.get("endTime", 2**63))
            found = [entry for entry in entries if times[0] <= entry["message"]["timestamp"] <= times[1]]
            topics = asked.get("contentTopics", "").split(",")
            found = [entry for entry in found if topics == [""] or entry["message"]["contentTopic"] in topics]
            found = found[:: -1 if asked["ascending"] == "false" else 1]
            if "cursor" in asked:
                found = found[[entry["messageHash"] for entry in found].index(asked["cursor"]) + 1 :]
            body = {"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": found[:page]}
            if len(found) > page:
                body["paginationCursor"] = found[page - 1]["messageHash"]
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    store = RestStore(f"http://127.0.0.1:{server.server_port}", entries)
    store.add(messages)
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=PATIENCE_S)
