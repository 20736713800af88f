"""What ``pip install fairway`` alone must do. Run with the Python of an environment that has no extra, nor pytest.

Prints what it saw; any other exit code than 0 is a fault. CI runs it against the wheel.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module

_BEFORE_S = time.process_time()

import fairway  # noqa: E402 - what it takes is measured

_TOOK_S = time.process_time() - _BEFORE_S

from fairway.errors import MissingExtraError  # noqa: E402 - after what is measured
from fairway.rln.field import poseidon  # noqa: E402
from fairway.service import ServiceNode, ServiceOptions  # noqa: E402
from fairway.testing import LocalNetwork  # noqa: E402


async def two_participants_talk() -> None:
    """Send a message of several segments over a network inside this process, and hear that it arrived."""
    topic, payload = "/fairway/1/packaging/proto", bytes(300_000)
    with LocalNetwork() as network:
        alice, bob = [
            await fairway.create_reliable_channel(network.node(name), "crew", name, topic) for name in ("alice", "bob")
        ]
        async with alice, bob:
            receipt = await alice.send(payload, by={"bob"})
            message = await anext(aiter(bob))
            assert (message.sender_id, bytes(message)) == ("alice", payload)
            await bob.send(b"I have it")
            assert (await receipt.delivered()).delivered_to == ("bob",)
    print("two participants talk")


async def a_light_client_talks_through_a_service_node() -> None:
    """Send through libp2p, which the core has: a service node and a light client of it."""
    async with (
        await ServiceNode.start(ServiceOptions(ws_port=None)) as node,
        fairway.connect(str(node.addresses[0])) as client,
    ):
        assert client.status.connected
    print("a light client talks through a service node")


def what_is_missing_says_so(extra: str, use: Callable[[], object]) -> None:
    """Check that an extra that is not there is named."""
    try:
        use()
    except MissingExtraError as error:
        told = error
    else:
        raise AssertionError(f"{extra} is installed here")
    assert told.extra == extra
    assert f"pip install 'fairway[{extra}]'" in str(told)
    print(told)


def the_command_says_what_to_install() -> None:
    """Check the one thing that ``fairway`` does without its extra."""
    ended = subprocess.run(
        [sys.executable, "-m", "fairway", "node"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "pip install 'fairway[cli]'" in ended.stderr
    print(ended.stderr.rstrip())


def main() -> None:
    """Check everything."""
    for name in fairway.__all__:
        getattr(fairway, name)
    asyncio.run(two_participants_talk())
    asyncio.run(a_light_client_talks_through_a_service_node())
    the_command_says_what_to_install()
    what_is_missing_says_so("node", lambda: import_module("fairway.service.rest"))
    what_is_missing_says_so("spark", lambda: import_module("fairway.pipeline"))
    what_is_missing_says_so("rln", lambda: poseidon(bytes(32)))
    archive = ServiceOptions(archive="postgresql://waku@127.0.0.1/waku")
    what_is_missing_says_so("postgresql", lambda: asyncio.run(ServiceNode.start(archive)))
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"fairway {fairway.__version__} on Python {version}; import fairway took {_TOOK_S * 1_000:.0f} ms of CPU")


if __name__ == "__main__":
    main()
