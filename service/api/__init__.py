"""The HTTP API under /v1, for owners, drivers and administrators.

    app, http_server                         assembles the app; serves it with uvicorn
    routes                                   one module per resource
    dependencies                             FastAPI dependencies of the routes
    auth                                     bearer tokens of Driftline and of OpenID Connect issuers
    request_bodies, rate_limits, pagination  bound what a request may cost
    allowed_files, allowed_programs          which files a study may name; which programs it may bring
    study_checks, check_process              check studies before they are stored; in separate processes
    study_estimate                           what a study's budget says of its cost
    computed_results, result_process         computes results; those of large studies in a process of its own
    response_cache                           keeps answers until something new is stored
    event_streams, study_polls               sends events; reads the store once for all streams of a study
    error_responses                          all errors, as problem+json
    metrics, probes                          Prometheus metrics; the app of a process without an API

The API stores in `service.store` what owners want, and `service.scheduler` acts on it.
"""
