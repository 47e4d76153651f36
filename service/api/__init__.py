"""The HTTP API under /v1, for owners, drivers and administrators.

`app` puts it together, `http_server` serves it. `routes` has one module a resource; `dependencies` is what they ask
for. `auth` knows tokens and OpenID Connect. `request_bodies`, `http_protocol`, `rate_limits` bound what a request may
cost; `study_checks` and `check_process` check studies in processes of their own, `curve_checks` checks what drivers
report, `study_estimate` says what a study will cost. `computed_results` computes results, `response_cache` keeps them;
`event_streams` and `study_polls` send events.
"""
