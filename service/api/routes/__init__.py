"""The routes, one module per resource.

    studies   submit, list, pause, resume, cancel, extend, retry, delete
    trials    trials, their curves, and the results computed from them
    driver    what a study's driver asks and reports
    events    a study's events, as server-sent events
    logs      logs of a study's drivers
    uploads   packed files of programs
    access    tokens, quotas and the audit trail
    health    liveness, readiness and metrics of the process; without a token

Each module has a router, ROUTER, which `service.api.app` includes.
"""
