"""Makes the folder a package of its own: other distributions install a package of this name, which would hide it."""
