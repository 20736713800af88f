// A participant with js-waku, in the channel of the ten lines of Python. A page does the same, without `process`.
// Run it: node team.mjs ADDRESS NAME [QUESTION], where ADDRESS is the WebSocket address that `fairway node` prints.
import { createLightNode, Protocols, ReliableChannel } from "@waku/sdk";

const [address, me, question] = process.argv.slice(2);
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
const send = (text) => channel.send(new TextEncoder().encode(text));

channel.addEventListener("message-acknowledged", ({ detail: id }) => console.log("acknowledged", id));
channel.addEventListener("message-received", ({ detail: message }) => {
  const text = new TextDecoder().decode(message.payload); // of others, and one's own
  console.log("in the channel:", text);
  if (!question && text.endsWith("?")) send("I am");
});
if (question) send(question);
