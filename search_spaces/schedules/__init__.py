"""The default space of each schedule, and the papers' grids, in a module with the schedule's name."""
