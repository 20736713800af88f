"""The live Reliable Channel: an asyncio shell around the protocol, a node and a store."""
