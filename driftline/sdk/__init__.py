"""The Python interface: `Client`, `Job`, `Frontier`, `AsyncClient`, `OfflineService`.

    client                   `Client`: submits studies to a service, or runs them in this process
    job, job_notebook        `Job`: a submitted study; its HTML for notebooks
    frontier, frames         `Frontier`: the result of a study; trials and curves, also as pandas data frames
    compared_labels          what `compare` found, with its HTML for notebooks
    tuning                   `tune`: tunes a Python function on this computer
    shortcuts                `run`, `compare`, ...: from a study to its result without a client
    asynchronous             `AsyncClient` and its jobs, for asyncio
    offline                  `OfflineService`: a fake service for your tests
    studies                  where a client's studies run: in a service, or in this process
    remote                   submits studies to a service and finds them again
    progress, progress_view  shows the progress of a study; what is shown at one moment
    sparklines               the frontiers of a running study as one line of bars for each label

The studies of this process come from the entry point group ``driftline.local``. Imports client, results, wire and
study.
"""
