// zerokit in WebAssembly: reads one JSON object from standard input, prints one. Elements are hex, little-endian.
// `key` is a file in the form of snarkjs; of it only the verifying key is used.
import fs from "node:fs";
import * as zerokit from "@waku/zerokit-rln-wasm";

const asked = JSON.parse(fs.readFileSync(0, "utf8"));
const library = new URL(import.meta.resolve("@waku/zerokit-rln-wasm")).pathname.replace(/[^/]*$/, "rln_wasm_bg.wasm");
zerokit.initSync({ module: fs.readFileSync(library) });
const circuit = zerokit.newRLN(fs.readFileSync(asked.key));

const bytes = (hex) => Buffer.from(hex, "hex");
const hex = (array) => Buffer.from(array).toString("hex");
const length = (count) => {
  const written = Buffer.alloc(8);
  written.writeBigUInt64LE(BigInt(count));
  return written;
};
const values = (proof) =>
  Buffer.concat(["proof", "root", "external", "x", "y", "nullifier"].map((name) => bytes(proof[name])));
const holds = (proof) => {
  const signal = bytes(proof.signal);
  const input = Buffer.concat([values(proof), length(signal.length), signal]);
  return zerokit.verifyWithRoots(circuit, input, bytes(asked.root));
};

const [first, second] = asked.proofs;
const members = asked.seeds.map((seed) => hex(zerokit.generateSeededExtendedMembershipKey(circuit, bytes(seed))));
console.log(
  JSON.stringify({
    holds: asked.proofs.map(holds),
    secret: hex(zerokit.recovedIDSecret(circuit, values(first), values(second))),
    members,
    hash: hex(zerokit.hash(bytes(first.signal))),
  }),
);
