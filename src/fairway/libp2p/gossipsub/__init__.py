"""gossipsub 1.1 as Waku's relay uses it: a router without sockets, and its driver on a host."""
