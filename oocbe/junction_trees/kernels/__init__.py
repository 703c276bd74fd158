"""Compiled loops of sweeps over junction trees."""
