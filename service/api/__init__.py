"""The HTTP API under /v1, for owners, drivers and administrators.

`app` assembles it, `http_server` serves it. `routes` has one module per resource; `dependencies` has their FastAPI
dependencies. `auth` checks tokens, also those of OpenID Connect. `request_bodies`, `rate_limits` and `pagination` bound
what a request may cost, `allowed_files` what a study may read. `error_responses` makes all errors, `metrics` counts,
`probes` says whether a process works. `study_checks` and `check_process` check studies in separate processes,
`study_estimate` estimates their cost. `computed_results` computes results, `response_cache` keeps them. `event_streams`
and `study_polls` send events.
"""
