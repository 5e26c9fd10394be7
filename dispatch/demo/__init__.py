"""A load that proves itself: turns that leave witness lines, a nemesis for their workers, and the proof afterwards."""
