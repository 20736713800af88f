"""js-libp2p's gossipsub, py-libp2p's and ours in one mesh: pairs first, then many with nodes that come and go."""

import asyncio
import base64
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.pubsub import PubSub
from fairway.libp2p.gossipsub.router import Send, ValidationResult
from fairway.libp2p.host import Host
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from patience import PATIENCE_S, run, until

TOPIC = "/waku/2/rs/16/0"
LISTEN = ("/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/tcp/0/ws")
MUXERS = ("yamux", "mplex")
LONELY = GossipsubOptions(d=0, d_low=0, d_high=0, d_out=0, flood_publish=False)
"""Of a node that is in no mesh: it hears of messages by gossip alone, and others hear of its own so."""


SPARSE = GossipsubOptions(d=3, d_low=2, d_high=6, d_out=1, flood_publish=False)
"""Of a node that reaches most others only through others."""


class LosingPubSub(PubSub):
    """Loses a share of the messages to each peer as a full outbox would, but none to the same peer twice."""

    rng: random.Random
    share = 0.0

    def _run(self, effects):
        self._sent = getattr(self, "_sent", set())
        super()._run([self._kept(effect) for effect in effects])

    def _kept(self, effect):
        if not isinstance(effect, Send) or effect.control:
            return effect
        kept = []
        for peer in effect.peers:
            lost = (peer, effect.frame) not in self._sent and self.rng.random() < self.share
            self._sent.add((peer, effect.frame))
            if not lost:
                kept.append(peer)
            elif peer in self._links:
                self._links[peer].outbox.dropped += 1
        return replace(effect, peers=tuple(kept))


class OurNode:
    """A host of ours with a router, and what came to it."""

    def __init__(self, name, options=None, *, loss=0.0, seed=0):
        self.name = name
        self.exits = AsyncExitStack()
        self._options = options or GossipsubOptions()
        self._loss, self._rng = loss, random.Random(f"{name}/{seed}")

    async def start(self, peers=(), muxer=None):
        self.host = await self.exits.enter_async_context(await Host.start(listen=LISTEN))
        self.pubsub = LosingPubSub(
            self.host,
            RELAY_PROTOCOL,
            validator=lambda message: ValidationResult.ACCEPT,
            options=self._options,
            rng=self._rng,
        )
        self.pubsub.rng, self.pubsub.share = self._rng, self._loss
        await self.exits.enter_async_context(self.pubsub)
        self._subscription = self.pubsub.subscribe(TOPIC)
        self._got = []
        self.address = str(self.host.addresses[0])
        for peer in peers:
            await self.dial(peer)
        return self

    @property
    def peer_id(self):
        return str(self.host.peer_id)

    async def dial(self, address):
        await self.host.connect(address)

    async def publish(self, data):
        await self.pubsub.publish(TOPIC, data)

    def got(self):
        """Everything that came so far, in order."""
        self._got += [delivered.message.data for delivered in self._subscription.take()]
        return self._got

    async def stop(self):
        await self.exits.aclose()


class OtherNode:
    """A process of another maker."""

    def __init__(self, name, start, script):
        self.name = name
        self.exits = AsyncExitStack()
        self._start, self._script = start, script

    async def start(self, peers=(), muxer="yamux"):
        settings = {"topic": TOPIC, "muxer": muxer, "listen": [LISTEN[0]], "peers": list(peers)}
        self.peer = await self.exits.enter_async_context(self._start(self._script, self.name, settings))
        (ready,) = self.peer.of("ready")
        self.peer_id, self.address = ready["peerId"], ready["multiaddrs"][0]
        return self

    async def publish(self, data):
        count = len(self.peer.of("published"))
        self.peer.tell("publish", data=base64.b64encode(data).decode())
        await self.peer.wait("published", count + 1)

    def got(self):
        return [base64.b64decode(event["data"]) for event in self.peer.of("received")]

    async def dial(self, address):
        count = len(self.peer.of("dialled"))
        self.peer.tell("dial", peer=address)
        await self.peer.wait("dialled", count + 1)

    async def mesh(self):
        """Its mesh, and the peers whose subscription to the topic it knows."""
        count = len(self.peer.of("mesh"))
        self.peer.tell("mesh")
        said = (await self.peer.wait("mesh", count + 1))[-1]
        return set(said["peers"]), set(said["subscribers"])

    async def stop(self):
        await self.exits.aclose()


async def arrived(nodes, wanted, seed):
    """Wait until every node has everything that it did not publish itself, and then look for what came twice."""

    def missing():
        return {
            node.name: len(lacking)
            for node in nodes
            if (lacking := {data for data, author in wanted.items() if author is not node} - set(node.got()))
        }

    await until(lambda: not missing(), lambda: f"seed {seed}: missing {missing()} of {len(wanted)}")
    for node in nodes:
        got = node.got()
        assert len(got) == len(set(got)), f"seed {seed}: {node.name} got messages twice"


@asynccontextmanager
async def running(*nodes):
    async with AsyncExitStack() as exits:
        for node in nodes:
            exits.push_async_callback(node.stop)
        yield


async def talk(one, other, seed):
    """Both publish, small and large, in turns and in a burst; each gets everything of the other once."""
    rng = random.Random(seed)
    wanted = {}
    for number in range(20):
        node = (one, other)[number % 2]
        data = rng.randbytes((10, 1_000, 100_000)[number % 3])
        wanted[data] = node
        await node.publish(data)
    for _ in range(50):
        data = rng.randbytes(200)
        wanted[data] = one
        await one.publish(data)
    await arrived([one, other], wanted, seed)


@pytest.mark.full
@pytest.mark.parametrize("muxer", MUXERS)
@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_js_gossipsub_and_our_relay_exchange_messages_both_ways(js_peer, transport, muxer, seed):
    async def work():
        ours, theirs = OurNode("ours"), OtherNode("js", js_peer, "relay.mjs")
        async with running(ours, theirs):
            await ours.start()
            address = str(ours.host.addresses[LISTEN.index(LISTEN[transport == "ws"])])
            await theirs.start([address], muxer)
            await until(lambda: ours.pubsub.mesh_of(TOPIC), lambda: "no mesh")
            (identified,) = await theirs.peer.wait("identified")
            assert identified["muxer"].split("/")[1] == muxer
            await talk(ours, theirs, f"pair/{transport}/{muxer}/{seed}")
            statistics = ours.pubsub.statistics()
            assert (statistics.received, statistics.published, statistics.invalid) == (10, 60, 0)

    run(work())


@pytest.mark.full
@pytest.mark.parametrize("muxer", MUXERS)
def test_py_libp2p_gossipsub_and_our_relay_exchange_messages_both_ways(py_peer, muxer, seed):
    async def work():
        ours, theirs = OurNode("ours"), OtherNode("py", py_peer, "relay_peer.py")
        async with running(ours, theirs):
            await ours.start()
            await theirs.start([ours.address], muxer)
            await until(lambda: ours.pubsub.mesh_of(TOPIC), lambda: "no mesh")
            theirs.peer.tell("identify", peer=ours.address)
            (identified,) = await theirs.peer.wait("identified")
            assert identified["agent"] == "fairway"
            assert "/vac/waku/relay/2.0.0" in identified["protocols"]
            assert identified["muxer"].lower() == muxer
            (connection,) = ours.host.connections()
            assert ours.host.info_of(connection.peer_id).agent.startswith("py-libp2p/")
            assert connection.muxer.split("/")[1] == muxer
            rng = random.Random(f"pair/{muxer}/{seed}")
            wanted = {}
            # py-libp2p drops what is published faster than it writes, so each message waits for the one before.
            for number in range(30):
                node = (ours, theirs)[number % 2]
                data = rng.randbytes((10, 1_000, 100_000)[number % 3])
                wanted[data] = node
                await node.publish(data)
                other = theirs if node is ours else ours
                await until(lambda other=other, data=data: data in other.got())
            await until(
                lambda: (
                    {data for data, author in wanted.items() if author is theirs} <= set(ours.got())
                    and {data for data, author in wanted.items() if author is ours} <= set(theirs.got())
                ),
                lambda: f"seed {seed}: ours has {len(ours.got())} of 15",
            )
            assert ours.pubsub.statistics().invalid == 0

    run(work())


async def settled_around(near, far, lonely):
    """Wait until the near node has met both, and has got over it that one of them is in no mesh."""
    # At a heartbeat it takes the node into its mesh, is refused, and keeps off for a minute.
    await until(lambda: lonely.pubsub.statistics().backoffs)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            mesh, subscribers = await near.mesh()
            if mesh == {far.peer_id} and lonely.peer_id in subscribers:
                return


async def gossip_alone(start, script, seed):
    """A far node, a near one, and ours in no mesh: what the far one says must be asked for, as must what ours says."""
    far, near = (OtherNode(name, start, script) for name in ("far", "near"))
    ours = OurNode("ours", LONELY)
    async with running(far, near, ours):
        await far.start()
        await near.start([far.address])
        await ours.start([near.address])
        await settled_around(near, far, ours)
        rng, wanted = random.Random(f"lonely/{seed}"), {}
        for number in range(40):
            node = (far, ours)[number % 2]
            data = rng.randbytes(1_000)
            wanted[data] = node
            await node.publish(data)
        await arrived([far, near, ours], wanted, seed)
        statistics = ours.pubsub.statistics()
        assert (statistics.mesh_peers, statistics.recovered, statistics.duplicates) == (0, 20, 0), f"seed {seed}"
        assert statistics.served == 20, f"seed {seed}"


@pytest.mark.full
def test_a_node_in_no_mesh_gets_everything_of_js_by_ihave_and_iwant_and_serves_its_own_so(js_peer, seed):
    run(gossip_alone(js_peer, "relay.mjs", seed))


@pytest.mark.full
def test_a_node_in_no_mesh_gets_everything_of_py_libp2p_by_ihave_and_iwant_and_serves_its_own_so(py_peer, seed):
    run(gossip_alone(py_peer, "relay_peer.py", seed))


class Mesh:
    """Nodes of three makers that come and go, and what they say to each other meanwhile."""

    def __init__(self, exits, starts, seed):
        self.nodes, self.gone, self.links = [], [], set()
        self.seed, self.rng = seed, random.Random(f"mesh/{seed}")
        self._exits, self._starts, self._numbers = exits, starts, iter(range(1_000))

    async def join(self, kind):
        """Add a node, connected to three others, and return it."""
        name = f"{kind}-{next(self._numbers)}"
        node: OtherNode | OurNode
        if kind in self._starts:
            node = OtherNode(name, *self._starts[kind])
        else:
            options = {"ours": SPARSE, "lonely": LONELY}[kind]
            node = OurNode(name, options, loss=0.3, seed=self.seed)
        self._exits.push_async_callback(node.stop)
        others = self.rng.sample(self.nodes, min(3, len(self.nodes)))
        await node.start([other.address for other in others], "both" if kind == "js" else self.rng.choice(MUXERS))
        self.links.update(frozenset((node, other)) for other in others)
        self.nodes.append(node)
        return node

    def choose(self, kind):
        """Return a node of a kind, one that others depend on only if there is no other."""
        candidates = [node for node in self.nodes if node.name.startswith(f"{kind}-")]
        return min(candidates, key=lambda node: (len(self._cut_off_without(node)), self.rng.random()))

    async def replace(self, leaver, kind):
        """Take a node away, ours with a good-bye, another maker's by killing it, and add one of a kind."""
        first = next(node for node in self.nodes if node is not leaver)
        while cut_off := self._cut_off_without(leaver):
            await first.dial(cut_off[0].address)
            self.links.add(frozenset((first, cut_off[0])))
        self.nodes.remove(leaver)
        self.gone.append(leaver)
        await leaver.stop()
        await self.join(kind)

    async def settle(self):
        """Wait until each of ours that is to be in a mesh is in one."""
        ours = [node for node in self.nodes if node.name.startswith("ours-")]
        await until(
            lambda: all(node.pubsub.mesh_of(TOPIC) for node in ours), lambda: f"seed {self.seed}: a node has no mesh"
        )

    async def talk(self, count, nodes, wanted, pause_s=0.05):
        """Publish in turns, and note what each has said."""
        for number in range(count):
            node = nodes[number % len(nodes)]
            data = node.name.encode() + self.rng.randbytes((20, 2_000, 60_000)[number % 3])
            wanted[data] = node
            await node.publish(data)
            await asyncio.sleep(pause_s)

    async def all_arrived(self, nodes, wanted):
        await until(
            lambda: not self._lacking(nodes, wanted), lambda: f"seed {self.seed}: {self._lacking(nodes, wanted)}"
        )

    def _lacking(self, nodes, wanted):
        lacking = {}
        for node in nodes:
            got = set(node.got())
            if authors := [author.name for data, author in wanted.items() if author is not node and data not in got]:
                lacking[node.name] = authors
        return lacking

    def _cut_off_without(self, without):
        nodes = [node for node in self.nodes if node is not without]
        reached, edge = {nodes[0]}, [nodes[0]]
        while edge:
            one = edge.pop()
            found = {other for link in self.links if one in link for other in link if other in nodes} - reached
            reached |= found
            edge += found
        return [node for node in nodes if node not in reached]


@pytest.mark.full
def test_a_mesh_of_three_makers_loses_nothing_while_nodes_come_and_go_and_messages_are_lost(js_peer, py_peer, seed):
    starts = {"js": (js_peer, "relay.mjs"), "py": (py_peer, "relay_peer.py")}

    async def work():
        async with AsyncExitStack() as exits:
            mesh = Mesh(exits, starts, seed)
            for kind in ["ours", "js", "ours", "py", "js", "ours", "lonely"]:
                await mesh.join(kind)
            await mesh.settle()
            for kind in ["js", "ours", "py"]:
                # Those that stay talk while one leaves and another one comes; then the newcomer takes part.
                leaver = mesh.choose(kind)
                stay, meanwhile, together = [node for node in mesh.nodes if node is not leaver], {}, {}
                changing = asyncio.create_task(mesh.replace(leaver, kind))
                await mesh.talk(18, stay, meanwhile, pause_s=0.1)
                await changing
                await mesh.all_arrived(stay, meanwhile)
                await mesh.settle()
                await mesh.talk(14, mesh.nodes, together)
                await mesh.all_arrived(mesh.nodes, together)
            for node in mesh.nodes:
                # py-libp2p shows a node its own messages, too, each once.
                got = node.got()
                assert len(got) == len(set(got)), f"seed {seed}: {node.name} got messages twice"
            ours = [node.pubsub.statistics() for node in [*mesh.nodes, *mesh.gone] if isinstance(node, OurNode)]
            recovered, served = (sum(getattr(one, name) for one in ours) for name in ("recovered", "served"))
            print(f"recovered {recovered}, served {served}")  # noqa: T201 - the figures of the run
            (lonely,) = (node.pubsub.statistics() for node in mesh.nodes if node.name.startswith("lonely-"))
            assert lonely.mesh_peers == 0
            assert lonely.recovered
            assert lonely.served
            assert not any(one.invalid for one in ours)

    run(work())
