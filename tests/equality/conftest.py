"""Files that pytest must not import."""

collect_ignore = ["version_0_1/fill.py"]  # needs the modules of version 0.1
