"""The HTTP API under /v1, for owners, drivers and administrators.

`app` assembles it, `http_server` serves it. `routes` has one module per resource; `dependencies` has their FastAPI
dependencies. `auth` checks tokens, also those of OpenID Connect. `request_bodies` and `rate_limits` bound what a
request may cost. `study_checks` and `check_process` check studies in separate processes, `study_estimate` estimates
their cost. `computed_results` computes results, `response_cache` keeps them. `event_streams` and `study_polls` send
events.
"""
