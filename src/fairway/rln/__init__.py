"""RLN-V2: a rate limit that every relay can check, without knowing who sends (17/WAKU2-RLN-RELAY).

- `native` loads the compiled package fairway-rln: the circuit and the Poseidon hash.
"""
