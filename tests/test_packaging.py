"""The recipe and the container file say what the package says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"isal": "python-isal"}
"""Names of conda packages that differ from those of the distributions."""


def bounds(requirement):
    """Name of a requirement, and its bounds as a set."""
    name, rest = re.fullmatch(r"([\w-]+)\s*(.*)", requirement.partition(";")[0].strip()).groups()
    return name, frozenset(filter(None, rest.replace(" ", "").split(",")))


def test_the_recipe_needs_what_the_package_needs():
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    needed = dict(map(bounds, PROJECT["dependencies"]))
    expected = {CONDA_NAMES.get(name, name): own for name, own in needed.items()}
    expected["python"] = frozenset([PROJECT["requires-python"]])
    assert dict(map(bounds, recipe["requirements"]["run"])) == expected
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["about"]["license"] == PROJECT["license"]
    name, _, target = recipe["build"]["python"]["entry_points"][0].partition(" = ")
    assert PROJECT["scripts"] == {name: target}
    for own in recipe["tests"][1]["package_contents"]["site_packages"]:
        assert (ROOT / own).exists()


def test_the_container_file_names_extras_and_no_registry():
    text = (ROOT / "packaging/Containerfile").read_text()
    extras = re.findall(r"EXTRAS=([\w,]+)", text)
    assert extras and {name for own in extras for name in own.split(",")} <= set(PROJECT["optional-dependencies"])
    images = re.findall(r"^ARG PYTHON=(\S+)$|^FROM (\S+)", text, flags=re.M)
    assert all("/" not in own and "." not in own.partition(":")[0] for pair in images for own in pair)
