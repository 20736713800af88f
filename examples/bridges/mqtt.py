r"""A bridge between topics of an MQTT broker and a channel, both ways.

Each message of one side appears on the other. A message in the channel is its MQTT topic, a line feed, and the content.
The bridge may be killed at any moment and started again. The channel gets each message of MQTT once: the broker repeats
a message until the channel has it on disk, and the bridge recognizes the repetition. MQTT gets each message of the
channel at least once, with its message id as the user property ``id``.

Run it: pip install paho-mqtt
        python examples/bridges/mqtt.py --broker 127.0.0.1:1883 --topics 'sensors/#' \
            --node "$FAIRWAY_NODE" --folder bridge
"""

from __future__ import annotations

import argparse
import sqlite3
from pathlib import Path
from queue import SimpleQueue
from uuid import uuid4

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from fairway import MessageTooLargeError, blocking

_WEEK_S = 604_800
"""The broker keeps messages that long while the bridge is away."""
_REPEATABLE = 1_000
"""More messages than a broker has unacknowledged at a time; later it uses their packet ids again."""


class Requests:
    """The request id of each message of the broker, over restarts, so that a repeated message is the same send."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, packet INTEGER, id TEXT)")

    def id_of(self, message: MQTTMessage) -> str:
        """Return the request id of a message; a new one, on disk, unless the broker repeats the message."""
        if message.dup:
            find = "SELECT id FROM request WHERE packet = ? ORDER BY number DESC LIMIT 1"
            for (known,) in self._file.execute(find, (message.mid,)):
                return str(known)
        new = uuid4().hex
        added = self._file.execute("INSERT INTO request (packet, id) VALUES (?, ?)", (message.mid, new))
        self._file.execute("DELETE FROM request WHERE number <= ?", ((added.lastrowid or 0) - _REPEATABLE,))
        return new


def main() -> None:
    """Run until Ctrl+C."""
    parser = argparse.ArgumentParser(description="Bridge topics of an MQTT broker and a channel.")
    parser.add_argument("--broker", default="127.0.0.1:1883", help="host and port of the broker")
    parser.add_argument("--topics", default="#", help="MQTT topics that go to the channel")
    parser.add_argument("--node", required=True, help="address of a Waku node")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the state")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    requests = Requests(options.folder / "requests.db")
    client = Client(CallbackAPIVersion.VERSION2, client_id="fairway-bridge", protocol=MQTTv5, manual_ack=True)
    with (
        blocking.connect(options.node) as node,
        blocking.create_reliable_channel(
            node, "bridge", "mqtt", "/example/1/bridge/proto", store=options.folder / "channel.db"
        ) as channel,
    ):

        def subscribe(*_: object) -> None:
            client.subscribe(options.topics, options=SubscribeOptions(qos=1, noLocal=True))

        def to_channel(_client: Client, _data: object, message: MQTTMessage) -> None:
            try:
                channel.send(message.topic.encode() + b"\n" + message.payload, request_id=requests.id_of(message))
            except MessageTooLargeError as error:
                print(f"a message of {message.topic} stays here: {error}")
            client.ack(message.mid, message.qos)

        acknowledged: SimpleQueue[int] = SimpleQueue()
        client.on_connect, client.on_message = subscribe, to_channel
        client.on_publish = lambda _client, _data, packet, *_: acknowledged.put(packet)
        host, port = options.broker.rsplit(":", 1)
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = _WEEK_S
        client.connect_async(host, int(port), clean_start=False, properties=session)
        client.loop_start()
        for received in channel:
            topic, _, content = received.payload.partition(b"\n")
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = ("id", received.sds_ids[0])
            packet = client.publish(topic.decode(), content, qos=1, properties=properties).mid
            # While the broker is away the client keeps the message, and publishes it when the broker is back.
            while acknowledged.get() != packet:
                pass


main()
