"""Constraints that files state as Python expressions, evaluated without Python's ``eval``.

An expression becomes a tree of what is listed here, and nothing else: numbers, texts, variables, arithmetic,
comparisons, ``and``, ``or``, ``not``, ``x if c else y``, a few functions of numbers and lists, a body of ``if``,
``return`` and assignments to names of its own. There is no attribute, no index, no call of anything else, so nothing
that a file says can reach the interpreter.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from oocbe.formats.text import SHOWN_CHARACTERS
from oocbe.formats.yaml_nodes import Scalar

Values = Mapping[str, Scalar]
"""Values of variables by name."""

Evaluated = Callable[[Values], object]
"""A part of an expression, ready to be evaluated."""

LONGEST = 20_000
"""Characters of an expression at most."""

MOST_BITS = 4096
"""Bits that an integer power or product may have: a few characters can ask for gigabytes."""

MOST_DIGITS = 400
"""Digits before or behind the point that a number is rounded to at most: float64 has fewer."""


class ExpressionError(ValueError):
    """An expression that is none, or that is not allowed; ``line`` is its line within the expression, from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, eq=False)
class PythonExpression:
    """An expression. ``names`` are its variables, in the order in which they first appear."""

    names: tuple[str, ...]
    _evaluate: Evaluated

    def value(self, values: Values) -> int | float:
        """Its value; ExpressionError if that is no number (infinity is one, NaN is not)."""
        try:
            found = self._evaluate(values)
        except KeyError as error:
            raise ExpressionError(f"{error} has no value yet") from None
        except (ArithmeticError, ValueError, TypeError) as error:
            raise ExpressionError(str(error)) from None
        except (RecursionError, MemoryError) as error:
            raise ExpressionError(f"nothing that can be evaluated ({type(error).__name__})") from None
        if isinstance(found, bool):
            return int(found)
        if not isinstance(found, int | float) or found != found:
            raise ExpressionError(f"it is {_shown(found)}, which is no number")
        return found


def parse_expression(text: str) -> PythonExpression:
    """Read an expression, or a body of ``if`` and ``return``; ExpressionError where it has anything else."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression of {len(text):,} characters, expected at most {LONGEST:,}")
    reader = _ExpressionReader()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # advice for who writes Python, such as of "1if x else 2"
            body = ast.parse(text.strip()).body
        if len(body) == 1 and isinstance(body[0], ast.Expr):
            evaluate = reader.expression(body[0].value)
        else:
            evaluate = reader.body(body)
    except SyntaxError as error:
        raise ExpressionError(f"no expression: {error.msg}", error.lineno or 1) from None
    except (RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(f"no expression that can be read ({type(error).__name__})") from None
    return PythonExpression(tuple(reader.names), evaluate)


def _number(value: object) -> int | float:
    if not isinstance(value, int | float):
        raise TypeError(f"{_shown(value)} is no number")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _product(left: int | float, right: int | float) -> int | float:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MOST_BITS + 1:
        raise ValueError(f"a product of more than {MOST_BITS} bits")
    return left * right


def _is_in(value: object, others: object) -> bool:
    if isinstance(others, tuple) or (isinstance(others, str) and isinstance(value, str)):
        return value in others
    raise TypeError(f"{_shown(others)} has nothing in it: neither a list nor a text")


def _power(base: int | float, exponent: int | float) -> int | float:
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent > 0 and base.bit_length() * exponent > MOST_BITS:
            raise ValueError(f"a power of more than {MOST_BITS} bits")
        return base**exponent if exponent >= 0 else float(base) ** exponent
    found = base**exponent
    if isinstance(found, complex):
        raise ValueError("a root of a negative number")
    return float(found)


def _rounded(value: int | float, digits: int | float = 0) -> int | float:
    """Python's ``round``, with a limit on digits: for an integer it computes a power of ten."""
    if not isinstance(digits, int) or abs(digits) > MOST_DIGITS:
        raise ValueError(f"rounded to {digits} digits, expected an integer of at most {MOST_DIGITS}")
    return round(value, digits) if digits else round(value)


def _float(value: object) -> float:
    """Python's ``float``, also of texts such as ``inf``."""
    if isinstance(value, str) and (len(value) > MOST_DIGITS or "_" in value):
        raise ValueError(f"{_shown(value)} is no number")
    return float(value if isinstance(value, str) else _number(value))


_ARITHMETIC: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _product,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_SIGNS: dict[type[ast.unaryop], Callable[[int | float], int | float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARISONS: dict[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: lambda a, b: _number(a) < _number(b),
    ast.LtE: lambda a, b: _number(a) <= _number(b),
    ast.Gt: lambda a, b: _number(a) > _number(b),
    ast.GtE: lambda a, b: _number(a) >= _number(b),
    ast.In: _is_in,
    ast.NotIn: lambda a, b: not _is_in(a, b),
}
_FUNCTIONS: dict[str, Callable[..., int | float]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": _rounded,
    "int": int,
    "bool": bool,
    "pow": _power,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
}
"""Functions of numbers that an expression may call."""

_OF_LISTS: dict[str, Callable[[Sequence[int | float]], int | float]] = {
    "min": min,
    "max": max,
    "sum": lambda numbers: reduce(operator.add, numbers, 0),  # sum itself rounds otherwise from Python 3.12 on
    "len": len,
    "any": any,
    "all": all,
}
"""Functions of one list or tuple of numbers that an expression may call."""

KNOWN_FUNCTIONS = tuple(dict.fromkeys([*_FUNCTIONS, "float", *_OF_LISTS]))
"""All functions that an expression may call."""

_GOES_ON = object()
"""Value of statements that return nothing."""


def _returns(statement: ast.stmt) -> bool:
    """Whether a statement returns, whatever the values are."""
    if isinstance(statement, ast.If):
        return any(map(_returns, statement.body)) and any(map(_returns, statement.orelse))
    return isinstance(statement, ast.Return)


class _ExpressionReader:
    """Makes functions of the parts of an expression; ``names`` are the variables met on the way."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._assigned: set[str] = set()

    def body(self, statements: Sequence[ast.stmt]) -> Evaluated:
        """Statements of which one returns, whatever the values are."""
        # As in Python, a name that is assigned to anywhere is the body's own everywhere.
        everything = (node for statement in statements for node in ast.walk(statement))
        self._assigned = {n.id for n in everything if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner = self._statements(statements)
        if not any(map(_returns, statements)):
            raise ExpressionError("a body that ends without return")
        return lambda values: inner(dict(values))

    def _statements(self, statements: Sequence[ast.stmt]) -> Evaluated:
        """Statements in a row; they are worth :data:`_GOES_ON` where none returns."""
        parts = []
        for statement in statements:
            parts.append(self._statement(statement))
            if _returns(statement):
                break

        def evaluate(values: Values) -> object:
            for part in parts:
                found = part(values)
                if found is not _GOES_ON:
                    return found
            return _GOES_ON

        return evaluate

    def _statement(self, statement: ast.stmt) -> Evaluated:
        if isinstance(statement, ast.Return) and statement.value is not None:
            return self.expression(statement.value)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return self._assignment(statement.targets[0], statement.value)
        if not isinstance(statement, ast.If):
            raise _refusal(statement)
        condition = self.expression(statement.test)
        then, other = self._statements(statement.body), self._statements(statement.orelse)
        return lambda values: then(values) if condition(values) else other(values)

    def _assignment(self, target: ast.expr, value: ast.expr) -> Evaluated:
        """Gives a name of the body's own a value; a body works on a copy of the variables' values."""
        if not isinstance(target, ast.Name):
            raise _refusal(target)
        name, evaluate = target.id, self.expression(value)

        def assign(values: Values) -> object:
            assert isinstance(values, dict)
            found = evaluate(values)
            # Lists of lists would double with each assignment, and so would the time to compare them.
            if isinstance(found, tuple) and any(isinstance(part, tuple) for part in found):
                raise TypeError(f"a list of lists is given to {name}")
            values[name] = found
            return _GOES_ON

        return assign

    def expression(self, node: ast.expr) -> Evaluated:
        """One part and what is within it."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
            constant = node.value
            return lambda values: constant
        if isinstance(node, ast.Name):
            name = node.id
            if name not in self._assigned:
                self.names.setdefault(name)
            return lambda values: values[name]
        if isinstance(node, ast.IfExp):
            condition, then, other = (self.expression(part) for part in (node.test, node.body, node.orelse))
            return lambda values: then(values) if condition(values) else other(values)
        if isinstance(node, ast.BoolOp):
            return self._of_truth(node)
        if isinstance(node, ast.UnaryOp):
            operand = self.expression(node.operand)
            if isinstance(node.op, ast.Not):
                return lambda values: not operand(values)
            if type(node.op) in _SIGNS:
                sign = _SIGNS[type(node.op)]
                return lambda values: sign(_number(operand(values)))
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right, combine = self.expression(node.left), self.expression(node.right), _ARITHMETIC[type(node.op)]
            return lambda values: combine(_number(left(values)), _number(right(values)))
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
            return self._comparison(node)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = [self.expression(part) for part in node.elts]
            return lambda values: tuple(part(values) for part in parts)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise _refusal(node)

    def _of_truth(self, node: ast.BoolOp) -> Evaluated:
        parts = [self.expression(part) for part in node.values]
        stops_at = isinstance(node.op, ast.Or)

        def evaluate(values: Values) -> object:
            found: object = None
            for part in parts:
                found = part(values)
                if bool(found) is stops_at:
                    break
            return found

        return evaluate

    def _comparison(self, node: ast.Compare) -> Evaluated:
        parts = [self.expression(part) for part in (node.left, *node.comparators)]
        tests = [_COMPARISONS[type(op)] for op in node.ops]

        def evaluate(values: Values) -> bool:
            left = parts[0](values)
            for test, part in zip(tests, parts[1:], strict=True):
                right = part(values)
                if not test(left, right):
                    return False
                left = right
            return True

        return evaluate

    def _call(self, node: ast.Call) -> Evaluated:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in KNOWN_FUNCTIONS or node.keywords:
            raise _refusal(node)
        arguments = [self.expression(part) for part in node.args]
        if name == "float":
            return lambda values: _float(*(argument(values) for argument in arguments))
        of_list, of_numbers = _OF_LISTS.get(name), _FUNCTIONS.get(name)

        def evaluate(values: Values) -> object:
            given = [argument(values) for argument in arguments]
            if of_list is not None and len(given) == 1 and isinstance(given[0], tuple):
                return of_list([_number(part) for part in given[0]])
            if of_numbers is None:
                raise TypeError(f"{name} of what is no list")
            return of_numbers(*map(_number, given))

        return evaluate


def _refusal(node: ast.AST) -> ExpressionError:
    shown = ast.unparse(node)[:60]
    known = f"arithmetic, comparisons, and, or, not, if and else, and {', '.join(KNOWN_FUNCTIONS)}"
    return ExpressionError(f"found {shown!r}, which is not evaluated; expected {known}", getattr(node, "lineno", 1))
