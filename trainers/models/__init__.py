"""Models, one module each: `trainers.engine.oracles.oracle.ModelBuilder`. Modules with "_" serve several of them."""
