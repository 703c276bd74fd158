"""What goes into a solve: options, how their values are read, and what the machine allows."""
