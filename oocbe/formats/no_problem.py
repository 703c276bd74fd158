"""What else somebody may name where a problem is expected: said by what it is, with the command that takes it.

Nothing is read here but the names of files; :mod:`oocbe.formats.registry` looks at how a ``.json`` begins. Those of
folders' records belong to rooms above this one, which write them.
"""

from __future__ import annotations

from pathlib import Path

RECORDS = {
    "tree.json": "a junction tree, no problem; `oocbe query` asks it about cases",
    "run.json": "a run directory, no problem; `oocbe inspect` tells how far the run has come",
    "manifest.json": "a stored table, no problem; join it by oocbe.join_sum and its like, or write it as Parquet by "
    "`oocbe convert`",
}
"""What a folder is in which there is a file of some name."""

SUFFIXES = {
    ".parquet": "a table, no problem; make a stored table of it by `oocbe convert`, and join that by oocbe.join_sum "
    "and its like",
    ".csv": "a table of cases, no problem; `oocbe query --cases` takes it",
    ".json": 'not a problem, as it does not begin with {"problem":, like cost function networks; `oocbe query '
    "--cases` takes cases, and `oocbe verify FILE SOLUTION` what a solve has printed",
    ".pre": "a pedigree, which is not read by oocbe; give it as .wcsp or .uai",
    ".bep": "a selection problem of satellites, which is not read by oocbe; give it as .wcsp or .cfn",
    ".cp": "the input of toulbar2's cp2wcsp, which is not read by oocbe; give the .wcsp that cp2wcsp makes of it",
    ".evid": "evidence, no problem; name it by --evidence",
    ".sol": "a solution, no problem; `oocbe verify FILE SOLUTION` judges it",
}
"""What a file is whose name ends so, formats of toulbar2's that are not supported among them."""


def folder_description(path: Path) -> str:
    """What a folder is that is no problem, and what takes it."""
    for record, description in RECORDS.items():
        if (path / record).exists():
            return f"this is {description}"
    return "this is a folder, expected a file"


def file_description(suffix: str) -> str | None:
    """What a file is whose name's suffix promises no problem, and what takes it; None where it says nothing."""
    return SUFFIXES.get(suffix)
