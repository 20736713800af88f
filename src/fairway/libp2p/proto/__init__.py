"""Protobuf schemas of libp2p and what `make proto` generates from them; none of it leaves `fairway.libp2p`."""
