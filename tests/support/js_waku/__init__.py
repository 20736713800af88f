"""A model of js-waku's SDS channel: fairway's own state machine with every fault of js-waku switched on.

fairway does what SDS means where js-waku does not (docs/decisions/specifications.md, "Faults of other
implementations"). To replay js-waku's records step by step, each of its departures is one override of a part of
`fairway.protocol.sds`, documented where it stands, and named in `faults.Fault`. What is not overridden is fairway's own
code, so that a record which is reproduced speaks for that as well.
"""
