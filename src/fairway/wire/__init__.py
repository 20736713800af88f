"""The byte layouts, one file each: WakuMessage and its hash, topics, requests, SDS, segments, archives.

The package is pure: it reads no clock, draws no random numbers, does no I/O and does not log. Received bytes decode to
a value or raise `fairway.errors.DecodeError`. Generated protobuf types are used only in this package.
"""
