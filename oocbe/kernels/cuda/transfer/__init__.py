"""Memory of the device and the way there and back."""
