"""fairway: reliable group channels over the Waku network."""
