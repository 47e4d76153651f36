"""The driver of a study: asks samplers for trials, trains them in packs on Ray, reports to the API.

    command_line, __main__  the driver process, started with `python -m service.driver`
    lifecycle               runs a study from its lease to its release
    search                  decides what to train next, without Ray
    ray                     runs packs on a cluster
    programs                runs a trial's program in place of a pack
    lease                   renews the lease on the study, and collects the reasons to stop
    job, checkpoints        what a worker gets; checkpoints of packs, on any file system
    log_shipping            sends the driver's log to the API
    preflight               checks that a Python can run a driver

A driver never touches the database, only the API.
"""
