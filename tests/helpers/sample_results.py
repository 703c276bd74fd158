"""A small result for tests of what is made of results."""

from oocbe.model.parts import Variable
from oocbe.model.results.result import Result, Status


def make_result(status: Status = "optimal") -> Result:
    return Result(
        status=status,
        value=3,
        assignment=(1, 0),
        variables=(Variable("a", 2, ("no", "yes")), Variable("b", 3)),
        problem="small",
        semiring="min-sum",
        sense="min",
        width=1,
        order=(1, 0),
        largest_message_rows=2,
        total_rows=3,
        seconds={"forward": 0.25, "total": 0.5},
        peak_memory_bytes=1 << 20,
        dominance=True,
        dtype="int32",
    )
