"""Message segmentation: large messages travel as segments, and some of them may be lost (seed 003; LIP-243).

* `segmenter`: payload to segments, with Reed-Solomon parity
* `reassembler`: segments to payload, in any order, from many senders at once; `outcomes` are its answers
* `generations`, `segment_set`, `open_sets`, `completed_sets`, `assembly`, `records`: the reassembler's parts
* `leopard`: the Reed-Solomon code; `galois`, `cauchy`, `stripes`, `transform`, `combination`, `decoding`: its parts

Invariant: each sending of a payload comes out once, and only with the Keccak-256 that its segments promised.
"""
