"""Outgoing messages: a send, its segments, and their stages: segment, SDS, encrypt, limit, dispatch."""
