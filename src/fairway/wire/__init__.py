"""Every byte layout, one file each: WakuMessage and its hash, topics, requests, SDS, segments, archives.

Pure: nothing here reads a clock, draws a random number, performs I/O or logs. Bytes from outside decode to a
value or raise `fairway.errors.DecodeError`; generated protobuf types never leave this package.
"""
