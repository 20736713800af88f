// js-libp2p's gossipsub set up as a Waku relay: StrictNoSign, ids that are SHA-256 of the data.
// Usage: node --import ./polyfill.mjs relay.mjs SETTINGS (JSON)
import { createHash } from "node:crypto";
import { GossipSub } from "@chainsafe/libp2p-gossipsub";
import { noise } from "@chainsafe/libp2p-noise";
import { yamux } from "@chainsafe/libp2p-yamux";
import { identify } from "@libp2p/identify";
import { mplex } from "@libp2p/mplex";
import { ping } from "@libp2p/ping";
import { tcp } from "@libp2p/tcp";
import { webSockets } from "@libp2p/websockets";
import { all } from "@libp2p/websockets/filters";
import { multiaddr } from "@multiformats/multiaddr";
import { createLibp2p } from "libp2p";
import { bytes, obey, say, text } from "./lines.mjs";

const { peers = [], topic, muxer = "yamux", listen = [] } = JSON.parse(process.argv[2]);

class WakuGossip extends GossipSub {
  multicodecs = ["/vac/waku/relay/2.0.0"];
}

const gossip = (components) =>
  new WakuGossip(components, {
    allowPublishToZeroTopicPeers: true,
    emitSelf: false,
    globalSignaturePolicy: "StrictNoSign",
    msgIdFn: ({ data }) => new Uint8Array(createHash("sha256").update(data).digest()),
    fallbackToFloodsub: false,
    // Waku nodes judge a peer by its messages, not by how many peers share its address.
    scoreParams: { IPColocationFactorWeight: 0 },
  });

const node = await createLibp2p({
  addresses: { listen },
  transports: [tcp(), webSockets({ filter: all })],
  streamMuxers: { yamux: [yamux()], mplex: [mplex()], both: [yamux(), mplex()] }[muxer],
  connectionEncrypters: [noise()],
  services: { identify: identify(), ping: ping(), pubsub: gossip },
});
const { pubsub } = node.services;
pubsub.addEventListener("message", ({ detail }) => {
  if (detail.topic === topic) say("received", { data: text(detail.data) });
});
node.addEventListener("peer:identify", ({ detail }) =>
  say("identified", {
    agent: detail.agentVersion,
    protocols: detail.protocols,
    listen: detail.listenAddrs.map(String),
    observed: String(detail.observedAddr),
    signed: Boolean(detail.signedPeerRecord),
    muxer: detail.connection.multiplexer,
  }),
);
for (const peer of peers) await node.dial(multiaddr(peer));
pubsub.subscribe(topic);
say("ready", { peerId: node.peerId.toString(), multiaddrs: node.getMultiaddrs().map(String) });

await obey({
  async publish({ data }) {
    const { recipients } = await pubsub.publish(topic, bytes(data));
    say("published", { recipients: recipients.length });
  },
  mesh() {
    say("mesh", { peers: pubsub.getMeshPeers(topic), subscribers: pubsub.getSubscribers(topic).map(String) });
  },
  async dial({ peer }) {
    await node.dial(multiaddr(peer));
    say("dialled");
  },
  async ping({ peer }) {
    say("pinged", { ms: await node.services.ping.ping(multiaddr(peer)) });
  },
});
