"""Reads many encoded messages at once: NumPy moves over positions in one buffer, not over messages.

`FieldCursor` reads protobuf fields, `sds` and `segment` what fairway's messages and segments have in them. They read
the **canonical** messages of a batch, those that every encoder of the field writes: each field once, in ascending order
of the field numbers, nothing unknown in between. Of every other message they only say that it is not canonical; the
scalar codecs (`fairway.wire.sds`, `fairway.wire.segment`) decide what it is.

Invariant: what is read of a canonical message is what the scalar codec reads. A doubt costs time, never correctness.
"""
