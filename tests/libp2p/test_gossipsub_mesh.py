"""Many routers joined by a network of lists, at a virtual clock: what reaches whom."""

import hashlib
import random
from collections import deque

import pytest

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.gossipsub.codec import Message
from fairway.libp2p.gossipsub.mesh import HEARTBEAT_INTERVAL_S
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.router import Deliver, Router, ValidationResult
from fairway.libp2p.peer_id import PeerId

TOPIC = "/waku/2/rs/16/0"


def peer(number):
    return PeerId(b"\x12\x20" + hashlib.sha256(str(number).encode()).digest())


def body(frame):
    size, start = decode_uvarint(frame) or (0, 0)
    assert size == len(frame) - start
    return frame[start:]


def accept(message):
    return ValidationResult.ACCEPT


class World:
    """Routers, the connections between them, and frames that are lost at a given rate."""

    def __init__(self, count, seed, *, loss=0.0, degree=None, options=None):
        self.rng = random.Random(seed)
        self.options = options or GossipsubOptions()
        self.loss = loss
        self.now_s = 1_000.0
        self.routers = {}
        self.got = {}
        self.links = set()
        for number in range(count):
            self.add(number)
        for one in list(self.routers):
            others = [other for other in self.routers if other != one]
            for other in others if degree is None else self.rng.sample(others, degree):
                self.connect(one, other)

    def add(self, number):
        node = peer(number)
        self.routers[node] = Router(accept, self.options, rng=random.Random(self.rng.random()))
        self.got[node] = []
        self.run(node, self.routers[node].subscribe(TOPIC))
        return node

    def connect(self, one, other):
        if (one, other) in self.links or (other, one) in self.links:
            return
        self.links.add((one, other))
        first = self.routers[one].add_peer(other, dialled=True)
        second = self.routers[other].add_peer(one, dialled=False)
        self.run(one, first)
        self.run(other, second)

    def remove(self, node):
        del self.routers[node]
        for one, other in list(self.links):
            if node in {one, other}:
                self.links.discard((one, other))
                survivor = other if one == node else one
                if survivor in self.routers:
                    self.routers[survivor].remove_peer(node)

    def run(self, source, effects):
        waiting = deque((source, effect) for effect in effects)
        while waiting:
            sender, effect = waiting.popleft()
            if isinstance(effect, Deliver):
                self.got[sender].append(effect.message.data)
                continue
            for target in sorted(effect.peers):  # not in the order of a set: a seed stands for one course of events
                if target not in self.routers:
                    continue
                # Streams lose nothing but what a slow peer's queue drops, which is never control.
                if not effect.control and self.rng.random() < self.loss:
                    continue
                caused = self.routers[target].receive(sender, body(effect.frame), self.now_s)
                waiting.extend((target, effect) for effect in caused)

    def publish(self, node, data):
        self.run(node, self.routers[node].publish(Message(topic=TOPIC, data=data), self.now_s))

    def beat(self, times=1):
        for _ in range(times):
            self.now_s += HEARTBEAT_INTERVAL_S
            for node in list(self.routers):
                self.run(node, self.routers[node].heartbeat(self.now_s))


@pytest.mark.parametrize("seed", range(3))
def test_every_message_reaches_every_node_exactly_once(seed):
    world = World(20, seed, degree=5)
    world.beat(3)
    sent = {}
    for number, node in enumerate(list(world.routers) * 3):
        data = f"message {number}".encode()
        sent[data] = node
        world.publish(node, data)
        world.beat()
    for node, got in world.got.items():
        assert sorted(got) == sorted(data for data, author in sent.items() if author != node), f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_lost_on_the_way_is_recovered_by_gossip(seed):
    sparse = GossipsubOptions(d=3, d_low=2, d_high=4, d_out=1, flood_publish=False)
    world = World(15, seed, loss=0.2, degree=6, options=sparse)
    world.beat(3)
    for number in range(40):
        world.publish(peer(number % 15), f"message {number}".encode())
        world.beat()
    world.beat(10)
    missing = {
        node: 40 - 40 // 15 - (number < 40 % 15) - len(set(world.got[node])) for number, node in enumerate(world.got)
    }
    assert not any(missing.values()), f"seed {seed}: {missing}"
    assert all(len(got) == len(set(got)) for got in world.got.values())
    assert sum(router.statistics().recovered for router in world.routers.values())


def test_meshes_survive_nodes_that_come_and_go():
    world = World(12, 7, degree=4)
    world.beat(3)
    for number in range(12, 30):
        gone = world.rng.choice(list(world.routers))
        world.remove(gone)
        fresh = world.add(number)
        for other in world.rng.sample([node for node in world.routers if node != fresh], 4):
            world.connect(fresh, other)
        world.beat(4)
        author = world.rng.choice(list(world.routers))
        data = f"after {number}".encode()
        world.publish(author, data)
        world.beat(6)
        assert all(data in world.got[node] for node in world.routers if node != author), number


@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_while_a_node_has_lost_its_whole_mesh_reaches_it_still(seed):
    sparse = GossipsubOptions(d=2, d_low=1, d_high=2, d_out=0, flood_publish=False)
    world = World(5, seed, options=sparse)
    world.beat(3)
    alone = peer(0)
    # Both others join its mesh at once, so neither counts as an outsider to tell.
    for neighbour in world.routers[alone].mesh_of(TOPIC):
        world.remove(neighbour)
    for number, node in enumerate(world.routers):
        if node != alone:
            world.publish(node, f"message {number}".encode())
    world.beat(6)
    assert len(world.got[alone]) == len(world.routers) - 1, f"seed {seed}"


def test_a_mesh_has_the_size_that_the_options_say():
    world = World(30, 5)
    world.beat(5)
    sizes = [len(router.mesh_of(TOPIC)) for router in world.routers.values()]
    options = world.options
    assert all(options.d_low <= size <= options.d_high + options.d_out for size in sizes), sizes
