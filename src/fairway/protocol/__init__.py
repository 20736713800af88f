"""The protocol, pure: no clock, no randomness, no I/O, no await (design.md section 2).

Time and randomness are arguments; what must happen outside comes back as effects. The same code runs in a live
application, in a simulator and in a Spark executor.
"""
