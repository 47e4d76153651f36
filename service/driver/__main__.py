"""``python -m service.driver``."""

import sys

from service.driver.command_line import main
from service.garbage import collect_rarely

if __name__ == "__main__":
    collect_rarely()
    sys.exit(main())
