"""A newcomer that starts from a snapshot in the archive of a ``fairway node``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fairway import blocking
from fairway.options import ReliableChannelOptions
from patience import PATIENCE_S

TOPIC = "/fairway-test/1/votes/proto"
QUICK = ReliableChannelOptions(sync_min_interval_ms=100)
BEFORE, AFTER = 300, 20


@pytest.mark.full
def test_a_newcomer_reads_the_archive_of_a_node_only_from_the_snapshot_on(tmp_path):
    command = [sys.executable, "-m", "fairway", "node", "--json", "--archive", "sqlite:archive.db"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as node:
        try:
            address = json.loads(node.stdout.readline())["multiaddrs"][0]
            with (
                blocking.connect(address) as node_a,
                blocking.create_reliable_channel(node_a, "votes", "alice", TOPIC, options=QUICK) as alice,
            ):
                for number in range(BEFORE):
                    alice.send(b"%d" % number).sent(timeout=PATIENCE_S)
                alice.snapshot(b"the sum").sent(timeout=PATIENCE_S)
                for number in range(BEFORE, BEFORE + AFTER):
                    alice.send(b"%d" % number).sent(timeout=PATIENCE_S)
            with (
                blocking.connect(address) as node_b,
                blocking.create_reliable_channel(node_b, "votes", "bob", TOPIC, options=QUICK) as bob,
            ):
                snapshot = bob.latest_snapshot()
                assert (snapshot.sender_id, snapshot.state) == ("alice", b"the sum")
                messages = iter(bob)
                heard = [messages.next(timeout=PATIENCE_S).payload for _ in range(AFTER)]
                assert heard == [b"%d" % number for number in range(BEFORE, BEFORE + AFTER)]
        finally:
            node.terminate()
