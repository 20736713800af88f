"""Message segmentation: large messages are sent as segments, of which some may be lost (SEGMENTATION; LIP-243).

* `segmenter` makes segments of a payload, with parity.
* `reassembler` makes payloads of segments, which come in any order and from many senders at once; its answers are
  `outcomes`. It consists of `segment_set`, `generations`, `assembly` with `digest`, `open_sets` with `priorities`,
  `ended_sets` and `records`.
* `leopard` is the Reed-Solomon code. It consists of `galois`, `cauchy`, `stripes`, `transform`, `matrix`, `decoding`
  and `workspace`.

Invariant: each sending of a payload is handed out once, and only with the Keccak-256 that its segments name.
"""
