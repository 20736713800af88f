// A participant with js-waku that answers requests of fairway's participants, and may ask one itself.
// Run it: node requests.mjs ADDRESS NAME [TO QUESTION], where ADDRESS is the WebSocket address that `fairway node` prints.
import { createLightNode, Protocols, ReliableChannel } from "@waku/sdk";
import { decode, encode, Kind } from "./envelope.mjs";

const [address, me, to, question] = process.argv.slice(2);
const node = await createLightNode({
  networkConfig: { clusterId: 1, numShardsInCluster: 8 }, // what fairway and The Waku Network have by default
  bootstrapPeers: [address],
  libp2p: { filterMultiaddrs: false }, // allows ws:// without TLS, to this machine
});
await node.waitForPeers([Protocols.LightPush, Protocols.Filter, Protocols.Store]);

const contentTopic = "/fairway/1/team/proto";
const encoder = node.createEncoder({ contentTopic });
const decoder = node.createDecoder({ contentTopic });
const channel = await ReliableChannel.create(node, "team", me, encoder, decoder);
const bytes = (text) => new TextEncoder().encode(text);
const text = (content) => new TextDecoder().decode(content);

const seen = new Set(); // js-waku hands a message over again with each retransmission
const asked = question && crypto.randomUUID();

channel.addEventListener("message-received", ({ detail: { payload, timestamp } }) => {
  const envelope = decode(payload);
  if (!envelope || envelope.group || (envelope.to && envelope.to !== me)) return; // nor is it a worker of any group
  const { kind, correlationId, expiresAfterMs, content, contentType, headers } = envelope;
  if (kind === Kind.REQUEST) {
    const isLate = expiresAfterMs && timestamp.getTime() + expiresAfterMs < Date.now();
    if (correlationId === asked || seen.has(correlationId) || isLate) return;
    seen.add(correlationId);
    console.log("asked:", text(content), contentType, JSON.stringify(headers));
    const reply = JSON.stringify({ from: me, question: text(content) });
    // Without `to`, because js-waku does not name the sender: the correlation id names the request.
    channel.send(encode({ kind: Kind.REPLY, correlationId, contentType: "application/json", headers, content: bytes(reply) }));
  } else if ((kind === Kind.REPLY || kind === Kind.FAILURE) && correlationId === asked) {
    console.log(kind === Kind.REPLY ? "reply:" : "failure:", text(content), contentType, JSON.stringify(headers));
  }
});
if (question) {
  channel.send(encode({ kind: Kind.REQUEST, to, correlationId: asked, expiresAfterMs: 60_000, headers: { from: me }, content: bytes(question) }));
}
console.log("ready");
