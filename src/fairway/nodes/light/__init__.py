"""A Waku light client over libp2p: light push, filter and store at service nodes."""

from fairway.nodes.light.node import LightNode, LightStatistics
from fairway.nodes.light.options import AdvancedLightOptions, LightOptions

__all__ = ["AdvancedLightOptions", "LightNode", "LightOptions", "LightStatistics"]
