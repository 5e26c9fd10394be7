"""Work that comes by the clock: when a schedule falls due, and what becomes of each due time."""
