// The envelope of fairway's headers, requests and replies, in js; its format is in docs/requests.md.
import { decodeMessage, encodeMessage, message } from "protons-runtime"; // the protobuf library of js-waku

const PREFIX = Uint8Array.of(0xff, 0x45, 0x4e, 0x56, 0x01);

export const Kind = { MESSAGE: 0, REQUEST: 1, REPLY: 2, FAILURE: 3, CANCEL: 4, CLAIM: 5 };

const Header = message(
  ([name, value], writer) => {
    writer.fork();
    if (name) writer.uint32(10).string(name);
    if (value) writer.uint32(18).string(value);
    writer.ldelim();
  },
  (reader, length) => {
    const header = ["", ""];
    for (const end = reader.pos + length; reader.pos < end; ) {
      const tag = reader.uint32();
      if (tag === 10) header[0] = reader.string();
      else if (tag === 18) header[1] = reader.string();
      else reader.skipType(tag & 7);
    }
    return header;
  },
);

const Envelope = message(
  (envelope, writer) => {
    const { contentType, headers = {}, kind, to, correlationId, expiresAfterMs, content, group } = envelope;
    if (contentType) writer.uint32(10).string(contentType);
    for (const header of Object.entries(headers)) Header.encode(header, writer.uint32(18));
    if (kind) writer.uint32(24).int32(kind);
    if (to) writer.uint32(34).string(to);
    if (correlationId) writer.uint32(42).string(correlationId);
    if (expiresAfterMs) writer.uint32(48).uint64Number(expiresAfterMs);
    if (content?.length) writer.uint32(58).bytes(content);
    if (group) writer.uint32(66).string(group);
  },
  (reader) => {
    const envelope = { contentType: "", kind: Kind.MESSAGE, to: "", correlationId: "", expiresAfterMs: 0, content: new Uint8Array(), group: "" };
    const headers = [];
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      if (tag === 10) envelope.contentType = reader.string();
      else if (tag === 18) headers.push(Header.decode(reader, reader.uint32()));
      else if (tag === 24) envelope.kind = reader.int32();
      else if (tag === 34) envelope.to = reader.string();
      else if (tag === 42) envelope.correlationId = reader.string();
      else if (tag === 48) envelope.expiresAfterMs = reader.uint64Number();
      else if (tag === 58) envelope.content = reader.bytes();
      else if (tag === 66) envelope.group = reader.string();
      else reader.skipType(tag & 7);
    }
    return { ...envelope, headers: Object.fromEntries(headers) };
  },
);

/** Return the payload of an envelope, such as `{ content, contentType: "application/json", headers: { trace: "42" } }`. */
export function encode(envelope) {
  const body = encodeMessage(envelope, Envelope);
  const payload = new Uint8Array(PREFIX.length + body.length);
  payload.set(PREFIX);
  payload.set(body, PREFIX.length);
  return payload;
}

/** Return the envelope in a payload; undefined if it has none, a broken one, or one of an unknown kind. */
export function decode(payload) {
  if (!PREFIX.every((byte, index) => payload[index] === byte)) return undefined;
  try {
    const envelope = decodeMessage(payload.subarray(PREFIX.length), Envelope);
    return Object.values(Kind).includes(envelope.kind) ? envelope : undefined;
  } catch {
    return undefined;
  }
}
