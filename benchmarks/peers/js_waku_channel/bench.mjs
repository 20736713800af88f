// Measures js-waku's ReliableChannel. Called as: node --expose-gc bench.mjs WORKLOAD JSON-PARAMETERS; prints one line of
// JSON.
//
// Each workload is the twin of one in benchmarks/live_workloads.py: the same number of messages of the same size, sent in
// the same way by one participant and received by another in the same process, and the same options where both have them.
// One process measures one figure.

import { createDecoder, createEncoder } from "@waku/core";
import { ReliableChannel } from "@waku/sdk";
import { createRoutingInfo } from "@waku/utils";

import { Network } from "./node.mjs";

const CHANNEL = "bench-channel";
const CONTENT_TOPIC = "/bench/1/messages/proto";
const ROUTING = createRoutingInfo({ clusterId: 1, numShardsInCluster: 8 }, { contentTopic: CONTENT_TOPIC });
const NEVER = 600_000; // ms: the timer is set, as it would be, and the workload ends before it

const seconds = () => Number(process.hrtime.bigint()) / 1e9;

/** User and system time of all threads of this process. */
function cpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** A payload that is unique for its number. */
function payloadOf(number, size) {
  const payload = new Uint8Array(size).fill(7);
  new DataView(payload.buffer).setUint32(0, number);
  return payload;
}

const numberOf = (payload) => new DataView(payload.buffer, payload.byteOffset).getUint32(0);

/** Settles when `count` events of a name have come. */
function manyEvents(target, name, count) {
  return new Promise((resolve) => {
    let come = 0;
    target.addEventListener(name, () => {
      come += 1;
      if (come === count) resolve();
    });
  });
}

/** Returns a function that sends a payload and settles when the channel says that it was sent. */
function senderOf(channel) {
  let sent;
  channel.addEventListener("message-sent", () => sent());
  return (payload) =>
    new Promise((resolve) => {
      sent = resolve;
      channel.send(payload);
    });
}

async function newPair(network, options) {
  const create = (name) =>
    ReliableChannel.create(
      network.node(),
      CHANNEL,
      name,
      createEncoder({ contentTopic: CONTENT_TOPIC, routingInfo: ROUTING }),
      createDecoder(CONTENT_TOPIC, ROUTING),
      options,
    );
  const pair = [await create("alice"), await create("bob")];
  for (const { messageChannel } of pair) {
    messageChannel.addEventListener("sds:error-task", (event) => {
      throw event.detail.error;
    });
  }
  return pair;
}

/** A sends, each message as soon as the one before it is sent; ends when B's SDS has processed the last one. */
async function throughput({ messages, payload_bytes: payloadBytes, history, process_task_ms: processTaskMs }) {
  const [alice, bob] = await newPair(new Network(), {
    causalHistorySize: history,
    syncMinIntervalMs: 0,
    retryIntervalMs: NEVER,
    processTaskMinElapseMs: processTaskMs,
  });
  const send = senderOf(alice);
  const received = manyEvents(bob, "message-received", messages);
  const processed = manyEvents(bob.messageChannel, "sds:in:message-delivered", messages);
  globalThis.gc();
  const startCpu = cpuSeconds();
  const start = seconds();
  for (let number = 0; number < messages; number += 1) await send(payloadOf(number, payloadBytes));
  await received;
  const receivedSeconds = seconds() - start;
  await processed;
  return {
    rate: messages / (seconds() - start),
    rate_received: messages / receivedSeconds,
    cpu_ms: ((cpuSeconds() - startCpu) * 1e3) / messages,
  };
}

/** A sends one message after another, each once the one before it was received; the times from send to receive, in ms. */
async function latency({ messages, warming, payload_bytes: payloadBytes, history }) {
  const [alice, bob] = await newPair(new Network(), {
    causalHistorySize: history,
    syncMinIntervalMs: 0,
    retryIntervalMs: NEVER,
  });
  const send = senderOf(alice);
  const times = [];
  let start;
  let come;
  bob.addEventListener("message-received", () => {
    times.push((seconds() - start) * 1e3);
    come();
  });
  for (let number = 0; number < warming + messages; number += 1) {
    const payload = payloadOf(number, payloadBytes);
    const arrival = new Promise((resolve) => (come = resolve));
    start = seconds();
    await Promise.all([send(payload), arrival]);
  }
  return { times_ms: times.slice(warming) };
}

/** A sends messages over a lossy network with a store; ends when B has received the last one that was missing. */
async function lossy({ messages, payload_bytes: payloadBytes, history, loss, seed, faster, limit_s: limitSeconds }) {
  const [alice, bob] = await newPair(new Network({ loss, seed, keeps: true }), {
    causalHistorySize: history,
    syncMinIntervalMs: 30_000 / faster,
    retryIntervalMs: 30_000 / faster,
    retrieveFrequencyMs: 10_000 / faster,
    sweepInBufIntervalMs: 5_000 / faster,
    processTaskMinElapseMs: 1_000 / faster,
  });
  const send = senderOf(alice);
  const received = new Set();
  let repeated = 0;
  const all = new Promise((resolve) => {
    bob.addEventListener("message-received", ({ detail }) => {
      const number = numberOf(detail.payload);
      if (received.has(number)) repeated += 1;
      received.add(number);
      if (received.size === messages) resolve();
    });
  });
  const start = seconds();
  for (let number = 0; number < messages; number += 1) await send(payloadOf(number, payloadBytes));
  await Promise.race([all, new Promise((resolve) => setTimeout(resolve, limitSeconds * 1e3))]);
  return { seconds: seconds() - start, received: received.size, repeated };
}

const WORKLOADS = { throughput, latency, lossy };

const [workload, parameters] = process.argv.slice(2);
if (!(workload in WORKLOADS)) {
  throw new Error(`there is no workload ${workload}; known are ${Object.keys(WORKLOADS).join(", ")}`);
}
console.log(JSON.stringify(await WORKLOADS[workload](JSON.parse(parameters))));
process.exit(0); // timers of the channels are still running
