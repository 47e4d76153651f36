"""What people use from Python: `Client`, `Job`, `Frontier`, `AsyncClient`, `OfflineService`.

`client.Client` asks `studies.Studies`: those of a service (`remote`), or those of this process, which the entry point
group ``driftline.local`` provides. Imports client, results, wire and study.
"""
