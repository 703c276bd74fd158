"""Input of a solve: options, parsing of their values, and limits of the machine."""
