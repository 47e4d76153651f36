"""The default space of each method, and the papers' grids, in a module with the method's name."""
