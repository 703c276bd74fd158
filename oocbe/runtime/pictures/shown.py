"""Base of classes with a summary for notebooks."""

from __future__ import annotations

from collections.abc import Sequence


class Shown:
    """An object with a title and named facts."""

    def _summary(self) -> tuple[str, Sequence[tuple[str, object]]]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from oocbe.runtime.pictures.html import card

        title, facts = self._summary()
        return card(title, facts)
