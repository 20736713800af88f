"""Protobuf schemas of libp2p and the code that `make proto` generates from them, for use in `fairway.libp2p` only."""
