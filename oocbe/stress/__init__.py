"""Synthetic problems: networks of binary functions, and days of photographs like those of SPOT5. All are seeded."""

from oocbe.stress.tables import Spot5Settings, grid_network, random_network, scale_free_network, spot5_day

__all__ = ["Spot5Settings", "grid_network", "random_network", "scale_free_network", "spot5_day"]
