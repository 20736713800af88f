// A js-waku light node, with a ReliableChannel if a channel is named.
// Usage: node --import ./polyfill.mjs light.mjs SETTINGS (JSON)
import { mplex } from "@libp2p/mplex";
import { tcp } from "@libp2p/tcp";
import { webSockets } from "@libp2p/websockets";
import { all } from "@libp2p/websockets/filters";
import { yamux } from "@chainsafe/libp2p-yamux";
import { createDecoder, createEncoder } from "@waku/core";
import * as ecies from "@waku/message-encryption/ecies";
import * as symmetric from "@waku/message-encryption/symmetric";
import { createLightNode, Protocols, ReliableChannel } from "@waku/sdk";
import { createRoutingInfo } from "@waku/utils";
import { bytes, obey, say, text } from "./lines.mjs";

// js-waku looks for missing messages in the background and catches nothing: without a store node, "No peers available to
// query". A browser reports that and goes on; Node.js would end.
process.on("unhandledRejection", (error) => console.error("unhandled rejection:", error));

const settings = JSON.parse(process.argv[2]);
const { cluster, shard, contentTopic, peers, muxer = "mplex", channel, sender, encryption } = settings;
const networkConfig = { clusterId: cluster, shards: [shard] };
const routingInfo = createRoutingInfo(networkConfig, { contentTopic, shardId: shard });

function codec() {
  const plain = { contentTopic, routingInfo };
  const sigPrivKey = encryption?.signWith && bytes(encryption.signWith);
  switch (encryption?.kind) {
    case "symmetric": {
      const symKey = bytes(encryption.key);
      return [symmetric.createEncoder({ ...plain, symKey, sigPrivKey }), symmetric.createDecoder(contentTopic, routingInfo, symKey)];
    }
    case "ecies": {
      const publicKey = bytes(encryption.publicKey);
      return [ecies.createEncoder({ ...plain, publicKey, sigPrivKey }), ecies.createDecoder(contentTopic, routingInfo, bytes(encryption.privateKey))];
    }
    default:
      return [createEncoder(plain), createDecoder(contentTopic, routingInfo)];
  }
}

const node = await createLightNode({
  networkConfig,
  defaultBootstrap: false,
  discovery: { dns: false, peerExchange: false, peerCache: false },
  bootstrapPeers: peers,
  numPeersToUse: peers.length,
  // js-waku notices at its next ping that a subscription is gone, and dials a lost node again after a pause: by itself
  // after a minute each, which is long for a test.
  filter: { keepAliveIntervalMs: 2_000, pingsBeforePeerRenewed: 3 },
  connectionManager: { dialCooldown: 1, failedDialCooldown: 1 },
  libp2p: {
    // js-libp2p aborts a connection with a ping that takes 5 s, which on a busy machine says nothing about it.
    connectionMonitor: { pingTimeout: { minTimeout: 60_000 } },
    transports: [webSockets({ filter: all }), tcp()],
    streamMuxers: muxer === "yamux" ? [yamux()] : [mplex()],
    hideWebSocketInfo: true,
  },
});
await node.waitForPeers([Protocols.LightPush, Protocols.Filter, Protocols.Store], 60_000);
const [encoder, decoder] = codec();
const message = (seen) => ({
  payload: text(seen.payload),
  hash: seen.hashStr,
  // The key that js-waku recovered from the signature, which verifies it.
  signedBy: seen.signaturePublicKey && text(seen.signaturePublicKey),
  sentAt: seen.timestamp?.getTime(),
  receivedAt: Date.now(),
});
let reliable;

if (channel) {
  reliable = await ReliableChannel.create(node, channel, sender, encoder, decoder, settings.options ?? {});
  const told = {
    "message-sent": (id) => ({ id }),
    "message-acknowledged": (id) => ({ id }),
    "message-possibly-acknowledged": ({ messageId }) => ({ id: messageId }),
    "sending-message-irrecoverable-error": ({ messageId, error }) => ({ id: messageId, detail: String(error) }),
    "message-received": (seen) => message(seen),
  };
  for (const [name, fields] of Object.entries(told)) {
    reliable.addEventListener(name, ({ detail }) => say(name, fields(detail)));
  }
}

say("ready", {
  peerId: node.libp2p.peerId.toString(),
  muxers: node.libp2p.getConnections().map(({ multiplexer }) => multiplexer),
});

await obey({
  async metadata() {
    const told = [];
    for (const { remotePeer } of node.libp2p.getConnections()) {
      const { shardInfo, error } = await node.libp2p.services.metadata.query(remotePeer);
      told.push({ ...shardInfo, error });
    }
    say("told", { told });
  },
  send({ payload }) {
    const data = bytes(payload);
    const id = ReliableChannel.getMessageId(data);
    reliable.send(data);
    say("accepted", { id });
  },
  async push({ payload }) {
    const result = await node.lightPush.send(encoder, { payload: bytes(payload) }, { autoRetry: false });
    say("pushed", { successes: result.successes.length, failures: result.failures.map(({ error }) => String(error)) });
  },
  async subscribe() {
    const subscribed = await node.filter.subscribe(decoder, (seen) => say("filtered", message(seen)));
    say("subscribed", { subscribed });
  },
  async unsubscribe() {
    say("unsubscribed", { unsubscribed: await node.filter.unsubscribe(decoder) });
  },
  async query({ pageSize }) {
    const found = [];
    await node.store.queryWithOrderedCallback([decoder], (seen) => void found.push(seen.hashStr), {
      paginationLimit: pageSize,
    });
    say("queried", { hashes: found });
  },
});
