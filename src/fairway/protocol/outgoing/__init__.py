"""The way out: a send, its segments, and how each leaves: segment, SDS, encrypt, limit, dispatch."""
