"""`python -m service.cli`, the same as `driftline`."""

from service.cli.main import main

main()
