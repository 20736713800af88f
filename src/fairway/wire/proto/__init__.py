"""Protobuf schemas and the code generated from them (``make proto``). Nothing of it leaves `fairway.wire`."""
