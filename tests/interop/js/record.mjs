// Two peers of js-libp2p, and what they say to each other under the encryption, as JSON: for tests/vectors/libp2p.
// Usage: node --import ./polyfill.mjs record.mjs MUXER > js_MUXER.json
import { noise } from "@chainsafe/libp2p-noise";
import { yamux } from "@chainsafe/libp2p-yamux";
import { identify } from "@libp2p/identify";
import { mplex } from "@libp2p/mplex";
import { ping } from "@libp2p/ping";
import { tcp } from "@libp2p/tcp";
import { createLibp2p } from "libp2p";

const muxer = process.argv[2];
const said = [];

// The muxer is agreed on by multistream-select rather than within the handshake, so that this is recorded, too.
const openly = (tapped) => (components) => {
  const secured = noise()(components);
  const unmuxed = async (handshake) => ({ ...(await handshake), streamMuxer: undefined });
  return Object.assign(Object.create(secured), {
    protocol: secured.protocol,
    secureInbound: (connection, options) => unmuxed(secured.secureInbound(connection, options)),
    async secureOutbound(connection, options) {
      const outcome = await unmuxed(secured.secureOutbound(connection, options));
      if (!tapped) return outcome;
      const { source, sink } = outcome.conn;
      outcome.conn.source = heard("listener", source);
      outcome.conn.sink = (pieces) => sink(heard("dialer", pieces));
      return outcome;
    },
  });
};

async function* heard(from, pieces) {
  for await (const piece of pieces) {
    const bytes = Buffer.from(piece.subarray());
    said.push({ from, bytes: bytes.toString("hex") });
    yield piece;
  }
}

const start = (tapped, listen) =>
  createLibp2p({
    addresses: { listen },
    transports: [tcp()],
    streamMuxers: [muxer === "yamux" ? yamux() : mplex()],
    connectionEncrypters: [openly(tapped)],
    services: { identify: identify(), ping: ping() },
  });

const listener = await start(false, ["/ip4/127.0.0.1/tcp/0"]);
await listener.handle("/recorded-echo/1", ({ stream }) => stream.sink(stream.source));
const dialer = await start(true, []);
const identified = Promise.all(
  [dialer, listener].map((node) => new Promise((done) => node.addEventListener("peer:identify", done, { once: true }))),
);
const connection = await dialer.dial(listener.getMultiaddrs());
await identified;
await dialer.services.ping.ping(listener.peerId);
const stream = await connection.newStream("/recorded-echo/1");
const echoed = Buffer.from("said twice");
await stream.sink([echoed]);
for await (const piece of stream.source) if (!echoed.equals(Buffer.from(piece.subarray()))) throw new Error("no echo");
await connection.close();

const about = "What two peers of js-libp2p say to each other under the encryption, in the order in which the dialer sees it";
console.log(
  JSON.stringify(
    {
      about: `${about} (hex): ${muxer} is agreed on, identify both ways, a ping, an echo, the end.`,
      source: "recorded by tests/interop/js/record.mjs with the versions of its package-lock.json",
      dialer: { peer_id: dialer.peerId.toString() },
      listener: { peer_id: listener.peerId.toString(), addresses: listener.getMultiaddrs().map(String) },
      said,
    },
    undefined,
    1,
  ),
);
process.exit(0);
