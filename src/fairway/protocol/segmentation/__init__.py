"""Message segmentation: large messages are sent as segments, of which some may be lost (SEGMENTATION; LIP-243).

* `segmenter` makes segments of a payload, with parity.
* `reassembler` makes payloads of segments. Its one entrance is `Reassembler.accept`; its answers are `outcomes`. It
  consists of `segment_set`, `open_sets`, `assembly` and `records`.
* `leopard` is the Reed-Solomon code.

Invariant: each sending of a payload is returned once, and only with the Keccak-256 that its segments name.
"""
