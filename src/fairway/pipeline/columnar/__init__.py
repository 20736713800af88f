"""Decodes many messages at once: NumPy processes positions in one buffer instead of single messages.

`FieldCursor` reads protobuf fields, `sds` and `segment` the fields of messages and segments. They read only the
**canonical** messages of a batch, as all known encoders write them: each field once, in ascending order of the field
numbers, without unknown fields. Any other message is only marked as not canonical; the scalar codecs
(`fairway.wire.sds`, `fairway.wire.segment`) decode it.

Invariant: for a canonical message the result is that of the scalar codec. A message in doubt is not canonical.
"""
