"""The Waku protocols between two nodes: light push, filter, store and metadata, each side of them.

The services are functions from the bytes of a request to the bytes of a response, with the time as an argument; what
moves bytes over streams is `fairway.nodes.protocols.exchange`.
"""
