"""A subset of libp2p without any knowledge of Waku: it dials peers, secures connections and carries streams.

Thin asyncio drivers run state machines that do no I/O. Any fault of a peer raises a `Libp2pError`, and ends that peer's
stream or connection, never the node.
"""
