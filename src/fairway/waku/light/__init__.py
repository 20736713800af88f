"""A Waku light client over libp2p: light push, filter and store at service nodes."""

from fairway.waku.light.node import LightNode, LightStatistics
from fairway.waku.light.options import LightOptions

__all__ = ["LightNode", "LightOptions", "LightStatistics"]
