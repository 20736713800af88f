// js-libp2p with nothing of Waku: streams that echo, in both directions.
// Usage: node --import ./polyfill.mjs streams.mjs SETTINGS (JSON)
import { randomBytes } from "node:crypto";
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
import { obey, say } from "./lines.mjs";

const PROTOCOL = "/fairway-echo/1";
const PIECE_BYTES = 65536;
const { muxers = ["yamux"], listen = [] } = JSON.parse(process.argv[2]);
const available = { yamux: yamux(), mplex: mplex() };

const node = await createLibp2p({
  addresses: { listen },
  transports: [tcp(), webSockets({ filter: all })],
  streamMuxers: muxers.map((name) => available[name]),
  connectionEncrypters: [noise()],
  services: { identify: identify(), ping: ping() },
});
await node.handle(PROTOCOL, ({ stream }) => stream.sink(stream.source).catch((error) => stream.abort(error)));
node.addEventListener("peer:identify", ({ detail }) =>
  say("identified", {
    agent: detail.agentVersion,
    protocols: detail.protocols,
    observed: String(detail.observedAddr),
    signed: Boolean(detail.signedPeerRecord),
    muxer: detail.connection.multiplexer,
  }),
);
say("ready", { peerId: node.peerId.toString(), multiaddrs: node.getMultiaddrs().map(String) });

async function echo(size) {
  const stream = await node.getConnections()[0].newStream(PROTOCOL);
  const sent = randomBytes(size);
  const pieces = (async function* () {
    for (let at = 0; at < size; at += PIECE_BYTES) yield sent.subarray(at, at + PIECE_BYTES);
  })();
  const received = [];
  const reading = (async () => {
    for await (const piece of stream.source) received.push(Buffer.from(piece.subarray()));
  })();
  await Promise.all([stream.sink(pieces), reading]);
  return sent.equals(Buffer.concat(received));
}

await obey({
  async dial({ address }) {
    const { multiplexer } = await node.dial(multiaddr(address));
    say("connected", { muxer: multiplexer });
  },
  async echo({ size, times }) {
    let whole = 0;
    for (let done = 0; done < times; done++) whole += Number(await echo(size));
    say("echoed", { size, whole });
  },
  async ping() {
    say("pong", { ms: await node.services.ping.ping(node.getPeers()[0]) });
  },
});
