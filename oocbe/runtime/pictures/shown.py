"""Base of everything that has a summary for notebooks."""

from __future__ import annotations

from collections.abc import Sequence


class Shown:
    """What has a title, and facts with their names."""

    def _summary(self) -> tuple[str, Sequence[tuple[str, object]]]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from oocbe.runtime.pictures.html import card

        title, facts = self._summary()
        return card(title, facts)
