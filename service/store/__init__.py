"""Persistent state, in SQLite or PostgreSQL: `Store` has one attribute per part, each in its own module.

    store                          `Store`, which puts all parts together
    session                        what the parts share: transactions, fencing, events and the clock
    schema, states                 the tables; the allowed changes of state
    database, migrations           connections, upgrades; the migrations
    postgresql                     connections with timeouts

    stored_studies, stored_trials  studies; trials, and the packs in which they run
    trial_rows, stored_spec        operations that parts share; what is read of a study's document
    curves, curve_segments         curves by trial and round; the segments in which they are stored
    plans, retries                 plans of studies; FAILED trials that are run again
    leases, local_processes        drivers' leases; whether a holder on this machine has ended
    stored_events, stored_logs     a study's history; drivers' logs
    stored_tokens, quotas, audit   tokens as hashes; quotas of projects; who did what
    idempotency, deletions         repeated requests; studies that are deleted in small steps
    locks, facts                   locks between processes; facts about the database
    recorder_state                 what the recorder has written to MLflow
    progress, stats                counts of a study's trials by label; counts over the whole store
    sizes, archives                sizes of stored curves; packed files of programs

No other package of the service uses SQL.
"""
