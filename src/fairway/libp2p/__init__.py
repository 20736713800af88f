"""A subset of libp2p that knows nothing of Waku: what a peer needs to be reached, secured and talked to.

State machines that do no I/O stand under thin asyncio drivers. Whatever a peer sends, what is raised for it is a
`Libp2pError`, and it ends that peer's stream or connection, never the node.
"""
