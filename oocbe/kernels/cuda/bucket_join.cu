// Join all tables of a bucket level by level; see bucket_join.py and, for what runs, levels and leaves are,
// oocbe/kernels/cpu/bucket_join.py. A level takes two launches: count_children decides for every unit of work (a row of
// an item's range, or a value of an enumerating run) whether it makes a child, write_children writes the children at
// places that the prefix sums of the counts give them. Children keep the order of their units, so rows come out sorted.
// variants: WORDS=2 VALUE=int|double COMBINATION=0|1 MARGINALISATION=1|3
#include "integers.cuh"
#include "values.cuh"

#define THREADS 256
#define MOST_TABLES 32

// What penalties and gains are computed in: differences of two values need not fit their type.
template <typename Type> struct Widened { typedef i64 type; };
template <> struct Widened<double> { typedef double type; };
template <> struct Widened<float> { typedef double type; };
typedef Widened<VALUE>::type wide;

// All members are 8 bytes wide: the host passes the struct as an array of uint64.
struct Level {
    const u64 *tables;          // (tables, 3): address of keys, rows, address of values
    const u64 *parts;           // (parts, 3): table, word, shift; parts of this level
    i64 part_count, table_count;
    const i64 *segment_start, *segment_middle;
    const u64 *segment_word, *segment_shift, *segment_mask, *segment_place;
    const i64 *base, *own_bits, *free_base;
    const u64 *bits;
    i64 filter_from, filter_to;
    i64 word; u64 shift, mask; i64 size;
    const u64 *item_keys;       // (WORDS, items)
    const u32 *item_low, *item_high;  // (tables, items)
    i64 items;
    const i64 *unit_end;        // (items,): inclusive prefix sum of the driving table's range widths
    i64 units;
};

struct Leaf {
    const u64 *tables;
    i64 table_count;
    const i64 *segment_start;
    const u64 *segment_word, *segment_shift, *segment_mask, *segment_place;
    const i64 *base;
    const u64 *masks;
    const VALUE *values;
    i64 mask_from, function_from, function_to;
    i64 size; u64 mask; i64 mask_words;
    const u64 *item_keys;
    const u32 *item_low, *item_high;
    i64 items;
};

template <typename Program>
__device__ __forceinline__ i64 gather(const Program &p, const u64 *key, i64 from, i64 to) {
    u64 index = 0;
    for (i64 s = from; s < to; s++) {
        u64 word = key[0];
        #pragma unroll
        for (int w = 1; w < WORDS; w++) if (p.segment_word[s] == (u64)w) word = key[w];
        index |= ((word >> p.segment_shift[s]) & p.segment_mask[s]) << p.segment_place[s];
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

// The item a unit belongs to; the block's first and last units bound the search.
__device__ __forceinline__ i64 item_of(const Level &p, i64 unit, i64 *bounds) {
    if (p.part_count == 0) return unit / p.size;
    i64 first = (i64)blockIdx.x * THREADS;
    if (threadIdx.x < 2) {
        i64 wanted = threadIdx.x == 0 ? first : min(first + THREADS, p.units) - 1;
        bounds[threadIdx.x] = upper_bound(p.unit_end, (i64)0, p.items, wanted);
    }
    __syncthreads();
    if (unit >= p.units) return 0;
    return upper_bound(p.unit_end, bounds[0], bounds[1], unit);
}

// Whether a unit makes a child; `field` is what the run's bits become, `row` the driving table's row.
__device__ __forceinline__ bool evaluate(const Level &p, i64 unit, i64 item, u64 &field, u32 &row) {
    if (p.part_count == 0) {
        field = (u64)(unit - item * p.size);
    } else {
        i64 t = (i64)p.parts[0];
        const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[1] * p.tables[3 * t + 1];
        u32 low = p.item_low[t * p.items + item];
        i64 begin = item == 0 ? 0 : p.unit_end[item - 1];
        row = low + (u32)(unit - begin);
        field = (column[row] >> p.parts[2]) & p.mask;
        if (row > low && ((column[row - 1] >> p.parts[2]) & p.mask) == field) return false;
        for (i64 part = 1; part < p.part_count; part++) {
            t = (i64)p.parts[3 * part];
            column = (const u64 *)p.tables[3 * t] + p.parts[3 * part + 1] * p.tables[3 * t + 1];
            u32 end = p.item_high[t * p.items + item];
            u64 shift = p.parts[3 * part + 2];
            u32 at = field_bound(column, p.item_low[t * p.items + item], end, shift, p.mask, field, false);
            if (at == end || ((column[at] >> shift) & p.mask) != field) return false;
        }
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
            i64 index = gather(p, key, p.segment_start[f], p.segment_start[f + 1]);
            if (!((p.bits[p.base[f] + index * stride + (i64)(field >> 6)] >> (field & 63)) & 1)) return false;
        } else {
            i64 index = gather(p, key, p.segment_start[f], p.segment_start[f + 1]);
            if (!bit_at(p.bits + p.base[f], index)) return false;
        }
    }
    return true;
}

// Lay down a block's flags: one bit a unit, and how many there are in the block.
__device__ __forceinline__ void record(bool flag, i64 unit, u32 *ballots, i64 *block_counts, u32 *warp_counts) {
    u32 ones = __ballot_sync(ALL_LANES, flag);
    if (lane_number() == 0) {
        ballots[unit >> 5] = ones;
        warp_counts[threadIdx.x >> 5] = __popc(ones);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 total = 0;
        for (int w = 0; w < THREADS / 32; w++) total += warp_counts[w];
        block_counts[blockIdx.x] = total;
    }
}

// Place of a flagged unit among all flagged ones; block_ends is the inclusive prefix sum of the block counts.
__device__ __forceinline__ i64 place_of(i64 unit, const u32 *ballots, const i64 *block_ends) {
    i64 place = blockIdx.x == 0 ? 0 : block_ends[blockIdx.x - 1];
    for (i64 w = (i64)blockIdx.x * (THREADS / 32); w < (unit >> 5); w++) place += __popc(ballots[w]);
    return place + __popc(ballots[unit >> 5] & lanes_below());
}

extern "C" __global__ void __launch_bounds__(THREADS)
count_children(Level p, u32 *ballots, i64 *block_counts) {
    __shared__ i64 bounds[2];
    __shared__ u32 warp_counts[THREADS / 32];
    i64 unit = (i64)blockIdx.x * THREADS + threadIdx.x;
    i64 item = item_of(p, unit, bounds);
    u64 field = 0;
    u32 row = 0;
    bool flag = unit < p.units && evaluate(p, unit, item, field, row);
    record(flag, unit, ballots, block_counts, warp_counts);
}

// Children, and the range widths of the table that drives the next level (-1: none does).
extern "C" __global__ void __launch_bounds__(THREADS)
write_children(Level p, const u32 *ballots, const i64 *block_ends, u64 *keys, u32 *lows, u32 *highs, i64 children,
               i64 next_driver, i64 *widths) {
    __shared__ i64 bounds[2];
    i64 unit = (i64)blockIdx.x * THREADS + threadIdx.x;
    i64 item = item_of(p, unit, bounds);
    if (unit >= p.units || !(ballots[unit >> 5] >> lane_number() & 1)) return;
    i64 place = place_of(unit, ballots, block_ends);
    u64 field;
    u32 row = 0;
    if (p.part_count == 0) {
        field = (u64)(unit - item * p.size);
    } else {
        i64 t = (i64)p.parts[0];
        const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[1] * p.tables[3 * t + 1];
        row = p.item_low[t * p.items + item] + (u32)(unit - (item == 0 ? 0 : p.unit_end[item - 1]));
        field = (column[row] >> p.parts[2]) & p.mask;
    }
    #pragma unroll
    for (int w = 0; w < WORDS; w++) {
        u64 word = p.item_keys[w * p.items + item];
        if (p.word == w) word |= field << p.shift;
        keys[w * children + place] = word;
    }
    for (i64 t = 0; t < p.table_count; t++) {
        lows[t * children + place] = p.item_low[t * p.items + item];
        highs[t * children + place] = p.item_high[t * p.items + item];
    }
    for (i64 part = 0; part < p.part_count; part++) {
        i64 t = (i64)p.parts[3 * part];
        const u64 *column = (const u64 *)p.tables[3 * t] + p.parts[3 * part + 1] * p.tables[3 * t + 1];
        u64 shift = p.parts[3 * part + 2];
        u32 end = p.item_high[t * p.items + item];
        u32 low = part == 0 ? row : field_bound(column, p.item_low[t * p.items + item], end, shift, p.mask, field, false);
        // Groups are short as a rule: double the step from the group's first row before bisecting.
        u32 known = low, step = 1;
        while (step < end - known && ((column[known + step] >> shift) & p.mask) == field) { known += step; step += step; }
        lows[t * children + place] = low;
        highs[t * children + place] = field_bound(column, known + 1, known + min(step, end - known), shift, p.mask, field, true);
    }
    if (next_driver >= 0) widths[place] = highs[next_driver * children + place] - lows[next_driver * children + place];
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_leaves(Leaf p, VALUE *totals, u32 *ballots, i64 *block_counts) {
    __shared__ u32 warp_counts[THREADS / 32];
    i64 item = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool found = false;
    VALUE total = 0;
    if (item < p.items) {
        u64 key[WORDS];
        #pragma unroll
        for (int w = 0; w < WORDS; w++) key[w] = p.item_keys[w * p.items + item];
        u32 pointer[MOST_TABLES];
        i64 candidates = p.size;
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
            if (p.table_count > 0) x = (i64)(((const u64 *)p.tables[0])[first + c] & p.mask);
            if (x >> 6 != block) {
                block = x >> 6;
                allowed = ~0ull;
                for (i64 f = p.mask_from; f < p.function_from; f++) {
                    i64 index = gather(p, key, p.segment_start[f], p.segment_start[f + 1]);
                    allowed &= p.masks[p.base[f] + index * p.mask_words + block];
                }
            }
            if (!((allowed >> (x & 63)) & 1)) continue;
            VALUE value = COMBINATION == 0 ? 0 : 1;
            bool present = true;
            if (p.table_count > 0) {
                value = ((const VALUE *)p.tables[2])[first + c];
                for (i64 t = 1; t < p.table_count && present; t++) {
                    const u64 *column = (const u64 *)p.tables[3 * t];
                    u32 at = pointer[t], end = p.item_high[t * p.items + item];
                    while (at < end && (i64)(column[at] & p.mask) < x) at++;
                    pointer[t] = at;
                    present = at < end && (i64)(column[at] & p.mask) == x;
                    if (present) value = combine(value, ((const VALUE *)p.tables[3 * t + 2])[at]);
                }
            }
            if (!present) continue;
            for (i64 f = p.function_from; f < p.function_to; f++) {
                i64 index = gather(p, key, p.segment_start[f], p.segment_start[f + 1]);
                value = combine(value, p.values[p.base[f] + index * p.size + x]);
            }
            total = found ? marginalise(total, value) : value;
            found = true;
        }
        totals[item] = total;
    }
    record(found, item, ballots, block_counts, warp_counts);
}

// Rows whose flag is set, in their order, at the places that the flags' prefix sums give them.
extern "C" __global__ void __launch_bounds__(THREADS)
keep_flagged(const u64 *keys, const VALUE *values, i64 rows, const u32 *ballots, const i64 *block_ends,
             u64 *kept_keys, VALUE *kept_values, i64 kept) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows || !(ballots[row >> 5] >> lane_number() & 1)) return;
    i64 place = place_of(row, ballots, block_ends);
    #pragma unroll
    for (int w = 0; w < WORDS; w++) kept_keys[w * kept + place] = keys[w * rows + row];
    kept_values[place] = values[row];
}

// Substitution dominance; arrays as in oocbe/kernels/cpu/dominance.py, all variables at once. Flags rows that stay.
struct Substitutions {
    const i64 *word; const u64 *shift, *mask; const i64 *start_offset;
    i64 variables;
    const i64 *start, *target;
    const wide *penalty;
    i64 sign;
};

__device__ __forceinline__ bool is_below(const u64 *keys, i64 rows, i64 row, const u64 *wanted) {
    #pragma unroll
    for (int w = WORDS - 1; w >= 0; w--) {
        u64 here = keys[w * rows + row];
        if (here != wanted[w]) return here < wanted[w];
    }
    return false;
}

extern "C" __global__ void __launch_bounds__(THREADS)
flag_undominated(const u64 *keys, const VALUE *values, i64 rows, Substitutions p, u32 *ballots, i64 *block_counts) {
    __shared__ u32 warp_counts[THREADS / 32];
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool stays = row < rows;
    u64 wanted[WORDS];
    if (stays) {
        #pragma unroll
        for (int w = 0; w < WORDS; w++) wanted[w] = keys[w * rows + row];
    }
    for (i64 v = 0; v < p.variables && stays; v++) {
        u64 shift = p.shift[v], mask = p.mask[v], saved = 0;
        #pragma unroll
        for (int w = 0; w < WORDS; w++) if (p.word[v] == w) saved = wanted[w];
        i64 a = (i64)((saved >> shift) & mask);
        for (i64 pair = p.start[p.start_offset[v] + a]; pair < p.start[p.start_offset[v] + a + 1] && stays; pair++) {
            i64 b = p.target[pair];
            u64 changed = (saved & ~(mask << shift)) | ((u64)b << shift);
            #pragma unroll
            for (int w = 0; w < WORDS; w++) if (p.word[v] == w) wanted[w] = changed;
            // The row looked for is on a known side, close by where the variable is of low significance.
            i64 low, high, step = 1;
            if (b < a) {
                high = row;
                while (step <= row && !is_below(keys, rows, row - step, wanted)) { high = row - step; step += step; }
                low = step <= row ? row - step + 1 : 0;
            } else {
                low = row + 1;
                while (row + step < rows && is_below(keys, rows, row + step, wanted)) { low = row + step + 1; step += step; }
                high = min(row + step, rows);
            }
            while (low < high) {
                i64 middle = (low + high) >> 1;
                if (is_below(keys, rows, middle, wanted)) low = middle + 1; else high = middle;
            }
            bool equal = low < rows;
            #pragma unroll
            for (int w = 0; w < WORDS; w++) equal = equal && keys[w * rows + low] == wanted[w];
            if (equal) {
                wide gain = p.sign * ((wide)values[row] - (wide)values[low]) - p.penalty[pair];
                if (gain > 0 || (gain == 0 && b < a)) stays = false;
            }
        }
        #pragma unroll
        for (int w = 0; w < WORDS; w++) if (p.word[v] == w) wanted[w] = saved;
    }
    record(stays, row, ballots, block_counts, warp_counts);
}
