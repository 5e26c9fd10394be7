"""Jobs of kind goal_loop: an agent runs again and again until what it was to reach is validated."""
