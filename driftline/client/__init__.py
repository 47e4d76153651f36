"""HTTP: a connection with retries, and what each side asks of a service.

`api_client` serves the owner of studies, `driver_client` the driver of one study, `admin_client` an administrator;
`environment` reads DRIFTLINE_URL, DRIFTLINE_TOKEN and DRIFTLINE_OUT. Imports only `driftline.wire`.
"""
