"""Finding service nodes: signed node records, lists of them in DNS, and the peers that other nodes know."""
