"""gossipsub 1.1 as Waku's relay uses it: a router without sockets, and what joins it to a host."""
