"""``python -m service.driver``."""

import sys

from service.driver.command_line import main

if __name__ == "__main__":
    sys.exit(main())
