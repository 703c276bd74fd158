"""Sweeps over junction trees on the device."""
