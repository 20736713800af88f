"""The Waku network as a channel sees it: the interface, and the nodes that implement it."""
