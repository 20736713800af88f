// JSON lines: one command on a line of stdin, one event on a line of stdout. Ends with stdin.
import { createInterface } from "node:readline";

export function say(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + "\n");
}

export async function obey(commands) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...fields } = JSON.parse(line);
    // Commands run side by side, as calls of a program would.
    Promise.resolve()
      .then(() => commands[name](fields))
      .catch((error) => say("failed", { command: name, detail: String(error?.message ?? error) }));
  }
  process.exit(0);
}

export const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
export const text = (data) => Buffer.from(data).toString("base64");
