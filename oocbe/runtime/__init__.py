"""What every layer needs of the process: time limits, waiting, checksums, stretches of memory."""
