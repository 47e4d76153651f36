"""Which examples a step sees: `examples` draws the clients' batches, `with_central` adds the server's batches."""
