"""``fairway chat --web``: a channel in the browser, as one page."""
