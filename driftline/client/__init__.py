"""HTTP: a `connection` with retries, and a client for each role.

`api_client` serves the owner of studies, `driver_client` the driver of one study, `admin_client` an administrator;
`environment` reads DRIFTLINE_URL, DRIFTLINE_TOKEN and DRIFTLINE_OUT; `network_settings` proxies and certificates.
"""
