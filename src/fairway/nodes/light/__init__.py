"""A Waku light client over libp2p: light push, filter and store at service nodes."""

from fairway.nodes.light.node import LightNode, LightStatistics
from fairway.nodes.light.options import LightOptions

__all__ = ["LightNode", "LightOptions", "LightStatistics"]
