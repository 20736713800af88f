"""Coverage-guided fuzzing of everything that reads bytes from the network; docs/fuzzing.md says how to run it.

A target is a function of bytes that raises when a promise is broken: a decoder raises `DecodeError` or gives a value
that survives being encoded and decoded again, the protocol raises nothing at all and keeps its bounds. Targets need
nothing but fairway, so that the test suite can replay any input; only `fuzz.__main__` needs the fuzzer.
"""
