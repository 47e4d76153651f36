"""Which examples a step sees: `examples` draws those of clients, `with_central` joins those of the server to them."""
