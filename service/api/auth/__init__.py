"""Who sends a request: `tokens` of Driftline's own, and `oidc` with `oidc_keys` for those of an identity provider."""
