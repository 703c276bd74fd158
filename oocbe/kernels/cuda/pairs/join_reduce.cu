// Join and marginalisation in one step: one output row for each pair of runs (runs.cu) of a group with a common
// eliminated value; its value is marginalised over the common values, in registers. A unit of work is some outer runs
// of a group with up to CHUNK inner ones, and as many lanes of a warp as outer runs. To write, the lanes iterate over
// the inner runs in parallel, each meets all of the unit's outer runs, stored in shared memory, and adjacent lanes
// write adjacent output rows. To count, the roles are swapped: each lane has an outer run and meets all inner ones.
// A lane holds TURNS inner runs in registers at a time. In groups with many inner runs, the output rows of one outer
// run are contiguous; written in short pieces, they would leave the second-level cache in parts of memory's write
// granularity. DENSE values of a run are adjacent, with gaps for absent values; with DENSE 0 a run's values are its
// rows, found by counting the lower set bits of a set of SET_BITS, or with SET_BITS 0 by merging the two runs' lists.
// variants: TURNS=1|2|4 DENSE=0|2|4|8 SET_BITS=0|32|64 VALUE=int|long long|float|double
// variants: COMBINATION=0|1 MARGINALISATION=0|1|2|3
#include "integers.cuh"
#include "values.cuh"

#define THREADS 256
#define LEAST_WIDTH 4
#define CHUNK 512
#define MOST_GROUPS (THREADS / LEAST_WIDTH + 2)

#if SET_BITS == 32
typedef u32 SET;
#else
typedef u64 SET;
#endif

// One table's runs: starts of their rows, their eliminated values as a set or a list, and the rows' values.
struct Side {
    const i64 *starts;
    const void *sets;
    const u64 *eliminated;
    const VALUE *values;
    const u64 *keys;
    i64 runs;
};

// Groups of outer runs: inner runs from inner_starts on, inner_counts of them, which may be 0, and likewise outer ones.
// units, segments i64 (groups + 1,): the group's first unit, and its first pair of an outer run and a chunk of inner
// ones.
struct Groups {
    const i64 *inner_starts, *inner_counts, *outer_starts, *outer_counts, *units, *segments;
};

// The work of one unit: `width` adjacent lanes, a power of two.
struct Unit {
    i64 outer, inner;  // first run of each side
    i64 segment, step;  // segment of the first outer run, and increment per outer run
    u32 outers, inners;  // runs of each side; 0 without a unit
    u32 lane, base, lanes;  // lane within the unit, its first lane, ones for its lanes from bit 0 on
    u32 most_outers, turns;  // maxima over the warp's units, so that its lanes stay converged
};

__device__ __forceinline__ u32 greatest_of_warp(u32 value) {
    for (int step = 16; step > 0; step /= 2) {
        u32 other = __shfl_xor_sync(ALL_LANES, value, step);
        value = other > value ? other : value;
    }
    return value;
}

// tiles i64 (blocks + 1,): group of each block's first unit; the last group at the end.
__device__ __forceinline__ Unit find_unit(const Groups &groups, const i64 *tiles, i64 units, u32 width) {
    __shared__ i64 held[MOST_GROUPS];  // first units of the block's groups, where most of them have inner runs
    Unit unit;
    u32 lane = lane_number();
    i64 first = tiles[blockIdx.x];
    i64 count = tiles[blockIdx.x + 1] - first + 1;
    const i64 *firsts = count <= MOST_GROUPS ? held : groups.units + first;
    if (count <= MOST_GROUPS && threadIdx.x < count) held[threadIdx.x] = groups.units[first + threadIdx.x];
    __syncthreads();
    unit.lane = lane & (width - 1);
    unit.base = lane - unit.lane;
    unit.lanes = width == 32 ? ALL_LANES : (1u << width) - 1;
    unit.outers = unit.inners = 0;
    i64 number = (i64)blockIdx.x * (THREADS / width) + threadIdx.x / width;
    if (number < units) {
        i64 local = upper_bound(firsts, (i64)0, count, number) - 1, group = first + local;
        i64 inner_runs = groups.inner_counts[group], chunks = (inner_runs + CHUNK - 1) / CHUNK;
        i64 into = number - firsts[local], chunk = 0;
        if (chunks > 1) {
            chunk = into % chunks;
            into /= chunks;
        }
        i64 outer = into * width, outers = groups.outer_counts[group] - outer;
        unit.outer = groups.outer_starts[group] + outer;
        unit.inner = groups.inner_starts[group] + chunk * CHUNK;
        unit.segment = groups.segments[group] + outer * chunks + chunk;
        unit.step = chunks;
        unit.outers = outers < width ? (u32)outers : width;
        inner_runs -= chunk * CHUNK;
        unit.inners = inner_runs < CHUNK ? (u32)inner_runs : CHUNK;
    }
    unit.most_outers = greatest_of_warp(unit.outers);
    unit.turns = greatest_of_warp((unit.inners + width - 1) / width);
    return unit;
}

#if SET_BITS == 0
// First place behind `from` with a value not below the wanted one, which is above that at `from`: steps of doubled
// length, then bisection, since one list may be much longer than the other.
__device__ __forceinline__ i64 skip_below(const u64 *list, i64 from, i64 stop, u64 wanted) {
    i64 step = 1, low = from + 1;
    while (from + step < stop && list[from + step] < wanted) {
        low = from + step + 1;
        step *= 2;
    }
    return upper_bound(list, low, from + step < stop ? from + step : stop, wanted - 1);
}

__device__ __forceinline__ bool first_common(const Side &a, i64 run_a, const Side &b, i64 run_b, i64 &i, i64 &j) {
    i64 stop_a = a.starts[run_a + 1], stop_b = b.starts[run_b + 1];
    while (i < stop_a && j < stop_b) {
        u64 x = a.eliminated[i], y = b.eliminated[j];
        if (x == y) return true;
        if (x < y) i = skip_below(a.eliminated, i, stop_a, y); else j = skip_below(b.eliminated, j, stop_b, x);
    }
    return false;
}

// Without sets every pair must be tested.
__device__ __forceinline__ SET set_of(const Side &side, i64 run) { return 1; }

__device__ __forceinline__ bool have_common(const Side &a, i64 run_a, SET, const Side &b, i64 run_b, SET) {
    i64 i = a.starts[run_a], j = b.starts[run_b];
    return first_common(a, run_a, b, run_b, i, j);
}

__device__ __forceinline__ VALUE over_common(const Side &a, i64 run_a, SET, const Side &b, i64 run_b, SET) {
    i64 i = a.starts[run_a], j = b.starts[run_b];
    first_common(a, run_a, b, run_b, i, j);
    VALUE result = combine(a.values[i++], b.values[j++]);
    while (first_common(a, run_a, b, run_b, i, j))
        result = marginalise(result, combine(a.values[i++], b.values[j++]));
    return result;
}
#else
__device__ __forceinline__ int ones(u32 set) { return __popc(set); }
__device__ __forceinline__ int ones(u64 set) { return __popcll(set); }

__device__ __forceinline__ SET set_of(const Side &side, i64 run) { return ((const SET *)side.sets)[run]; }

__device__ __forceinline__ bool have_common(const Side &, i64, SET set_a, const Side &, i64, SET set_b) {
    return set_a & set_b;
}

// A run's rows ascend by eliminated value: a row's index is the number of lower bits in the set.
__device__ __forceinline__ VALUE over_common(const Side &a, i64 run_a, SET set_a, const Side &b, i64 run_b, SET set_b) {
    const VALUE *values_a = a.values + a.starts[run_a], *values_b = b.values + b.starts[run_b];
    SET common = set_a & set_b, below = (common & -common) - 1;
    VALUE result = combine(values_a[ones(set_a & below)], values_b[ones(set_b & below)]);
    for (common &= common - 1; common; common &= common - 1) {
        below = (common & -common) - 1;
        result = marginalise(result, combine(values_a[ones(set_a & below)], values_b[ones(set_b & below)]));
    }
    return result;
}
#endif

#if DENSE
#define RECORD (DENSE * sizeof(VALUE))
// The values of one run, read in the minimum number of loads.
struct alignas(RECORD < 16 ? RECORD : 16) Record { VALUE values[DENSE]; };

__device__ __forceinline__ Record record_of(const Side &side, i64 run) { return ((const Record *)side.values)[run]; }

// A fixed number of steps: values that do not occur in both are replaced by the neutral element.
__device__ __forceinline__ VALUE over_common(const Record &a, const Record &b, SET common) {
#if MARGINALISATION == 3
    // Too expensive for absent values.
    VALUE result = neutral((VALUE)0);
    #pragma unroll
    for (int i = 0; i < DENSE; i++)
        if (common >> i & 1) result = marginalise(result, combine(a.values[i], b.values[i]));
#else
    VALUE result = neutral((VALUE)0);
    #pragma unroll
    for (int i = 0; i < DENSE; i++) {
        VALUE value = combine(a.values[i], b.values[i]);
        result = marginalise(result, common >> i & 1 ? value : neutral((VALUE)0));
    }
#endif
    return result;
}
#endif

// counts u32 (segments,): output rows of each pair of an outer run and a chunk of inner ones.
extern "C" __global__ void __launch_bounds__(THREADS)
count_pairs(Side inner, Side outer, Groups groups, const i64 *tiles, i64 units, i64 width, u32 *counts) {
    Unit unit = find_unit(groups, tiles, units, (u32)width);
    bool there = unit.lane < unit.outers;
    i64 run = there ? unit.outer + unit.lane : 0;
    SET mine = there ? set_of(outer, run) : 0;
    u32 count = 0;
#if DENSE
    for (u32 turn = 0; turn < unit.turns; turn++) {
        u32 i = turn * (u32)width + unit.lane, met = 0;
        SET set = i < unit.inners ? set_of(inner, unit.inner + i) : 0;
        // For each value the set of inner runs with it; their union over this lane's values is the set of matches.
        #pragma unroll
        for (int value = 0; value < DENSE; value++) {
            u32 with = __ballot_sync(ALL_LANES, set >> value & 1);
            if (mine >> value & 1) met |= with;
        }
        count += __popc(met >> unit.base & unit.lanes);
    }
#else
    __shared__ SET held[THREADS];
    const SET *sets = held + threadIdx.x - unit.lane;
    for (u32 turn = 0; turn < unit.turns; turn++) {
        u32 first = turn * (u32)width, i = first + unit.lane;
        held[threadIdx.x] = i < unit.inners ? set_of(inner, unit.inner + i) : 0;
        __syncwarp();
        #pragma unroll 4
        for (u32 k = 0; k < (u32)width; k++)
            count += mine && sets[k] && have_common(outer, run, mine, inner, unit.inner + first + k, sets[k]);
        __syncwarp();
    }
#endif
    if (there) counts[unit.segment + unit.lane * unit.step] = count;
}

// row_places i64 (segments + 1,): prefix sum of the counts. out_keys u64 (words, rows), out_values (rows,), ordered by
// outer run, then by inner run.
extern "C" __global__ void __launch_bounds__(THREADS)
write_pairs(Side inner, Side outer, Groups groups, const i64 *tiles, i64 units, i64 width, const i64 *row_places,
            i64 words, u64 *out_keys, VALUE *out_values, i64 rows) {
    __shared__ SET held_sets[THREADS];
    __shared__ u64 held_keys[THREADS];
#if DENSE
    __shared__ Record held_records[THREADS];
#endif
    Unit unit = find_unit(groups, tiles, units, (u32)width);
    bool there = unit.lane < unit.outers;
    i64 own = there ? unit.outer + unit.lane : 0;
    // Output position of the next row of this lane's outer run.
    i64 next = there ? row_places[unit.segment + unit.lane * unit.step] : 0;
    held_sets[threadIdx.x] = there ? set_of(outer, own) : 0;
    held_keys[threadIdx.x] = outer.keys[own];
#if DENSE
    held_records[threadIdx.x] = record_of(outer, own);
#endif
    __syncwarp();
    u32 first = threadIdx.x - unit.lane, below = (1u << unit.lane) - 1;
    for (u32 turn = 0; turn < unit.turns; turn += TURNS) {
        i64 runs[TURNS];
        SET sets[TURNS];
        u64 keys[TURNS];
#if DENSE
        Record records[TURNS];
#endif
        #pragma unroll
        for (int t = 0; t < TURNS; t++) {
            u32 i = (turn + t) * (u32)width + unit.lane;
            bool inside = i < unit.inners;
            runs[t] = inside ? unit.inner + i : 0;
            sets[t] = inside ? set_of(inner, runs[t]) : 0;
            keys[t] = inner.keys[runs[t]];
#if DENSE
            records[t] = record_of(inner, runs[t]);
#endif
        }
        for (u32 o = 0; o < unit.most_outers; o++) {
            SET other = held_sets[first + o];
            u64 key = held_keys[first + o];
#if DENSE
            Record record = held_records[first + o];
#endif
            i64 place = __shfl_sync(ALL_LANES, next, unit.base + o);
            #pragma unroll
            for (int t = 0; t < TURNS; t++) {
                if (turn + t >= unit.turns) break;
                bool common = sets[t] && other && have_common(outer, unit.outer + o, other, inner, runs[t], sets[t]);
                u32 found = __ballot_sync(ALL_LANES, common) >> unit.base & unit.lanes;
                i64 row = place + __popc(found & below);
                place += __popc(found);
                if (!common) continue;
                out_keys[row] = key | keys[t];
                for (i64 word = 1; word < words; word++)
                    out_keys[word * rows + row] = outer.keys[word * outer.runs + unit.outer + o]
                                                | inner.keys[word * inner.runs + runs[t]];
#if DENSE
                out_values[row] = over_common(record, records[t], other & sets[t]);
#else
                out_values[row] = over_common(outer, unit.outer + o, other, inner, runs[t], sets[t]);
#endif
            }
            if (unit.lane == o) next = place;
        }
    }
}
