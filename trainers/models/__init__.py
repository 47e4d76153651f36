"""Models, one module each. The contract is `trainers.engine.oracles.oracle.ModelBuilder`; "_" modules are shared."""
