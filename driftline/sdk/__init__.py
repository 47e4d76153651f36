"""The Python interface: `Client`, `Job`, `Frontier`, `AsyncClient`, `OfflineService`.

`client.Client` uses a `studies.Studies`: `remote` for a service, or for this process the one that the entry point group
``driftline.local`` provides. Imports client, results, wire and study.
"""
