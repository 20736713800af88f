"""Message segmentation: large messages travel as segments, and some of them may be lost (SEGMENTATION; LIP-243).

* `segmenter`: payload to segments, with parity
* `reassembler`: segments to payload, in any order, from many senders at once; `outcomes` are its answers.
  Its parts: `segment_set`, `generations`, `assembly`, `open_sets` with `priorities`, `ended_sets`, `records`
* `leopard`: the Reed-Solomon code. Its parts: `galois`, `cauchy`, `stripes`, `transform`, `matrix`, `decoding`,
  `workspace`
* `digest`: Keccak-256

Invariant: each sending of a payload comes out once, and only with the Keccak-256 that its segments promised.
"""
