"""A store node with some messages, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fairway.wire.waku_message import WakuMessage, message_hash
from patience import PATIENCE_S


@contextmanager
def store_node(messages: list[WakuMessage], shard: str) -> Iterator[str]:
    """Yield the address of a node that answers store queries as nwaku does, in pages of seven."""
    entries: list[Any] = sorted(
        (
            {
                "messageHash": f"0x{message_hash(shard, message).hex()}",
                "message": {
                    "payload": base64.b64encode(message.payload).decode(),
                    "contentTopic": message.content_topic,
                    "timestamp": message.timestamp_ns,
                },
                "pubsubTopic": shard,
            }
            for message in messages
        ),
        key=lambda item: (item["message"]["timestamp"], item["messageHash"]),
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            times = int(asked.get("startTime", 0)), int(asked.get("endTime", 2**63))
            found = [item for item in entries if times[0] <= item["message"]["timestamp"] <= times[1]]
            topics = asked.get("contentTopics", "").split(",")
            found = [item for item in found if topics == [""] or item["message"]["contentTopic"] in topics]
            if asked["ascending"] == "false":
                found = found[::-1]
            if "cursor" in asked:
                found = found[[item["messageHash"] for item in found].index(asked["cursor"]) + 1 :]
            body = {"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": found[:7]}
            if len(found) > 7:
                body["paginationCursor"] = found[6]["messageHash"]
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
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
