"""Fragments of ``changes/`` become lines of the changelog."""

from __future__ import annotations

import importlib

import pytest

make_changelog = importlib.import_module("tools.make_changelog")

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- old\n\n## [0.1.0]\n\n### Fixed\n\n- older\n"


@pytest.fixture
def changes(tmp_path, monkeypatch):
    monkeypatch.setattr(make_changelog, "CHANGES", tmp_path)
    return tmp_path


def test_fragments_come_first_in_the_section_of_their_kind(changes):
    (changes / "README.md").write_text("how")
    (changes / "new.added.md").write_text("- new\n- and more\n")
    (changes / "mended.fixed.md").write_text("mended\n")
    made = make_changelog.with_fragments(CHANGELOG, make_changelog.fragments())
    assert made == (
        "# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n- mended\n\n### Added\n\n- new\n- and more\n- old\n\n"
        "## [0.1.0]\n\n### Fixed\n\n- older\n"
    )


def test_a_fragment_of_an_unknown_kind_is_refused(changes):
    (changes / "new.feature.md").write_text("new")
    with pytest.raises(ValueError, match=r"changes/new\.feature\.md: .* KIND one of added, changed"):
        make_changelog.fragments()


def test_fragments_of_the_repository_have_kinds():
    make_changelog.fragments()
