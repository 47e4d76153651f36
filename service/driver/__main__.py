"""``python -m service.driver``."""

from service.driver.main import entry

if __name__ == "__main__":
    entry()
