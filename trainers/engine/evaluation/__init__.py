"""Measurements of a model: `views` for reports, `after_adaptation` for held-out clients, `flops` for operations."""
