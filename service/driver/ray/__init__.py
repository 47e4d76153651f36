"""Packs on a Ray cluster.

    tune, worker                hands packs to Ray Tune; trains one pack at a time
    cluster, cluster_address    starts Ray on this machine, or joins a cluster; waits until a cluster answers
    early_ray, lean_ray         starts Ray before it is needed; leaves out parts of Ray that are not needed
    start_worker                the program that becomes a worker of a private Ray
    capacity, mutex             how many packs fit; one study at a time on a cluster
    ray_nodes                   the other nodes of a program's trial
    url_data                    reads a study's data at URLs before its first trial, on a worker
    url_fetch                   copies these data, while a worker keeps reporting
    ray_variables, environment  environment variables of Ray; temporary ones
    worker_output               logs what workers print

Ray is imported in this package only. It imports `service.driver.search`, never the reverse.
"""
