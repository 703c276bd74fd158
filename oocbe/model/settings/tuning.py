"""Numbers that decisions about speed and memory depend on: shares, factors and thresholds, each with its reason.

:mod:`oocbe.elimination.engine.decision` and the modules that carry decisions out or cut tables into pieces call
:func:`tuning` at each use. No number changes a result: tests vary them with :func:`tuned`, so that small problems take
every path of large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Tuning(NamedTuple):  # a dataclass of so many fields takes 14 ms, this 1 ms
    """Numbers of all decisions. A share is of the memory that messages or an operator may take."""

    # Shares of memory
    freed_share: float = 0.8
    """Share freed or reserved before pieces: waiting messages are written to disk, the largest first; and an operator's
    share for a partition before any piece is at work, and a worker's for the rows of a run and their sort."""
    pieces_share: float = 0.6
    """Share for pieces at work; the rest is for tables held whole, chunks being written, and indices. It is also the
    share of a join's piece for its input rows, with all that is made of them."""
    half_share: float = 0.5
    """Share for one of two kinds of data: rows to be joined, beside their result; pieces of complete tables, beside
    boxes and chunks; what is freed before a pass back over all rows; chunks beside no piece; and the expected share of
    the room for results that a piece fills, since one with too many rows is joined again in halves."""
    quarter_share: float = 0.25
    """Share for one of several kinds of data: rows read in a pass back, cells listed at a time, a piece's tables (and
    again for them laid end to end), a partition during pieces, and what messages may take in any case."""
    small_share: float = 0.1
    """Share for one of many kinds of data: the window that rows are written to, chunks in which pieces begin and end,
    weights of one message in a pass back, blocks of cases, tables waiting to be sent. It is also the maximum of the
    memory of the process itself."""
    held_share: float = 0.05
    """Share for a message, or its first rows, that may be small enough to stay in memory."""
    chunk_share: float = 0.03
    """Share for the rows of a stored chunk: one is filled and one encoded, and some are decoded, at a time."""

    # Estimates, and parts of work
    search_share: float = 0.125
    """Time of a search for better orders, or of a first bound, relative to the estimated time of an attempt at
    elimination or of a query; and the share of the remaining time that an attempt leaves to bounds."""
    margin: float = 4.0
    """Factor by which estimates are wrong at times. A bucket is given up if its forecast bytes exceed the free ones on
    disk by so much; orders run in the same round if their predicted costs differ by no more; a later attempt at
    elimination may take so many times as long as the one before; eliminations for a group of cases may take so many
    times as long as the group's tree, or its cases in a large block."""
    under_way: int = 2
    """Parts of work of each kind for each thread, worker or store: one in progress, one waiting. Also the stretches of
    a piece for cuts at the chunks' first keys: smaller pieces would read boundary chunks repeatedly."""
    parts_a_worker: int = 4
    """Minimum parts of a task for each worker or thread. With fewer, some wait for the last parts; with more, each part
    reads from more places. Also the rows of an operator's segment, as a multiple of ``segment_rows``."""
    cuts: int = 128
    """Approximate number of places at which a table or a sorted run can be cut."""
    in_flight: int = 8
    """Objects written to a store at a time, as a store takes tens of milliseconds for each, however short; and the
    distance, in reads, between threads whose reads still count as consecutive."""
    cached: int = 32
    """Objects of one kind that are kept for later work: a worker's open tables, and groups' trees of each tree."""

    # Rows
    few_rows: int = 1 << 12
    """Rows, cells or digits that cost little: minimum of a chunk or a stored tree's piece however little memory there
    is, maximum of a sample, of one thread's substitutions and of a batch of tables whose values are filtered, cells up
    to which functions are fused in any case, digits of a partition's run, and probes from the same bounds (the next
    ones start from the bounds tightened by these)."""
    stretch_rows: int = 1 << 16
    """Rows of a stretch of a table in memory, and rows of scratch files that are encoded or decoded at a time, so that
    they stay in the processor's cache."""
    many_rows: int = 1 << 20
    """Rows or steps that take some 0.1 s: maximum of a stored tree's piece, of the pairs (partial choice, row of the
    next message) of one array operation, and of cells written between checks of the deadline; a forecast's piece; steps
    after which a short walk counts as long; and the row cap of a message (before dominance) in a race's first round."""
    many_parts: int = 1 << 12
    """Variables, or functions and constraints, from which a problem is large: one loop eliminates it whenever its
    messages are small (a smaller one only if that is sure to be faster), and a plan's propagation has a time limit."""

    # Bytes
    small_bytes: int = 1 << 16
    """Bytes that take less time than a file. A smaller message is within its record: on a local disk a record takes
    some 1 ms to publish, a table 20. A smaller table is sent; to write a folder takes some hundred times as long.
    The transfer of a larger file to the disk begins at once. A smaller piece of an operator is not halved."""
    transfer_bytes: int = 1 << 24
    """Bytes on disk requested ahead of the reads, and of a part of a large object written to a store. On 2 cores and a
    disk of 0.9 GB/s, reads with decoding went from 65 to 89 % of the disk's speed, and to 83 and 81 % with two and four
    times as many."""
    buffered_bytes: int = 1 << 26
    """Bytes collected on their way: a segment of a stored tree, which is then synced (a few tenths of a second of disk
    time, and of lost work after a kill), and chunks of messages on disk that are cached."""
    work_bytes: int = 1 << 29
    """Most bytes of data for faster work: bit sets of tables in probing, a block's messages, rows of a group's tree."""
    cell_bytes: int = 24
    """Bytes of a cell with its work space: a message's value, permission, best value and probability."""
    piece_copies: int = 5
    """Copies of a piece's rows or cells: they grow by doubling (the old array beside a new one of twice the size), are
    then copied, packed or put together once, and wait for the caller."""

    # Forms of messages
    favour: float = 4.0
    """Bytes that a complete message may take, as a multiple of the bytes of its rows: a joined cell of complete tables
    takes a small part of the time of a joined row. So many times its bytes must fit in memory: the bucket's inputs, and
    the next message, lie beside it."""
    cells_a_row: float = 2000.0
    """Joined cells of complete tables that take the time of one predicted row of incomplete ones, in small problems,
    where a row costs half a microsecond to two."""
    complete_copies: int = 2
    """Copies of a complete message during its construction: in the kernel's order, then in its own."""
    device_copies: float = 1.1
    """Device memory of a bucket, as a multiple of its complete tables: kernels take some beside them."""
    row_copies: int = 3
    """Copies of a message of rows during its construction: blocks grow by doubling, and are laid end to end."""
    steps_a_row: int = 64
    """Steps of a capped run, or cells of a complete message, for each row within its cap: bounds may drop nearly all
    rows that a join tries, and a cell takes less time than a row."""
    smaller_share: float = 0.75
    """A complete table leaves the device as rows if they take less than this share of its bytes."""
    part_bytes: int = 1 << 28
    """Bytes of a part of a table on its way from the device, if the device keeps nothing of the table."""

    # Memory of a process
    message_bytes: int | None = None
    """Bytes that messages may take, whatever the process itself uses, so that a run can be repeated on any machine;
    None: what the memory limit leaves."""
    least_bytes: int = 1 << 24
    """Bytes that messages may take even if the process has used the memory limit up."""
    headroom: int = 1 << 27
    """Bytes of the memory limit for the process itself: compiled code that is loaded later, stacks of threads, buffers
    of reads and writes, and memory that the allocator cannot give back."""

    # Buckets in pieces
    forecast_pieces: int = 32
    """Pieces before a forecast of the whole bucket: the number of rows of a piece varies."""
    least_piece: int = 1 << 21
    """Bytes of a piece's rows for which there is another stream by default: counting 505.spot under 64 MiB with 16
    threads took 9 s with pieces of 2 MiB and two streams, 28 s with 16 streams."""
    most_streams: int = 16
    """Pieces at work at a time: more streams make pieces small."""

    # Operators out of core
    operator_streams: int = 4
    """Default maximum of streams: one thread a core, but no more than keep reads, kernels and writes busy."""
    merge_streams: int = 2
    """Default maximum of streams if tables have to be sorted beyond memory: one reads while the other computes. On 16
    cores, 1e8 rows under 1 GiB took 11 s with two, 18 s with four, 32 s with eight."""
    most_run_rows: int = 1 << 23
    """Maximum rows of a run of a partition: beyond some 100 MB, larger runs make neither writes nor reads faster."""
    window_bits: int = 8
    """Usual number of varying bits of a window of a partition: 256 digits are one pass of the radix sort, and enough
    parts for most tables."""
    most_window_bits: int = 11
    """Maximum of these bits. More bits take another sort pass in memory; digits that do not fit take another pass over
    rows on disk."""
    rotation_sample_rows: int = 1 << 14
    """Rows whose keys decide the rotation of unsorted chunks."""
    transpose_spread: float = 2.0
    """Ratio of decoded cells to cells of the boxes above which a stored complete table is transposed first."""
    fused_part: int = 16
    """Functions of a complete bucket are fused into one of at most this part of the joined cells: it costs a few
    percent."""

    # Passes back
    most_lookups: int = 256
    """Lookups in stored messages for one value of a forgotten message: few beside a copy of gigabytes, even if each is
    a read of its own."""
    slow_lookups: int = 16
    """Cost of a lookup among rows or on disk, in lookups of a complete table in memory, of which many are gathered at
    once; a cautious choice, not a measurement."""

    # Disks, files and stores
    parquet_buffer_bytes: int = 1 << 20
    """Buffer size of a column's stream. Without it, Arrow holds whole row groups, which may be as large as the file."""

    # CPU threads
    serial_work: int = 1 << 15
    """Expected work of a bucket join below which one thread is faster than several."""
    merged_bits: int = 12
    """Maximum index bits of a merged lookup, and bits of the separator's key that share a lookup of consumption: 4,096
    entries, since each bucket builds them in the first-level cache."""
    pairs_a_value: int = 8
    """Substitutions tried per value, the cheapest first: each takes another pass over the rows with the value."""

    # Devices
    device_work: int = 2048
    """Expected work of a join of rows from which the device is faster. Measured on an H200 beside 16 cores: a device
    bucket costs about 1 ms whatever its size, and the CPU takes as long for some 2,000 rows
    (benchmarks/gpu_buckets.py)."""
    device_cells: int = 1 << 22
    """Joined cells of complete tables from which ``auto`` takes the device: below, the CPU needs a few milliseconds."""
    device_tree_work: int = 1 << 27
    """Rows of cliques and entries of maps, of all cases of a batch, for each thread of the CPU, from which a device
    sweeps over a junction tree: the CPU needs a tenth of a second, as does the transfer of the tree."""
    device_input_share: float = 0.2
    """Share of the device's free memory for the tables of a piece: its frontiers and rows are of unknown size, and
    halved."""
    device_used_share: float = 0.5
    """Share of the device's memory in use up to which joined tables stay there: the rest is for further joins."""
    device_row_bytes: int = 84
    """Device memory for each row of an operator's piece: the row, sorted and moved, its run, a result row, the next
    piece's row and the last result's. If that does not suffice, the piece is halved."""
    device_packed_row_bytes: int = 80
    """The same for a piece whose rows arrive and leave packed."""
    least_streamed_rows: int = 6 << 20
    """Rows in main memory above which they go through the device in pieces, although they fit it: 8 million take half
    of the time, 2 million twice as long."""
    least_device_piece_rows: int = 1 << 16
    """Minimum rows of such a piece, before any is halved."""
    pinned_share: float = 0.6
    """Share of the memory limit for pinned memory; the rest is for the tables' indices and the search for cuts."""
    cut_search_share: float = 0.2
    """Share of the memory limit, out of that rest, for data read in the search for cuts."""
    pinned_pieces: int = 8
    """Pieces that fit in the pinned memory."""
    result_pool_share: float = 0.25
    """Limit of the pinned memory of results that is kept for later results, as a share of the default memory limit."""
    least_pooled_bytes: int = 1 << 26
    """Expected bytes of a result from which it takes such memory: smaller ones take a few milliseconds without."""
    streamed_bytes_a_second: float = 4e10
    """Bytes of tables that pass through one device in a second: decides whether further devices are started, which
    takes as long as 24 GB. Two devices took 70 to 80 % of the time of one."""
    generated_rows_a_second: float = 1e10
    """Rows that one device generates and joins in a second: likewise."""
    disk_piece_bytes: int = 1 << 28
    """Maximum bytes of a piece's rows, unpacked, if they come from disk: all else waits for the first piece."""

    # Workers
    segment_rows: int = 1 << 20
    """Rows of an input from which a bucket is cut into segments for workers (as is one that does not fit in memory):
    fewer take some 0.2 s, the cost of sending work and writing parts."""
    first_segments: int = 64
    """Segments of a worker before the time of any is known: small ones lose nothing."""
    segment_part: float = 6.0
    """A segment is this part of the rest for each worker (:mod:`oocbe.execution.cluster.dispatch`)."""
    least_segment_seconds: float = 0.5
    """Minimum time of a segment, in seconds, whatever that part is."""
    most_segment_seconds: float = 5.0
    """Maximum time of a segment, in seconds, whatever that part is."""
    forecast_most_pieces: int = 100_000
    """Maximum pieces of a forecast stage; larger stages have larger pieces."""

    # Elimination orders
    search_probes: int = 16
    """Probes a separator during the search: enough to distinguish orders whose rows differ by half."""
    final_probes: int = 64
    """Probes a separator for the plan's predictions and for the final comparison of the best candidates."""
    finalists: int = 4
    """Candidates of each heuristic evaluated again. Probes are noisy, so the best of many candidates is partly luck."""
    method_memory: float = 0.1
    """Weight of the last gain, in bits of rows, in the mean by which a search for orders shares its time."""
    first_gain: float = 0.2
    """That mean, in bits, of a method that was not tried yet; of dissections it is 1."""
    least_method_share: float = 0.1
    """Minimum share of a method, relative to that of the best one."""
    hopeless_heuristic: float = 16.0
    """Ratio of an order's rows to the best one's from which improving it is no gain."""
    probe_margin: float = 4.0
    """Factor by which an estimate of few probes must exceed a limit, so that one of many probes certainly would."""
    probe_steps: int = 1 << 23
    """Approximate limit of constraints examined by all probes: a third of a second. Large orders have fewer probes."""
    first_order_seconds: float = 0.5
    """Minimum total time for the first order of each heuristic, in seconds, even if the search limit is shorter."""
    grace_seconds: float = 0.5
    """Seconds after the limit for min-degree to complete an order, and for the final evaluation of the best orders."""
    grace_variable_seconds: float = 4e-6
    """The same for each variable and each neighbour of one, in seconds: the time of a few passes over a large graph."""
    quick_variables: int = 512
    """Variables up to which an order takes a few milliseconds on any graph."""
    hopeless_rows: float = 2.0**64
    """Predicted rows of the best order beyond which a long search is useless: no search makes them few."""
    longest_search_factor: int = 20
    """Multiple of ``order_seconds`` for the search before elimination without bounds
    (:func:`oocbe.elimination.orders.order.longest_search`). Orders keep improving: pedigree9 of the UAI competition has
    3.3 billion predicted rows after half a second and 100 million after five."""
    longest_search_share: float = 0.25
    """Maximum share of a time limit for such a search."""
    bitset_variables: int = 1 << 12
    """Variables up to which greedy orders use bit sets, which are then faster than lists."""
    linear_sweeps: int = 16
    """Sweeps from random ends for one linear order: bad ends are common, and their width reveals them at once."""
    most_members: int = 1 << 22
    """Limit of the members of an order's separators, or the number of neighbours if that is larger: plans list them, at
    some dozens of bytes and a microsecond each."""
    most_fill: int = 1 << 25
    """Most neighbours of all variables while an order is computed, or their initial number if larger."""

    # Plans and races
    searched_rows: float = 2e5
    """Predicted rows from which a search comes before elimination: of clauses, by a search that caches components; and
    of supply problems (customers and warehouses), whose linear program is nearly integral."""
    easy_rows: float = 500_000.0
    """Predicted rows up to which ``auto`` eliminates without bounds: 0.1 to 0.2 s."""
    hopeless_factor: float = 1000.0
    """Orders whose predicted rows exceed the best one's by this factor do not run in the first round. Dominance and
    other unpredicted effects were observed to compensate a factor of a hundred."""
    bound_seconds: float = 1.5e-4
    """Seconds for each variable that steps before a search leave it of a time limit; a bound and a first assignment
    take 0.1 ms."""
    narrow_bucket_seconds: float = 1e-3
    """Minimum time of a bucket in the engine, in seconds, for the choice of that loop."""
    narrow_cell_seconds: float = 4e-8
    """Time of a joined cell in the loop, in seconds: with two to four tables, 5 to 10 ns for each of them."""
    narrow_variable_seconds: float = 5e-6
    """Time of the layout of tables and the check of the result, in seconds for each variable. No further order is
    computed to save less for each variable and each neighbour of one."""
    narrow_factor_bytes: int = 80
    """Bytes of a cell of the problem's own tables, during their construction and layout."""

    # Attempts at elimination beside searches
    attempt_reach_seconds: float = 2000.0
    """Estimated elimination time, in seconds, beyond which no attempt is made: large estimates are the least reliable,
    and the messages fill the disk."""
    least_attempt_seconds: float = 1.0
    """Minimum time of a first bound that precedes the attempts, in seconds: it settles most photograph problems. Also
    the estimate of the greedy orders above which better orders are searched for, and an addition to each estimate."""
    attempt_allowance: float = 8.0
    """Time limit of a first attempt, as a multiple of the estimate. Two generated pedigrees took three and nine times
    their estimates, and giving up slightly early costs more than a hopeless attempt."""

    # Propagation
    propagates: bool = True
    """Whether propagation reduces a problem before the search for an order."""
    entries_a_row: int = 64
    """Non-zeros that weigh as much as one table row in the choice of a device by ``auto``. A round over 4 million takes
    the processor some 20 ms, and a device needs start-up and transfer first."""
    scanned_rows_a_row: int = 16
    """Scanned rows that weigh as much as one joined row in the choice of a device by ``auto``."""
    table_rounds: int = 64
    """Limit of rounds of a launch over tables on a device; the deadline is checked after each launch."""
    device_table_rows: int = 1 << 22
    """Limit of rows of a table on a device, where one block filters a variable of a table."""
    device_tables_part: int = 4
    """Codes of all tables take at most one part in so many of the device's free memory."""
    device_cells_at_once: int = 1 << 16
    """Cells that the device reads in the time of one cell on the host; orders constraints by cost."""
    probe_device_block: int = 1 << 14
    """Probes from the same bounds on a device."""
    probe_device_rounds: int = 1 << 8
    """Limit of rounds of a launch of probes on a device; the deadline is checked after each launch."""
    probed_entries: int = 1 << 14
    """Non-zeros times probed variables that weigh as much as a joined row in the choice of a device by ``auto``."""

    # Junction trees
    tree_cell_work: float = 0.05
    """Upper bound of a bucket's estimated cost, as a share of its joined cells. Predictions see few zeros, and the
    cells predict the size of cliques better than messages do."""
    block_cases: int = 64
    """Maximum cases in a block. It makes a row's overhead small; with more, the numbers of a row and of the messages
    that it reads exceed the L1 cache."""
    device_block_cases: int = 1 << 14
    """Maximum cases in a block on a device; with so many, every launch fills the device."""
    device_block_work: int = 1 << 37
    """Maximum work of a block on a device, in rows and map entries times cases: about a second, between checks of the
    deadline."""
    least_device_cases: int = 32
    """Minimum cases in a block on a device, however little memory there is: one warp."""
    device_block_bytes: int = 1 << 34
    """Maximum bytes of a block's device memory."""
    device_tree_share: float = 0.5
    """Share of the free device memory for a tree, and for a block."""
    case_row_seconds: float = 0.5e-9
    """Approximate time per case for a row or an entry of a map, in seconds, on one core."""
    device_case_row_seconds: float = 5e-12
    """The same on an H200."""
    group_tree_variable_seconds: float = 0.0003
    """Time to make a tree for a group of cases, in seconds for each variable, approximately."""
    joint_piece_numbers: int = 1 << 22
    """Numbers of evidence per sweep, 32 MiB; a case has a number for each variable of the problem."""
    large_tree_cells: float = float(1 << 24)
    """Cells of all buckets of a first greedy order from which a tree is made only on request: its rows take a second or
    more."""
    tree_cell_seconds: float = 2e-7
    """Approximate time to make a tree, in seconds for each of these cells."""
    least_sweep_seconds: float = 0.02
    """Time of a sweep, in seconds, up to which no alternative is considered."""
    alternative_share: float = 0.75
    """Maximum cost of an alternative to a sweep, relative to the sweep; below 1 because both costs are estimates."""
    cell_seconds: float = 3e-9
    """Approximate time per joined cell of a query, up and down together, and of a sweep for one case per row and per
    entry of a map, in seconds."""
    message_cells: float = 6.0
    """Time for a cell of a message, sent and received, in joined cells. Without it, networks whose cliques eliminate
    one variable of two values each (DBN_16 of 2014) took 3.5 to 7 times the estimate."""
    clique_cells: float = 2e4
    """Overhead of a clique, and of a factor before the plan of a query, in joined cells."""
    group_seconds: float = 3e-3
    """Approximate time of an order of a group, and to find a group for each target that is barren otherwise, in
    seconds."""
    group_orders: int = 400
    """Maximum orders tried for a tree."""

    # Agents
    tree_roots: int = 16
    """Roots that ``auto`` tries with each heuristic in each connected part: those with most neighbours."""
    tree_search_steps: int = 1 << 23
    """Search steps after which ``auto`` tries no other pseudo-tree. In grids, random and scale-free graphs up to 10,000
    variables a step takes 32 to 70 ns, in total a quarter to half a second. Limits of 2^22 and 2^28 gave the same tree,
    because an elimination order had the best."""


_now = Tuning()


def tuning() -> Tuning:
    """The numbers in effect, in every thread."""
    return _now


@contextmanager
def tuned(**changes: float | None) -> Iterator[Tuning]:
    """Change fields of :class:`Tuning` for the whole process within the block; TypeError for others."""
    global _now
    before, _now = _now, Tuning(**{**_now._asdict(), **changes})
    try:
        yield _now
    finally:
        _now = before
