"""A Ray of the tests' own on this machine."""

from pathlib import Path


def start(folder: Path | str, cpus: int) -> None:
    """Starts it, in a short folder, under the settings that the environment has now."""
    import ray

    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 1024 * 1024,
        _temp_dir=str(folder),
    )
