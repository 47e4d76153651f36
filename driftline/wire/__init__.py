"""Messages between clients, the API and drivers: frozen pydantic records that refuse unknown keys.

    records          studies, trials and events as they are stored and sent
    driver_messages  bodies of a driver's requests, and their answers
    curve_codec      curves as compressed blocks, from worker to store; imports no pydantic
    curve_columns    curves as one list per metric
    budgets          a larger budget, failed trials to run again, the estimated cost of a study
    access           tokens, quotas and the audit trail
    durations        durations as people read them
    logs             lines of a driver's log
    ids              identifiers of studies, trials and packs

Imports driftline.study, driftline.errors and trainers.
"""
