// The least that a ReliableChannel needs of a node: nodes of one process that are connected by a function call.
//
// What leaves is encoded to the bytes of a WakuMessage, and what arrives is decoded from them, as light push and filter
// do. Like fairway's local network it does not echo messages to their sender. Faults are seeded.

import { messageHash } from "@waku/core";
import { proto_message } from "@waku/proto";

const PEER = "in-process";

/** A generator of numbers in [0, 1) that gives the same ones for the same seed (mulberry32). */
function seededRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Carries messages between its nodes; each transmission to each receiver is lost with probability `loss`. */
export class Network {
  #subscriptions = [];
  #archive = new Map();
  #random;
  #loss;
  #keeps;

  /** `keeps`: whether the nodes have a store, which holds everything that was ever sent. */
  constructor({ loss = 0, seed = 1, keeps = false } = {}) {
    this.#loss = loss;
    this.#keeps = keeps;
    this.#random = seededRandom(seed);
  }

  node() {
    const node = {
      lightPush: { send: (encoder, message) => this.#send(node, encoder, message) },
      filter: { subscribe: (decoder, callback) => this.#subscribe(node, decoder, callback) },
      events: new EventTarget(), // would tell "waku:health"
      peerManager: { events: new EventTarget() }, // would tell "store:connect"
    };
    if (this.#keeps) node.store = { queryGenerator: (decoders, query) => this.#query(decoders[0], query) };
    return node;
  }

  async #send(sender, encoder, message) {
    const encoded = await encoder.toWire(message);
    if (this.#keeps) this.#keep(encoder.pubsubTopic, encoded);
    for (const { node, decoder, callback } of this.#subscriptions) {
      if (node !== sender && this.#random() >= this.#loss) void this.#decode(decoder, encoded).then(callback);
    }
    return { successes: [PEER], failures: [] };
  }

  async #subscribe(node, decoder, callback) {
    this.#subscriptions.push({ node, decoder, callback });
    return true;
  }

  #keep(pubsubTopic, encoded) {
    const hash = messageHash(pubsubTopic, proto_message.WakuMessage.decode(encoded));
    this.#archive.set(Buffer.from(hash).toString("hex"), encoded);
  }

  async *#query(decoder, { messageHashes = [] }) {
    const found = messageHashes.map((hash) => this.#archive.get(Buffer.from(hash).toString("hex")));
    yield found.filter((encoded) => encoded !== undefined).map((encoded) => this.#decode(decoder, encoded));
  }

  async #decode(decoder, encoded) {
    return decoder.fromProtoObj(decoder.pubsubTopic, await decoder.fromWireToProtoObj(encoded));
  }
}
