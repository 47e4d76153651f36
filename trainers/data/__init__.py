"""Data that tasks use: reading files, dividing examples among clients, generating quadratics and regressions."""
