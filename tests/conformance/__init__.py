"""Conformance: known answers of other implementations, replayed against this one.

`replay.replay` takes files in the formats that `formats.FORMATS` lists (what the real js-waku, nim-sds and Leopard
answered, and what LIP-243 prescribes) and returns a report per file. One module holds the checkers of one subject.
"""
