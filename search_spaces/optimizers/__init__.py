"""The default space of each optimizer, and the papers' grids, in a module with the optimizer's name."""
