"""``import oocbe``: quick, complete, and free of heavy modules until something needs them."""

import subprocess
import sys

import pytest

import oocbe

HEAVY = ("numpy", "numba", "zarr", "rich")


def test_every_public_name_exists() -> None:
    for name in oocbe.__all__:
        assert getattr(oocbe, name) is not None, name
    assert set(oocbe.__all__) <= set(dir(oocbe))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="colour"):
        _ = oocbe.colour  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("oocbe", HEAVY),
        ("oocbe.cli.main", HEAVY),
        ("oocbe.api.tasks.verbs, oocbe.formats.registry", ("numba", "scipy")),
    ],
)
def test_import_loads_nothing_heavy(module: str, heavy: tuple[str, ...]) -> None:
    """What reads a model compiles nothing yet, so that a malformed file is refused at once."""
    code = f"import sys, {module}; print(*[m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_small_solve_loads_no_masked_arrays() -> None:
    """``np.unique`` without counts imports them, in 15 to 20 ms, where small solves take 50 to 100.

    Numba imports them too when it compiles, as in the first run on a machine: such an import does not count.
    """
    code = """if True:
        import sys
        import traceback

        class Masked:
            importers = []

            def find_spec(self, name, path=None, target=None):
                if name == "numpy.ma":
                    self.importers.append([frame.filename for frame in traceback.extract_stack()])

        sys.meta_path.insert(0, Masked())

        import numpy as np
        import oocbe

        rng = np.random.default_rng(1)
        costs = [oocbe.Function.from_array((v,), [0, int(rng.integers(10, 99))]) for v in range(60)]
        scopes = [sorted(rng.choice(60, size, replace=False).tolist()) for size in rng.integers(2, 6, 80)]
        covers = [oocbe.Constraint(tuple(scope), [[0] * len(scope)]) for scope in scopes]
        sets = [oocbe.Variable(f"s{v}", 2) for v in range(60)]
        result = oocbe.solve(oocbe.Problem(tuple(sets), tuple(costs), tuple(covers)), backend="cpu")
        ours = [files for files in Masked.importers if not any("/numba/" in file for file in files)]
        print(result.value, ours)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["790", "[]"]
