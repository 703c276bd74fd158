"""Process services for every layer: time limits, waiting, checksums, memory regions."""
