"""Two participants, no network: the whole protocol as values.

Every call on a `Stack` takes the time and returns effects. This program is the shell around two of them: it carries
what one publishes to the other, and lets time pass by jumping to the next deadline.

Run it: python examples/two_stacks.py
"""

from __future__ import annotations

from fairway.protocol.effects import Effect, Emit, NodeAnswer, Publish
from fairway.protocol.stack import Stack

now_ms = 1_760_000_000_000
stacks = {
    name: Stack("team", name, "/example/1/team/proto", now_ms=now_ms, seed=name.encode().ljust(16, b"."))
    for name in ("alice", "bob")
}


def carry_out(name: str, effects: tuple[Effect, ...]) -> None:
    """Do what one participant wants done: tell its events, and bring its messages to the other."""
    other = "bob" if name == "alice" else "alice"
    for effect in effects:
        match effect:
            case Emit(event=event):
                print(f"{name:>6}: {type(event).__name__}")
            case Publish(message=message, token=token):
                carry_out(other, stacks[other].receive(message, now_ms))
                carry_out(name, stacks[name].published(token, NodeAnswer(accepted=True), now_ms))


accepted = stacks["alice"].send(b"who is on watch?", now_ms)
carry_out("alice", accepted.effects)

# Nobody answers in words; bob's next sync message acknowledges the question all the same.
for _ in range(10):
    now_ms = min(at for stack in stacks.values() if (at := stack.next_deadline()) is not None)
    for name, stack in stacks.items():
        carry_out(name, stack.tick(now_ms))

open_requests = stacks["alice"].statistics().open_requests
print(f"alice waits for {open_requests} acknowledgements")
raise SystemExit(open_requests)
