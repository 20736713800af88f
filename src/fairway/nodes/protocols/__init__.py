"""The Waku protocols between two nodes: light push, filter, store and metadata, each side of them.

The services are functions from the bytes of a request to the bytes of a response, with the time as an argument.
`fairway.nodes.protocols.exchange` moves the bytes over streams.
"""
