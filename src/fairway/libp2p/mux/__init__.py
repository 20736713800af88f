"""Stream muxers, sans-IO: many streams over one connection, by yamux or by mplex."""
