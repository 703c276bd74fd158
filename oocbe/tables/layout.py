"""Bit layout of a packed key: the bit field of each variable of a scope.

A row's key holds the value index of each scope variable in a bit field of ``max(1, ceil(log2 size))`` bits. Fields
are placed from the least significant bit of word 0, the first variable of the scope lowest. A field never crosses a
word boundary (the rest of a word stays zero), so that extraction takes one shift and one mask. Keys compare like
numbers, the last word most significant. A table's keys are one uint64 array per word.

A *move plan* moves bit fields from one layout to another. It is an int64 array (moves, 5), one row per move: source
word, source shift, bits, destination word, destination shift. Fields adjacent in both layouts form one move, so that
most plans have one to three.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import ModelError
from oocbe.model.model_checks import as_integer, as_tuple
from oocbe.model.semiring import Semiring

Label: TypeAlias = str | int | bool
"""Label of a variable's value."""

WORD_BITS = 64
"""Bits of a key word."""


class Labels(tuple[Label, ...]):
    """Labels of a variable, one per value index, with forms of them that are made once and not for each batch of rows.

    array : as an Arrow array, once :func:`oocbe.tables.arrow.label_column` has made it.
    """

    array: Any = None

    @classmethod
    def of(cls, labels: Iterable[Label]) -> Labels:
        """The same labels; the object itself if it has these forms."""
        return labels if isinstance(labels, Labels) else cls(labels)

    @cached_property
    def kinds(self) -> set[type]:
        """Types of the labels."""
        return set(map(type, self))

    @cached_property
    def places(self) -> dict[Label, int]:
        """Value index of each label."""
        return {label: place for place, label in enumerate(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the other forms, which a worker makes itself."""
        return Labels, (tuple(self),)


INTEGER_LABELS = (-(1 << 63), 1 << 64)
"""Range of integer labels, the end excluded: other programs' formats have int64 and uint64."""


def check_integers(name: str, labels: Collection[Label]) -> None:
    """Refuse (ModelError) integer labels of a variable that do not all fit int64 or all fit uint64."""
    kinds = {kind for kind in set(map(type, labels)) if issubclass(kind, int)}
    integers = [label for label in labels if isinstance(label, int)] if kinds else []
    low, high = min(integers, default=0), max(integers, default=0)
    least, past = INTEGER_LABELS
    if low < least or high >= past or (low < 0 and high >= 1 << 63):
        raise ModelError(
            f"variable {name}: its labels are integers from {low} to {high}; all of them must fit 64 bits with a sign, "
            "or all 64 bits without: number them anew, or make text of them"
        )


def label_array(name: str, labels: Sequence[Label]) -> NDArray[Any] | None:
    """Integer labels of a variable as int64 or uint64 (labels,); None for others. ModelError if they fit neither."""
    integers = [label for label in labels if isinstance(label, int) and not isinstance(label, bool)]
    if len(integers) < len(labels):
        return None
    check_integers(name, integers)
    return np.array(integers, dtype=np.uint64 if max(integers, default=0) >= 1 << 63 else np.int64)


def as_domains(domains: Mapping[str, Any] | None) -> dict[str, Any]:
    """Given domains, but None, and numbers of values as Python's integers; ModelError: neither a number nor labels."""
    what, given = "variable {}: the size of a domain".format, (domains or {}).items()
    return {n: Labels.of(d) if isinstance(d, Iterable) else as_integer(what(n), d) for n, d in given if d is not None}


def bits_for(size: int) -> int:
    """Bits of a variable with ``size`` values: at least one."""
    return max(1, (size - 1).bit_length())


def key_words(bits: Sequence[int]) -> int:
    """Words of a key with fields of these numbers of bits, the least significant first; at least one."""
    words, shift = 1, 0
    for own in bits:
        shift += own
        if shift > WORD_BITS:
            words, shift = words + 1, own
    return words


class Field(NamedTuple):
    """Position of a variable in a key: word number, shift within the word, width in bits."""

    word: int
    shift: int
    bits: int

    @property
    def mask(self) -> int:
        """The field's ones, unshifted."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class Layout:
    """Scope and bit fields of a table's keys.

    Attributes
    ----------
    scope : variable names, the least significant first, without repetition.
    sizes : domain size of each.
    labels : labels of a variable's values, one per value index, for variables that have them. Operators propagate
        them; equality of layouts ignores them.
    """

    scope: tuple[str, ...]
    sizes: tuple[int, ...]
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.scope) != len(self.sizes):
            raise ModelError(f"{len(self.scope)} variables and {len(self.sizes)} domain sizes in one layout")
        if len(set(self.scope)) != len(self.scope):
            raise ModelError(f"a variable occurs twice in scope {self.scope}")
        kinds = {type(self.sizes), *map(type, self.sizes)}
        if kinds != {tuple, int} or min(self.sizes) < 1 or max(self.sizes) > 1 << 62:
            whats = map("variable {}: the size of a domain".format, self.scope)
            object.__setattr__(self, "sizes", tuple(map(as_integer, whats, self.sizes)))
            for name, size in zip(self.scope, self.sizes, strict=True):
                if not 1 <= size <= 1 << 62:
                    raise ModelError(f"variable {name}: domain size {size} is outside 1 .. 2^62")
        for name, labels in self.labels.items():
            if len(labels) != self.sizes[self.place(name)]:
                raise ModelError(f"variable {name}: {len(labels):,} labels for {self.sizes[self.place(name)]:,} values")

    @classmethod
    def of(cls, scope: Sequence[str], sizes: Sequence[int], *sources: Layout) -> Layout:
        """A layout with the labels of other layouts; for each variable, the first layout with labels for it counts."""
        labels = {name: found for source in reversed(sources) for name, found in source.labels.items()}
        return cls(tuple(scope), tuple(sizes), {name: labels[name] for name in scope if name in labels})

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Bit field of each scope variable."""
        fields, word, shift = [], 0, 0
        bits_of = {size: bits_for(size) for size in set(self.sizes)}
        for size in self.sizes:
            bits = bits_of[size]
            if shift + bits > WORD_BITS:
                word, shift = word + 1, 0
            fields.append(Field(word, shift, bits))
            shift += bits
        return tuple(fields)

    @cached_property
    def checks(self) -> NDArray[np.uint64]:
        """For each word what its fields lack to powers of two, the fields' lowest bits, and the largest word.

        A value beyond its domain carries into the field above where what lacks is added; the last one is compared.
        """
        checks = [[0, 0, 0] for _ in range(self.words)]
        for (word, shift, bits), size in zip(self.fields, self.sizes, strict=True):
            lacking, lowest, _ = checks[word]
            checks[word] = [lacking | ((1 << bits) - size) << shift, lowest | 1 << shift, (size << shift) - 1]
        return np.array(checks, dtype=np.uint64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.scope)}

    @property
    def words(self) -> int:
        """Number of 64-bit words in a key; at least one."""
        return self.fields[-1].word + 1 if self.fields else 1

    @property
    def bits(self) -> int:
        """Bits up to the end of the most significant field (gaps at word boundaries included)."""
        if not self.fields:
            return 0
        last = self.fields[-1]
        return last.word * WORD_BITS + last.shift + last.bits

    @cached_property
    def complete_rows(self) -> int:
        """Rows of a complete table: the product of the domain sizes (a Python integer, any size)."""
        return math.prod(self.sizes)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str) -> int:
        """Position of a variable in the scope; :class:`ModelError` if it is not in it."""
        try:
            return self._places[name]
        except KeyError:
            raise ModelError(f"variable {name} is not in scope {self.scope}") from None

    def field(self, name: str) -> Field:
        """Bit field of a variable."""
        return self.fields[self.place(name)]

    def indices_of(self, assignment: Mapping[str, int] | Sequence[int]) -> list[int]:
        """Value indices of an assignment (by name, other variables allowed, or in scope order), in scope order.

        Raises
        ------
        ModelError : a value outside its domain, a missing variable, or a wrong number of values.
        """
        if isinstance(assignment, Mapping):
            missing = [name for name in self.scope if name not in assignment]
            if missing:
                raise ModelError(f"assignment without a value for {missing[0]}; the table is over {self.scope}")
            assignment = [assignment[name] for name in self.scope]
        assignment = as_tuple(f"an assignment to {self.scope}", assignment)
        if len(assignment) != len(self.scope):
            raise ModelError(f"{len(assignment)} values for the {len(self.scope)} variables of {self.scope}")
        try:
            indices = [index(value) for value in assignment]
        except TypeError:
            raise ModelError(f"an assignment to {self.scope} has value indices, integers, not {assignment}") from None
        for name, size, value in zip(self.scope, self.sizes, indices, strict=True):
            if not 0 <= value < size:
                raise ModelError(f"variable {name}: value {value} is outside its domain, 0 to {size - 1}")
        return indices

    def pack(self, tuples: NDArray[np.integer]) -> NDArray[np.uint64]:
        """Pack value indices.

        Parameters
        ----------
        tuples : integer (rows, len(scope)), columns in scope order.

        Returns
        -------
        uint64 (words, rows), word 0 least significant.

        Raises
        ------
        ModelError : a value outside its domain.
        """
        keys = np.zeros((self.words, len(tuples)), dtype=np.uint64)
        for column, (f, size) in enumerate(zip(self.fields, self.sizes, strict=True)):
            own = tuples[:, column].astype(np.uint64)  # of negative values, more than any size
            if own.max(initial=0) >= size:
                self.indices_of(tuples[own.argmax()].tolist())
            keys[f.word] |= own << np.uint64(f.shift)
        return keys

    def key_of(self, indices: Iterable[int]) -> NDArray[np.uint64]:
        """Key, uint64 (words,), of one row's value indices in scope order, which lie in their domains."""
        words = [0] * self.words
        for value, (word, shift, _) in zip(indices, self.fields, strict=True):
            words[word] |= int(value) << shift  # of NumPy, some
        return np.array(words, dtype=np.uint64)

    def unpack(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Unpack keys uint64 (words, rows) into value indices int64 (rows, len(scope)), columns in scope order."""
        out = np.empty((keys.shape[1], len(self.scope)), dtype=np.int64)
        for column, f in enumerate(self.fields):
            out[:, column] = (keys[f.word] >> np.uint64(f.shift)) & np.uint64(f.mask)
        return out

    def select(self, names: Sequence[str]) -> Layout:
        """Layout of the given variables of this scope, in the order given."""
        names = as_tuple("variables", names)
        return Layout.of(names, [self.sizes[self.place(n)] for n in names], self)


class Scoped:
    """What has a layout, and with it a scope."""

    layout: Layout

    @property
    def scope(self) -> tuple[str, ...]:
        """Variable names, the least significant (of complete tables: the fastest) first."""
        return self.layout.scope


class Schema(NamedTuple):
    """Layout, dtype and semiring of a table, known before its values."""

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring

    @classmethod
    def of(cls, table: Any) -> Schema:
        """The schema of a table of any form."""
        return cls(table.layout, table.dtype, table.semiring)


BitRange = tuple[int, int, int]
"""Word, shift and number of some bits of a key; a :class:`~oocbe.tables.layout.Field` is one."""


def move_plan(source: Layout, destination: Layout, names: Sequence[str] | None = None) -> NDArray[np.int64]:
    """Plan that moves the fields of ``names`` from one layout to another.

    source, destination : the layouts; both contain every name. names : variables to move; None: those of both layouts.
    Returns int64 (moves, 5): source word, source shift, bits, destination word, destination shift, ascending in the
    source.
    Raises ModelError: a variable is missing in a layout or has different sizes in the two.
    """
    moves = _moves(source, destination, None if names is None else tuple(names))
    return np.array(moves, dtype=np.int64).reshape(-1, 5)


@lru_cache(maxsize=1024)
def _moves(source: Layout, destination: Layout, names: tuple[str, ...] | None) -> tuple[tuple[int, ...], ...]:
    """The plan; cached, because the pieces of a streamed table request the same one repeatedly."""
    wanted = set(source.scope) & set(destination.scope) if names is None else set(names)
    moves: list[list[int]] = []
    for name in sorted(wanted, key=source.place):
        if source.sizes[source.place(name)] != destination.sizes[destination.place(name)]:
            raise ModelError(f"variable {name} has different domain sizes in two layouts")
        here, there = source.field(name), destination.field(name)
        if moves:
            word, shift, bits, to_word, to_shift = moves[-1]
            next_places = (word, shift + bits, to_word, to_shift + bits)
            if next_places == (here.word, here.shift, there.word, there.shift):
                moves[-1][2] += here.bits
                continue
        moves.append([here.word, here.shift, here.bits, there.word, there.shift])
    return tuple(map(tuple, moves))


def field_masks(layout: Layout, names: Sequence[str]) -> NDArray[np.uint64]:
    """Mask of the bits of the given variables: uint64 (words of the layout,)."""
    return range_masks(layout.words, map(layout.field, names))


def range_masks(words: int, ranges: Iterable[BitRange]) -> NDArray[np.uint64]:
    """Ones at the bits of some ranges, uint64 (words,)."""
    masks = [0] * words
    for word, shift, bits in ranges:
        masks[word] |= ((1 << bits) - 1) << shift
    return np.array(masks, dtype=np.uint64)


def merged_ranges(ranges: Iterable[BitRange]) -> list[BitRange]:
    """Bit ranges in their order; those that follow one another upwards in one word are merged."""
    merged: list[BitRange] = []
    for word, shift, bits in ranges:
        if merged and merged[-1][0] == word and merged[-1][1] + merged[-1][2] == shift:
            merged[-1] = (word, merged[-1][1], merged[-1][2] + bits)
        else:
            merged.append((word, shift, bits))
    return merged
