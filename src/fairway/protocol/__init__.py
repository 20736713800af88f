"""The protocol, pure: no clock, no randomness, no I/O, no await (docs/protocol.md).

Time and randomness are arguments, and I/O is returned as effects. The same code runs in a live application, in a
simulator and in a Spark executor.
"""
