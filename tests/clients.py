"""A client for tests that play owner, driver and administrator at once."""

from driftline.client.admin_client import AdminClient
from driftline.client.driver_client import DriverClient


class EveryClient(DriverClient, AdminClient):
    """Everything that can be asked of a service of any version."""

    protocol = 0
