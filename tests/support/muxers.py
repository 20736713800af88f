"""The two muxers of libp2p, for tests that must pass with each."""

from __future__ import annotations

import pytest

# The runs of a contributor take the muxer that nodes prefer; codecs and hosts are tested with both there as well.
MUXERS = pytest.mark.parametrize("muxer", ["/yamux/1.0.0", pytest.param("/mplex/6.7.0", marks=pytest.mark.full)])
