"""Message segmentation: large messages are sent as segments, of which some may be lost (SEGMENTATION; LIP-243).

* `segmenter` splits a payload into segments and adds parity.
* `reassembler` rebuilds payloads from segments. `Reassembler.accept` takes a segment and returns one of the `outcomes`.
  It uses `segment_set`, `open_sets`, `assembly` and `records`.
* `leopard` is the Reed-Solomon code.

Invariant: each sending of a payload is returned once, and only with the Keccak-256 that its segments name.
"""
