// Measures js-waku. Called as: node --expose-gc bench.mjs WORKLOAD JSON-PARAMETERS; prints one line of JSON.
//
// Each workload is the twin of one in benchmarks/sds.py, memory.py or wire.py: the same messages, the same number of
// them, the same way of taking the best slice. The caller compares the fingerprint of the first item with its own.
// One process measures one figure, so that no figure inherits the heap or the compiled code of another.

import { createHash } from "node:crypto";

import { messageHash } from "@waku/message-hash";
import { proto_message } from "@waku/proto";
import { ContentMessage, Message, MessageChannel, MessageChannelEvent } from "@waku/sds";

const CHANNEL = "bench-channel";
const HINT = new Uint8Array(32).fill(9);
const START_MS = 1_700_000_000_000n;
const PUBSUB_TOPIC = "/waku/2/rs/1/0";
const CONTENT_TOPIC = "/bench/1/messages/proto";
const BLOOM_BYTES = 18_752; // 10,000 ids at 0.001, the default of both
const SLICE_SECONDS = 0.1;

const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const fingerprint = (data) => createHash("sha256").update(data).digest("hex");
const idOf = (number) => fingerprint(`message ${number}`);

/** Items per second in the best of as many slices as fit into the budget; a slice is long enough to need the collector. */
function bestRate(items, work, budgetSeconds) {
  const pass = () => {
    const start = seconds();
    for (const item of items) work(item);
    return seconds() - start;
  };
  for (const warmed = seconds() + SLICE_SECONDS; seconds() < warmed; ) pass();
  const passes = Math.max(1, Math.ceil(SLICE_SECONDS / pass()));
  let best = Infinity;
  const end = seconds() + budgetSeconds;
  do {
    const start = seconds();
    for (let done = 0; done < passes; done += 1) pass();
    best = Math.min(best, seconds() - start);
  } while (seconds() < end);
  return (passes * items.length) / best;
}

/** A payload that is unique for its number. */
function payloadOf(number, size) {
  const payload = new Uint8Array(size).fill(7);
  new DataView(payload.buffer).setUint32(0, number);
  return payload;
}

/** A sends, B processes; every message is new and nothing is acknowledged. */
async function channel({ messages, history, wire }) {
  const options = { causalHistorySize: history };
  const alice = new MessageChannel(CHANNEL, "alice", options);
  const bob = new MessageChannel(CHANNEL, "bob", options);
  let delivered = 0;
  bob.addEventListener(MessageChannelEvent.InMessageDelivered, () => (delivered += 1));
  for (const side of [alice, bob]) {
    side.addEventListener(MessageChannelEvent.ErrorTask, (event) => {
      throw event.detail.error;
    });
  }
  globalThis.gc();
  const residentBefore = process.memoryUsage().rss;
  const start = seconds();
  for (let number = 0; number < messages; number += 1) {
    let sent;
    alice.pushOutgoingMessage(payloadOf(number, 64), async (message) => {
      sent = message;
      return { success: true, retrievalHint: HINT };
    });
    await alice.processTasks();
    bob.pushIncomingMessage(wire ? Message.decode(sent.encode()) : sent, HINT);
    await bob.processTasks();
  }
  const elapsed = seconds() - start;
  if (delivered !== messages) throw new Error(`${delivered} of ${messages} messages were delivered`);
  globalThis.gc();
  return { rate: messages / elapsed, resident_growth: process.memoryUsage().rss - residentBefore };
}

/** Messages of one channel; each cites `history` entries, `stride` further than the one before. */
function sdsMessages({ messages, history, stride }) {
  const entries = Array.from({ length: messages * stride + history }, (_, number) => ({
    messageId: idOf(number),
    retrievalHint: createHash("sha256").update(`hint ${number}`).digest(),
    senderId: "alice",
  }));
  const bloom = Uint8Array.from({ length: BLOOM_BYTES }, (_, at) => (at * 31) & 0xff);
  return Array.from({ length: messages }, (_, number) => {
    const first = number * stride;
    const cited = entries.slice(first, first + history);
    const stamp = START_MS + BigInt(number);
    return new ContentMessage(idOf(first + history), CHANNEL, "alice", cited, stamp, bloom, payloadOf(number, 64));
  });
}

function sdsEncode(parameters) {
  const messages = sdsMessages(parameters);
  const rate = bestRate(messages, (message) => message.encode(), parameters.budget_s);
  return { rate, fingerprint: fingerprint(messages[0].encode()) };
}

function sdsDecode(parameters) {
  const encoded = sdsMessages(parameters).map((message) => message.encode());
  const rate = bestRate(encoded, (data) => Message.decode(data), parameters.budget_s);
  return { rate, fingerprint: fingerprint(encoded[0]) };
}

function wakuMessages({ messages, payload_bytes: payloadBytes }) {
  return Array.from({ length: messages }, (_, number) => ({
    payload: payloadOf(number, payloadBytes),
    contentTopic: CONTENT_TOPIC,
    timestamp: (START_MS + BigInt(number)) * 1_000_000n,
  }));
}

function wakuEncode(parameters) {
  const messages = wakuMessages(parameters);
  const { encode } = proto_message.WakuMessage;
  const rate = bestRate(messages, (message) => encode(message), parameters.budget_s);
  return { rate, fingerprint: fingerprint(encode(messages[0])) };
}

function wakuDecode(parameters) {
  const { encode, decode } = proto_message.WakuMessage;
  const encoded = wakuMessages(parameters).map((message) => encode(message));
  const rate = bestRate(encoded, (data) => decode(data), parameters.budget_s);
  return { rate, fingerprint: fingerprint(encoded[0]) };
}

function hash(parameters) {
  const messages = wakuMessages(parameters);
  const work = (message) => messageHash(PUBSUB_TOPIC, message);
  const rate = bestRate(messages, work, parameters.budget_s);
  return { rate, fingerprint: Buffer.from(work(messages[0])).toString("hex") };
}

const WORKLOADS = {
  channel,
  "sds-encode": sdsEncode,
  "sds-decode": sdsDecode,
  "waku-encode": wakuEncode,
  "waku-decode": wakuDecode,
  "message-hash": hash,
};

const [workload, parameters] = process.argv.slice(2);
if (!(workload in WORKLOADS)) {
  throw new Error(`there is no workload ${workload}; known are ${Object.keys(WORKLOADS).join(", ")}`);
}
console.log(JSON.stringify(await WORKLOADS[workload](JSON.parse(parameters))));
