// Join all tables of a bucket level by level; see bucket_join.py and, for the definition of runs, levels and leaves,
// oocbe/kernels/cpu/buckets/bucket_join.py. A level takes two launches: count_children decides for every unit of work
// (a row of an item's range, or a value of the run) whether it makes a child, write_children writes the children at the
// prefix sums of the counts. Children keep the order of their units, so rows are sorted.
// With PRUNES, units whose bound reaches the slack of their level are pruned (oocbe/elimination/row_pruning/row_bounds.py).
// With LIMBS, values are counts of LIMBS limbs; those of the tables may have fewer (oocbe/tables/numbers.py).
// variants: WORDS=2 VALUE=long long|int|double COMBINATION=1|0|1 MARGINALISATION=2|1|3 PRUNES=0|0|1 LIMBS=3|0|0
#include "integers.cuh"
#include "values.cuh"
#include "flags.cuh"
#if LIMBS
#include "limbs.cuh"
#endif

#define MOST_TABLES 32

#define SCANNED_ROWS 8  // as on the CPU: longer ranges use the minimum of their table

// The next three are documented in oocbe/kernels/cpu/buckets/join_arrays.py; only the fields used here are listed.

struct LookupArrays {
    const i64 *segment_start, *segment_word;
    const u64 *segment_shift, *segment_mask, *segment_place;
    const i64 *base;
    const u64 *bits;
};

struct LeafArrays {
    i64 size;
    u64 mask;
    i64 mask_words;
    const u64 *masks;
    const VALUE *values;
};

struct BoundArrays {
    const i64 *word;
    const u64 *shift, *mask;
    const i64 *base;
    const wide *entries;
    wide scale;
};

// The part of a bound for one launch: its tables of one level, or of all.
struct Bounds {
    BoundArrays arrays;
    i64 first, last;    // tables first .. last - 1
    wide slack;
    const wide *least;  // (tables,): least value of each
    const wide *totals; // (items,): bound on each item, least values included; unused for leaves
};

// Arguments of the kernels. All members are 8 bytes wide, or structs of such: the host fills them by name (modules.py).
struct Level {
    const u64 *tables;          // (tables, 3): address of keys, rows, address of values
    const u64 *parts;           // (parts, 3): table, word, shift; parts of this level
    i64 part_count, table_count;
    LookupArrays lookups;
    i64 filter_from, filter_to; // lookups of this level
    i64 word;                   // the level's run
    u64 shift, mask;
    i64 size;                   // values of the run that are units of each item; 0: its rows in the driving table are
    const u64 *item_keys;       // (WORDS, items)
    const u32 *item_low, *item_high;  // (tables, items)
    i64 items;
    const u64 *driver;          // of the driving table, that of the first part: the key word with the run,
    u64 driver_shift;           // its shift there,
    const u32 *driver_low;      // (items,): the first rows,
    const i64 *unit_start;      // (items + 1,): and the prefix sum of the ranges' widths
    i64 units;
    const i64 *first_items;     // (blocks + 1,): of find_tiles (prefix.cu); null: the kernels search for them
    Bounds bounds;
};

struct Leaf {
    const u64 *tables;
    const i64 *limbs;           // (tables,): of each table's values; 1 for plain numbers
    i64 table_count;
    LookupArrays lookups;
    LeafArrays leaf;
    i64 mask_from, function_from, function_to;
    const u64 *item_keys;
    const u32 *item_low, *item_high;
    i64 items;
    Bounds bounds;
};

// Index of a lookup, from fields of a key.
__device__ __forceinline__ i64 gather(const LookupArrays &lookups, const u64 *key, i64 f) {
    u64 index = 0;
    for (i64 s = lookups.segment_start[f]; s < lookups.segment_start[f + 1]; s++) {
        u64 word = key[0];
        #pragma unroll
        for (int w = 1; w < WORDS; w++) if (lookups.segment_word[s] == w) word = key[w];
        index |= ((word >> lookups.segment_shift[s]) & lookups.segment_mask[s]) << lookups.segment_place[s];
    }
    return (i64)index;
}

__device__ __forceinline__ bool bit_at(const u64 *bits, i64 i) { return (bits[i >> 6] >> (i & 63)) & 1; }

// First row of [low, high) whose field is at least (or, with `above`, greater than) `wanted`.
__device__ __forceinline__ u32 field_bound(const u64 *column, u32 low, u32 high, u64 shift, u64 mask, u64 wanted, bool above) {
    while (low < high) {
        u32 middle = low + ((high - low) >> 1);
        u64 here = (column[middle] >> shift) & mask;
        if (here < wanted || (above && here == wanted)) low = middle + 1; else high = middle;
    }
    return low;
}

// Find the items of a block's units; every item has units. All threads of the block call it. In shared memory:
// ends: item of the first unit of this block and of the next one; begins: a bit for each unit that another item begins with.
__device__ __forceinline__ void find_items(const Level &p, i64 *ends, u32 *begins) {
    if (p.size) return;
    i64 first = (i64)blockIdx.x * THREADS;
    if (threadIdx.x < 2) {
        i64 wanted = min(first + threadIdx.x * THREADS, p.units - 1);
        ends[threadIdx.x] = p.first_items ? p.first_items[blockIdx.x + threadIdx.x]
                                          : upper_bound(p.unit_start, (i64)0, p.items, wanted) - 1;
    }
    if (threadIdx.x < THREADS / 32) begins[threadIdx.x] = 0;
    __syncthreads();
    for (i64 item = ends[0] + threadIdx.x; item < ends[1]; item += THREADS) {
        i64 begin = p.unit_start[item + 1] - first;
        if (begin < THREADS) atomicOr(begins + begin / 32, 1u << begin % 32);
    }
    __syncthreads();
}

// Item of a unit, by its number in the block.
__device__ __forceinline__ i64 item_of(const Level &p, i64 first, const u32 *begins, u32 number) {
    if (p.size) return ((i64)blockIdx.x * THREADS + number) / p.size;
    first += __popc(begins[number / 32] & (2u << number % 32) - 1);
    for (u32 word = 0; word < number / 32; word++) first += __popc(begins[word]);
    return first;
}

// Sum of a bound's tables for a key.
__device__ __forceinline__ wide bound_of(const Bounds &bounds, const u64 *key) {
    const BoundArrays &arrays = bounds.arrays;
    wide total = 0;
    for (i64 b = bounds.first; b < bounds.last; b++) {
        u64 word = key[0];
        #pragma unroll
        for (int w = 1; w < WORDS; w++) if (arrays.word[b] == w) word = key[w];
        total += arrays.entries[arrays.base[b] + (i64)(word >> arrays.shift[b] & arrays.mask[b])];
    }
    return total;
}

// Least value of a range of a table's rows, or of the whole table if the range is long.
__device__ __forceinline__ wide least_of(const Level &p, i64 table, u32 low, u32 high) {
    if (high - low > SCANNED_ROWS) return p.bounds.least[table];
    const VALUE *values = (const VALUE *)p.tables[3 * table + 2];
    VALUE least = values[low];
    for (u32 row = low + 1; row < high; row++) least = values[row] < least ? values[row] : least;
    return least;
}

// Increase of the least value of a table's rows when an item's range shrinks to rows with the field `wanted`.
__device__ __forceinline__ wide growth(const Level &p, i64 part, i64 item, u32 low, u64 wanted) {
    i64 t = (i64)p.parts[3 * part];
    u32 begin = p.item_low[t * p.items + item], end = p.item_high[t * p.items + item], high = low + 1;
    const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[3 * part + 1] * p.tables[3 * t + 1];
    u64 shift = p.parts[3 * part + 2];
    while (high < end && high - low <= SCANNED_ROWS && (column[high] >> shift & p.mask) == wanted) high++;
    return least_of(p, t, low, high) - least_of(p, t, begin, end);
}

// Row of the driving table that a unit is; `field` receives the run's bits.
__device__ __forceinline__ u32 driving_row(const Level &p, i64 unit, i64 item, u64 &field) {
    u32 row = p.driver_low[item] + (u32)(unit - p.unit_start[item]);
    field = (p.driver[row] >> p.driver_shift) & p.mask;
    return row;
}

// Whether a unit makes a child.
__device__ __forceinline__ bool evaluate(const Level &p, i64 unit, i64 item) {
    u64 field;
    i64 part = 0;
#if PRUNES
    wide more = 0;
#endif
    if (p.size) {
        field = (u64)(unit - item * p.size);
    } else {
        u32 row = driving_row(p, unit, item, field);
        if (row > p.driver_low[item] && ((p.driver[row - 1] >> p.driver_shift) & p.mask) == field) return false;
#if PRUNES
        more = growth(p, 0, item, row, field);
#endif
        part = 1;
    }
    for (; part < p.part_count; part++) {
        i64 t = (i64)p.parts[3 * part];
        const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[3 * part + 1] * p.tables[3 * t + 1];
        u32 end = p.item_high[t * p.items + item];
        u64 shift = p.parts[3 * part + 2];
        u32 at = field_bound(column, p.item_low[t * p.items + item], end, shift, p.mask, field, false);
        if (at == end || ((column[at] >> shift) & p.mask) != field) return false;
#if PRUNES
        more += growth(p, part, item, at, field);
#endif
    }
    u64 key[WORDS];
    #pragma unroll
    for (int w = 0; w < WORDS; w++) {
        key[w] = p.item_keys[w * p.items + item];
        if (p.word == w) key[w] |= field << p.shift;
    }
    for (i64 f = p.filter_from; f < p.filter_to; f++) {
        if (p.part_count == 0) {
            i64 stride = (p.size + 63) >> 6;
            i64 index = gather(p.lookups, key, f);
            if (!((p.lookups.bits[p.lookups.base[f] + index * stride + (i64)(field >> 6)] >> (field & 63)) & 1)) return false;
        } else {
            i64 index = gather(p.lookups, key, f);
            if (!bit_at(p.lookups.bits + p.lookups.base[f], index)) return false;
        }
    }
#if PRUNES
    if (p.bounds.totals[item] + bound_of(p.bounds, key) + more * p.bounds.arrays.scale >= p.bounds.slack) return false;
#endif
    return true;
}

extern "C" __global__ void __launch_bounds__(THREADS, PRUNES ? 1 : 8)  // it waits for memory: 8 blocks, 32 registers
count_children(Level p, u32 *ballots) {
    __shared__ i64 items[2];
    __shared__ u32 begins[THREADS / 32];
    i64 unit = (i64)blockIdx.x * THREADS + threadIdx.x;
    find_items(p, items, begins);
    record(unit < p.units && evaluate(p, unit, item_of(p, items[0], begins, threadIdx.x)), unit, ballots);
}

// Children, the range widths of the table that drives the next level (-1: none), and the bounds on the children.
extern "C" __global__ void __launch_bounds__(THREADS)
write_children(Level p, const u32 *ballots, const i64 *before, u64 *keys, u32 *lows, u32 *highs, i64 children,
               i64 next_driver, i64 *widths, wide *totals) {
    // Few units make children: each child is written by one of the first threads, so that warps are full.
    __shared__ i64 items[2];
    __shared__ u32 begins[THREADS / 32];
    __shared__ unsigned char numbers[THREADS];  // in the block, of the units with a child
    i64 warp = (i64)blockIdx.x * (THREADS / 32), first = before[warp];
    i64 unit = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (ballots[unit >> 5] >> lane_number() & 1) numbers[place_of(unit, ballots, before) - first] = threadIdx.x;
    find_items(p, items, begins);
    __syncthreads();
    i64 place = first + threadIdx.x;
    if (place >= before[warp + THREADS / 32]) return;
    unit = (i64)blockIdx.x * THREADS + numbers[threadIdx.x];
    i64 item = item_of(p, items[0], begins, numbers[threadIdx.x]);
    u64 field;
    u32 row = 0;
    if (p.size) field = (u64)(unit - item * p.size);
    else row = driving_row(p, unit, item, field);
    u64 key[WORDS];
    #pragma unroll
    for (int w = 0; w < WORDS; w++) {
        key[w] = p.item_keys[w * p.items + item];
        if (p.word == w) key[w] |= field << p.shift;
        keys[w * children + place] = key[w];
    }
#if PRUNES
    wide more = 0;
#endif
    for (i64 t = 0; t < p.table_count; t++) {
        lows[t * children + place] = p.item_low[t * p.items + item];
        highs[t * children + place] = p.item_high[t * p.items + item];
    }
    for (i64 part = 0; part < p.part_count; part++) {
        i64 t = (i64)p.parts[3 * part];
        const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[3 * part + 1] * p.tables[3 * t + 1];
        u64 shift = p.parts[3 * part + 2];
        u32 end = p.item_high[t * p.items + item];
        u32 low = part == 0 && p.size == 0
            ? row : field_bound(column, p.item_low[t * p.items + item], end, shift, p.mask, field, false);
        // Groups are usually short: doubling steps from the group's first row, then bisection.
        u32 known = low, step = 1;
        while (step < end - known && ((column[known + step] >> shift) & p.mask) == field) { known += step; step += step; }
        lows[t * children + place] = low;
        highs[t * children + place] = field_bound(column, known + 1, known + min(step, end - known), shift, p.mask, field, true);
#if PRUNES
        more += growth(p, part, item, low, field);
#endif
    }
#if PRUNES
    totals[place] = p.bounds.totals[item] + bound_of(p.bounds, key) + more * p.bounds.arrays.scale;
#endif
    if (next_driver >= 0) widths[place] = highs[next_driver * children + place] - lows[next_driver * children + place];
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_leaves(Leaf p, VALUE *totals, u32 *ballots) {
    i64 item = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool found = false;
#if LIMBS
    u64 total[LIMBS] = {};
#else
    VALUE total = 0;
#endif
    if (item < p.items) {
        u64 key[WORDS];
        #pragma unroll
        for (int w = 0; w < WORDS; w++) key[w] = p.item_keys[w * p.items + item];
        u32 pointer[MOST_TABLES];
        i64 candidates = p.leaf.size;
        u32 first = 0;
        if (p.table_count > 0) {
            first = p.item_low[item];
            candidates = p.item_high[item] - first;
            for (i64 t = 1; t < p.table_count; t++) pointer[t] = p.item_low[t * p.items + item];
        }
        i64 block = -1;
        u64 allowed = 0;
        for (i64 c = 0; c < candidates; c++) {
            i64 x = c;
            if (p.table_count > 0) x = (i64)(((const u64 *)p.tables[0])[first + c] & p.leaf.mask);
            if (x >> 6 != block) {
                block = x >> 6;
                allowed = ~0ull;
                for (i64 f = p.mask_from; f < p.function_from; f++) {
                    i64 index = gather(p.lookups, key, f);
                    allowed &= p.leaf.masks[p.lookups.base[f] + index * p.leaf.mask_words + block];
                }
            }
            if (!((allowed >> (x & 63)) & 1)) continue;
            bool present = true;
#if LIMBS
            u64 value[LIMBS] = {1};
#else
            VALUE value = COMBINATION == 0 ? 0 : 1;
#endif
            if (p.table_count > 0) {
#if LIMBS
                multiply(value, (const u64 *)p.tables[2] + (first + c) * p.limbs[0], p.limbs[0]);
#else
                value = ((const VALUE *)p.tables[2])[first + c];
#endif
                for (i64 t = 1; t < p.table_count && present; t++) {
                    const u64 *column = (const u64 *)p.tables[3 * t];
                    u32 at = pointer[t], end = p.item_high[t * p.items + item];
                    while (at < end && (i64)(column[at] & p.leaf.mask) < x) at++;
                    pointer[t] = at;
                    present = at < end && (i64)(column[at] & p.leaf.mask) == x;
#if LIMBS
                    if (present) multiply(value, (const u64 *)p.tables[3 * t + 2] + at * p.limbs[t], p.limbs[t]);
#else
                    if (present) value = combine(value, ((const VALUE *)p.tables[3 * t + 2])[at]);
#endif
                }
            }
            if (!present) continue;
#if LIMBS
            add(total, value);  // there are no functions: a feasible tuple counts as one
#else
            for (i64 f = p.function_from; f < p.function_to; f++) {
                i64 index = gather(p.lookups, key, f);
                value = combine(value, p.leaf.values[p.lookups.base[f] + index * p.leaf.size + x]);
            }
            total = found ? marginalise(total, value) : value;
#endif
            found = true;
        }
#if PRUNES
        if (found && bound_of(p.bounds, key) + (wide)total * p.bounds.arrays.scale >= p.bounds.slack) found = false;
#endif
#if LIMBS
        #pragma unroll
        for (int i = 0; i < LIMBS; i++) totals[item * LIMBS + i] = (VALUE)total[i];
#else
        totals[item] = total;
#endif
    }
    record(found, item, ballots);
}
