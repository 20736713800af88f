"""A fleet of sensors, and a collector that has each reading once in a database.

A sensor numbers its readings, and keeps those that the collector lacks on its disk. The collector stores a reading
before it asks for the next one, so a kill between the two only makes it see the reading again.

Run them: python examples/programs/sensors.py "$FAIRWAY_NODE" collector readings
          python examples/programs/sensors.py "$FAIRWAY_NODE" cellar cellar-sensor
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from pathlib import Path

from fairway import Envelope, ReliableChannelOptions, blocking

EVERY_S = 0.2
OPTIONS = ReliableChannelOptions(batch_ms=10)  # readings that wait for the node share messages


def measure(channel: blocking.BlockingChannel, folder: Path) -> None:
    """Send readings for ever, with numbers that go on after a restart."""
    counter = folder / "next-number"
    number = int(counter.read_text()) if counter.exists() else 0
    while True:
        counter.write_text(str(number + 1))
        reading = {"number": number, "celsius": round(random.gauss(12, 1), 2)}
        envelope = Envelope(json.dumps(reading).encode(), content_type="application/json")
        channel.send(envelope, by=["collector"])
        number += 1
        time.sleep(EVERY_S)


def collect(channel: blocking.BlockingChannel, folder: Path) -> None:
    """Store the readings of all sensors."""
    database = sqlite3.connect(folder / "readings.db", isolation_level=None)
    database.execute(
        "CREATE TABLE IF NOT EXISTS reading (sensor TEXT, number INT, celsius REAL, PRIMARY KEY (sensor, number))"
    )
    for message in channel:
        reading = json.loads(Envelope.of(message.payload).content)
        row = (message.sender_id, reading["number"], reading["celsius"])
        database.execute("INSERT OR IGNORE INTO reading VALUES (?, ?, ?)", row)
        print(*row, flush=True)


def main(address: str, name: str, folder: Path) -> None:
    """Run one member of the fleet."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        blocking.connect(address) as node,
        blocking.create_reliable_channel(
            node, "fleet", name, "/example/1/fleet/proto", options=OPTIONS, store=folder / "fleet.db"
        ) as channel,
    ):
        (collect if name == "collector" else measure)(channel, folder)


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
