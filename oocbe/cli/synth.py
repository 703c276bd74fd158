"""``oocbe synth``: problems and tables made from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocbe.cli.convert import save
from oocbe.cli.flags import command
from oocbe.cli.output import print_written
from oocbe.model.settings.options import SolveOptions

synth_app = typer.Typer(
    help="Generate a problem, or a table, from a seed.",
    epilog="Example: oocbe synth grid grid.wcsp --side 6 --domain 4",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutFile = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; .gz and .xz compress.")]
ToFlag = Annotated[str | None, typer.Option("--to", help="Format of OUT; default: by its suffix.")]
VariablesOption = Annotated[int, typer.Option("--variables", "-n", min=2, help="Number of variables.")]
DomainOption = Annotated[int, typer.Option("--domain", "-d", min=1, help="Values of each variable.")]
TightnessOption = Annotated[float, typer.Option("--tightness", help="Share of infeasible entries of each function.")]


@synth_app.command("random", epilog="Example: oocbe synth random random.wcsp -n 15 -d 10 --density 0.3")
@command("synth")
def random(
    out: OutFile,
    variables: VariablesOption = 10,
    domain: DomainOption = 10,
    density: Annotated[float, typer.Option("--density", help="Share of all pairs that have a function.")] = 0.3,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a random network of binary cost functions."""
    from oocbe.stress import random_network

    save(random_network(variables, domain, density, tightness, options.seed), out, to)


@synth_app.command("scale-free", epilog="Example: oocbe synth scale-free network.wcsp -n 12 -d 10")
@command("synth")
def scale_free(
    out: OutFile,
    variables: VariablesOption = 10,
    domain: DomainOption = 10,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a scale-free (Barabási–Albert) network of binary cost functions."""
    from oocbe.stress import scale_free_network

    save(scale_free_network(variables, domain, tightness, options.seed), out, to)


@synth_app.command("grid", epilog="Example: oocbe synth grid grid.wcsp --side 6 --domain 4")
@command("synth")
def grid(
    out: OutFile,
    side: Annotated[int, typer.Option("--side", min=1, help="Variables per row and per column.")] = 10,
    domain: DomainOption = 10,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a square grid of binary cost functions."""
    from oocbe.stress import grid_network

    save(grid_network(side, domain, tightness, options.seed), out, to)


@synth_app.command("spot5", epilog="Example: oocbe synth spot5 daily.spot --photographs 120 --window 10")
@command("synth")
def spot5(
    out: OutFile,
    photographs: Annotated[int, typer.Option("--photographs", "-n", min=1, help="Number of photographs.")] = 100,
    window: Annotated[float, typer.Option("--window", help="Distance, in photographs, of possible conflicts.")] = 8.0,
    stereo: Annotated[float, typer.Option("--stereo", help="Share of stereo photographs.")] = 0.5,
    down_only: Annotated[float, typer.Option("--down-only", help="Share of the others for camera 2 only.")] = 0.1,
    urgent: Annotated[float, typer.Option("--urgent", help="Share of photographs with a weight of 1,000.")] = 0.1,
    ternary: Annotated[float, typer.Option("--ternary", help="Ternary constraints per photograph.")] = 0.3,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a day of photographs like those of the SPOT5 satellite."""
    from oocbe.stress import Spot5Settings, spot5_day

    settings = Spot5Settings(photographs, window, stereo, down_only, urgent, ternary, options.seed)
    save(spot5_day(settings), out, to)


@synth_app.command("table", epilog="Example: oocbe synth table big --rows 1e8 --groups 1e6 --sizes zipf")
@command("synth")
def table(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the table, which must not exist.")],
    rows: Annotated[str, typer.Option("--rows", metavar="NUMBER", help="Rows, such as 1e9.")] = "1e6",
    groups: Annotated[str, typer.Option("--groups", metavar="NUMBER", help="Combinations of shared values.")] = "1e4",
    variables: Annotated[int, typer.Option("--variables", "-n", min=3, help="Number of variables.")] = 3,
    domain: Annotated[int, typer.Option("--domain", "-d", min=2, help="Values of e, an even number.")] = 8,
    density: Annotated[
        float, typer.Option("--density", help="Share of the values of the own variable that occur.")
    ] = 0.25,
    sizes: Annotated[str, typer.Option("--sizes", help="Sizes of groups: uniform or zipf.")] = "uniform",
    in_order: Annotated[bool, typer.Option("--sorted", help="Rows in the order of their keys, not scattered.")] = False,
    own: Annotated[str, typer.Option("--own", help="Name of the own variable; differs in a table to join.")] = "a",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Dtype of the values: int32, int64, float32 or float64.")
    ] = "int32",
    *,
    options: SolveOptions,
) -> None:
    """Generate a stored table of any size, chunk by chunk, on all cores."""
    import numpy as np

    from oocbe.errors import UsageError
    from oocbe.stress.tables import SyntheticTable

    if dtype not in ("int32", "int64", "float32", "float64"):
        raise UsageError(f"--dtype: {dtype!r} is not int32, int64, float32 or float64")
    made = SyntheticTable(
        whole_number("--rows", rows),
        whole_number("--groups", groups),
        variables,
        domain,
        density,
        sizes,
        in_order,
        own,
        options.seed,
    )
    print_written(out, made.write(out, np.dtype(dtype)))


def whole_number(name: str, text: str) -> int:
    """A number of rows or groups, such as 1000000 or 1e6."""
    from decimal import Decimal, InvalidOperation

    from oocbe.errors import UsageError

    try:
        number = Decimal(text)
        if number.is_finite() and number == number.to_integral_value() and 0 < number < 1 << 48:
            return int(number)
    except InvalidOperation:
        pass
    raise UsageError(f"{name}: {text!r} is not a whole number from 1 to 2^48; give one such as 1000000 or 1e6")
