"""The bridges of examples/bridges between a channel and a broker, killed in the middle."""

import asyncio
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import nats
import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fairway import blocking
from patience import PATIENCE_S
from programs import fairway_node, running

EXAMPLES = Path(__file__).parents[2] / "examples" / "bridges"
_READINGS = 60
_OUTAGE_S = 6
"""The client of JetStream waits 5 s for an answer."""
_TOPIC = "/example/1/bridge/proto"


pytestmark = pytest.mark.full


def _program(name):
    """Return the path of a broker; its Debian package has its name."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    return path


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def address():
    """The address of a `fairway node`."""
    with fairway_node() as address:
        yield address


@pytest.fixture
def bob(address):
    """A participant beside the bridge."""
    with (
        blocking.connect(address) as node,
        blocking.create_reliable_channel(node, "bridge", "bob", _TOPIC) as channel,
    ):
        yield channel


@contextmanager
def _killed_and_started_again(*command):
    """Run a bridge; the yielded function kills it and starts it again."""
    with ExitStack() as exits:
        bridge = exits.enter_context(running(sys.executable, *command))

        def kill():
            nonlocal bridge
            bridge.kill()
            bridge = exits.enter_context(running(sys.executable, *command))

        yield kill


def _read(channel, count, *, at, do):
    """Return the payloads of the next messages; after ``at`` of them call ``do``."""
    messages, payloads = iter(channel), []
    while len(payloads) < count:
        payloads.append(messages.next(timeout=PATIENCE_S).payload)
        if len(payloads) == at:
            do()
    with pytest.raises(TimeoutError):
        messages.next(timeout=1)
    return payloads


def test_a_killed_bridge_from_mqtt_sends_each_reading_once(tmp_path, address, bob):
    broker = _program("mosquitto")
    port = _free_port()
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n"
        f"persistence_location {tmp_path}/\n"
    )
    start_broker = partial(running, broker, "-c", tmp_path / "mosquitto.conf", stderr=subprocess.DEVNULL)
    command = [EXAMPLES / "mqtt.py", "--broker", f"127.0.0.1:{port}", "--topics", "sensors/#", "--node", address]
    heard, ids, subscribed = SimpleQueue(), set(), threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, client_id="lamp", protocol=MQTTv5)

    @client.connect_callback()
    def subscribe(*_):
        client.subscribe("actors/#", qos=1)

    client.on_subscribe = lambda *_: subscribed.set()

    @client.message_callback()
    def hear(_client, _data, message):
        ids.update(value for name, value in message.properties.UserProperty if name == "id")
        heard.put((message.topic, message.payload))

    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = 3_600
    client.connect_async("127.0.0.1", port, clean_start=False, properties=session)
    client.loop_start()
    try:
        with _killed_and_started_again(*command, "--folder", tmp_path / "bridge") as kill:
            with start_broker() as first:
                assert subscribed.wait(PATIENCE_S)
                for _ in range(2):
                    bob.send(b"actors/lamp\non")
                    # The bridge has subscribed before it publishes.
                    assert heard.get(timeout=PATIENCE_S) == ("actors/lamp", b"on")
                for _ in range(_READINGS):
                    client.publish("sensors/door", b"open", qos=1).wait_for_publish(PATIENCE_S)
                received = _read(bob, _READINGS, at=_READINGS // 4, do=kill)
                first.terminate()  # it writes its sessions
                first.wait(PATIENCE_S)
            bob.send(b"actors/lamp\noff")
            with start_broker():
                while heard.get(timeout=PATIENCE_S) != ("actors/lamp", b"off"):
                    pass
    finally:
        client.loop_stop()
    # The readings are equal, and still each is one message; so are the orders to the lamp.
    assert len(ids) == 3
    assert received == [b"sensors/door\nopen"] * _READINGS


def test_a_killed_bridge_from_jetstream_sends_each_order_once(tmp_path, address, bob):
    server = _program("nats-server")
    port = _free_port()
    url = f"nats://127.0.0.1:{port}"
    command = [EXAMPLES / "jetstream.py", "--server", url, "--node", address, "--folder", tmp_path / "bridge"]

    async def publish():
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name="fairway", subjects=["orders.>", "channel.*"])
        for _ in range(_READINGS):
            await stream.publish("orders.tea", b"two")
        await client.close()

    async def published():
        client = await nats.connect(url)
        subscription = await client.jetstream().subscribe("channel.bob")
        messages = [(await subscription.next_msg(PATIENCE_S)).data for _ in range(3)]
        await client.close()
        return messages

    arguments = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", tmp_path / "jetstream"]
    start_server = partial(running, server, *arguments, stderr=subprocess.DEVNULL)
    with start_server() as first:
        asyncio.run(publish())
        with _killed_and_started_again(*command) as kill:
            bob.send(b"we are open")
            received = _read(bob, _READINGS, at=_READINGS // 4, do=kill)
            first.kill()
            first.wait(PATIENCE_S)
            for _ in range(2):
                bob.send(b"we are closed")
            time.sleep(_OUTAGE_S)
            with start_server():
                assert asyncio.run(published()) == [b"we are open", b"we are closed", b"we are closed"]
    assert received == [b"orders.tea\ntwo"] * _READINGS
