// One round of bound propagation over all rows of a linear system (Sofranac, Gleixner and Pokutta 2021, algorithms 2 and
// 3): activities, residual activities and new bounds in one kernel. The arithmetic and the order of all sums are those of
// oocbe/kernels/cpu/propagation/linear_rows.py, so bounds are equal bit for bit, whatever the blocks.
// variants: COEFFICIENT=double|float OUTWARD=1|0
#include "integers.cuh"

#define THREADS 128
#define WARPS (THREADS / 32)
#define CHUNK 1024
#define SHORT_ROW 32
#define AT_ONCE (CHUNK / THREADS)
#define MOST_WARP_ROWS (CHUNK / SHORT_ROW)
// Of a multiprocessor at least, that registers are shared among. Small blocks, and several: each has a tile's terms on their
// way at once, and a thread for each of its rows when they have come. More blocks are slower, 8 of them half as fast with
// 25 million variables: the more blocks, the less shared memory leaves of the first cache for what is on its way.
#define RESIDENT_BLOCKS 5

#define HALF_UNIT 0x1p-53
#define EXACT_LIMIT 0x1p53
#define INFINITE 1e20

#define INTEGER_COEFFICIENTS 1
#define REAL_ROW 0
#define INTEGER_ROW 2

// What a round reports, numbers that only grow: bounds that have changed, and whether anything was contradictory or inexact.
#define CHANGES 0
#define CONTRADICTION 1
#define INEXACT 2

typedef unsigned char u8;

struct Rows {
    const i64 *starts; // (rows + 1)
    const u32 *columns; // (entries): variable, and in the highest bit whether it is an integer
    const COEFFICIENT *coefficients; // (entries)
    const double *row_lower, *row_upper; // (rows)
    const u8 *kinds; // (rows)
    const i64 *tiles; // (tiles + 1): first row of each
    const i64 *tile_starts; // (tiles + 1): first entry of each
    i64 tile_count, variables;
};

// Shared memory has 16 banks of 8 bytes, or 8 of 16: rows of equal length are read in different ones.
#define PADDED(place) ((place) + (place) / 16)
#define PADDED_PAIR(place) ((place) + (place) / 8)

struct Staged {
    double2 bounds[PADDED_PAIR(CHUNK)];
    COEFFICIENT coefficients[PADDED(CHUNK)];
    u32 columns[PADDED(CHUNK)];
    i32 warp_rows[MOST_WARP_ROWS]; // rows that a warp takes, counted from the tile's first one
    i32 warp_row_count;
};

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7FF0000000000000ll); }
__device__ __forceinline__ double no_number() { return __longlong_as_double(0x7FF8000000000000ll); }
__device__ __forceinline__ bool is_infinite(double number) { return fabs(number) == infinity(); }
__device__ __forceinline__ bool is_whole(double number) { return floor(number) == number; }
__device__ __forceinline__ double at_least_one(double number) { return fabs(number) > 1.0 ? fabs(number) : 1.0; }

__device__ __forceinline__ void report_once(i64 *report, int what) {
    u64 *flag = (u64 *)report + what;
    if (load_relaxed(flag) == 0) store_relaxed(flag, 1ull);
}

// What the terms of a row, or of a part of it, add up to.
struct Activity {
    double low, low_size, high, high_size, widest;
    i32 low_infinite, high_infinite;
    bool whole; // all terms and bounds are integers; looked at for rows of integer coefficients only

    __device__ __forceinline__ void clear() {
        low = low_size = high = high_size = widest = 0.0;
        low_infinite = high_infinite = 0;
        whole = true;
    }

    __device__ __forceinline__ void add(double a, double lower, double upper, int kind) {
        double least = a * lower, most = a * upper;
        if (a < 0) {
            double other = least;
            least = most;
            most = other;
        }
        double spread = most - least;
        if (spread > widest) widest = spread;
        if (is_infinite(least)) {
            low_infinite++;
        } else {
            low += least;
            low_size += fabs(least);
        }
        if (is_infinite(most)) {
            high_infinite++;
        } else {
            high += most;
            high_size += fabs(most);
        }
        if (kind == INTEGER_COEFFICIENTS)
            whole = whole && is_whole(least) && is_whole(most) && is_whole(lower) && is_whole(upper);
    }

    __device__ __forceinline__ void add(const Activity &part) {
        low += part.low;
        low_size += part.low_size;
        high += part.high;
        high_size += part.high_size;
        if (part.widest > widest) widest = part.widest;
        low_infinite += part.low_infinite;
        high_infinite += part.high_infinite;
        whole = whole && part.whole;
    }

    // Over the lanes of a warp, all of which come here; each has the result.
    __device__ __forceinline__ void add_lanes() {
        #pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            low += __shfl_xor_sync(ALL_LANES, low, step);
            low_size += __shfl_xor_sync(ALL_LANES, low_size, step);
            high += __shfl_xor_sync(ALL_LANES, high, step);
            high_size += __shfl_xor_sync(ALL_LANES, high_size, step);
            double other = __shfl_xor_sync(ALL_LANES, widest, step);
            if (other > widest) widest = other;
            low_infinite += __shfl_xor_sync(ALL_LANES, low_infinite, step);
            high_infinite += __shfl_xor_sync(ALL_LANES, high_infinite, step);
        }
        whole = __all_sync(ALL_LANES, whole);
    }
};

// What is said of a row besides its terms.
struct Sides {
    double low, high;
    int kind;
};

__device__ __forceinline__ Sides sides_of(const Rows &rows, i64 row) {
    return {__ldcs(rows.row_lower + row), __ldcs(rows.row_upper + row), __ldcs(rows.kinds + row)};
}

// What a row's sides and activity say of its terms.
struct Judged {
    double side_low, side_high, low, high, low_error, high_error, room_low, room_high, slack;
    i32 low_infinite, high_infinite;
    bool by_low, by_high, exact;
};

// Whether the row may bound a variable; what shows infeasibility or inexact sums is reported.
__device__ __forceinline__ bool judge(const Sides &sides, i64 count, const Activity &sums, double tolerance, i64 *report,
                                      Judged &made) {
    int kind = sides.kind;
    made.side_low = sides.low;
    made.side_high = sides.high;
    made.low = sums.low;
    made.high = sums.high;
    made.low_infinite = sums.low_infinite;
    made.high_infinite = sums.high_infinite;
    made.exact = kind != REAL_ROW && sums.whole;
    if (sums.low_size >= EXACT_LIMIT || sums.high_size >= EXACT_LIMIT) {
        if (kind == INTEGER_ROW) report_once(report, INEXACT);
        made.exact = false;
    }
    made.low_error = made.high_error = 0.0;
    if (!made.exact && OUTWARD) {
        double unit = (double)(count + 4) * HALF_UNIT;
        made.low_error = unit * sums.low_size;
        made.high_error = unit * sums.high_size;
    }
    made.slack = OUTWARD ? 0.0 : tolerance;
    double slack_high = is_infinite(made.side_high) ? 0.0 : made.slack * at_least_one(made.side_high);
    double slack_low = is_infinite(made.side_low) ? 0.0 : made.slack * at_least_one(made.side_low);
    if (OUTWARD && !made.exact) {
        slack_high = HALF_UNIT * fabs(made.side_high);
        slack_low = HALF_UNIT * fabs(made.side_low);
    }
    bool no_low = made.low_infinite == 0, no_high = made.high_infinite == 0;
    if ((no_low && made.low - made.low_error > made.side_high + slack_high) ||
        (no_high && made.high + made.high_error < made.side_low - slack_low)) {
        report_once(report, CONTRADICTION);
        return false;
    }
    made.by_high = made.side_high < infinity() && made.low_infinite <= 1 &&
                   !(no_high && made.high + made.high_error <= made.side_high);
    made.by_low = made.side_low > -infinity() && made.high_infinite <= 1 &&
                  !(no_low && made.low - made.low_error >= made.side_low);
    made.room_high = no_low ? made.side_high - made.low : -infinity();
    made.room_low = no_high ? made.high - made.side_low : -infinity();
    return (made.by_high && sums.widest >= made.room_high) || (made.by_low && sums.widest >= made.room_low);
}

// The activity without one term; no number where another one is infinite.
__device__ __forceinline__ double residual(double total, double own, i32 infinite) {
    if (is_infinite(own)) return infinite == 1 ? total : no_number();
    return infinite == 0 ? total - own : no_number();
}

// (side - rest) / coefficient, and by how much it may be off; error: by how much rest may.
__device__ __forceinline__ double quotient(double side, double rest, double &error, bool exact, double coefficient,
                                           bool integral) {
    double room = side - rest, found = room / coefficient;
    if (!OUTWARD) {
        error = 0.0;
    } else if (exact && is_whole(side) && fabs(room) < EXACT_LIMIT) {
        bool divides = integral || (is_whole(found) && found * coefficient == room);
        error = divides ? 0.0 : 4 * HALF_UNIT * fabs(found);
    } else {
        error = error + HALF_UNIT * (fabs(room) + fabs(rest) + fabs(side));
        error = error / fabs(coefficient) + 4 * HALF_UNIT * fabs(found);
    }
    return found;
}

__device__ __forceinline__ double as_lower(double bound, double error, bool integral, double slack) {
    return integral ? ceil(bound - error - slack) : bound - error;
}

__device__ __forceinline__ bool is_better(double bound, double old, bool integral, double progress) {
    if (!(-INFINITE < bound && bound < INFINITE)) return false; // no number as well
    return integral ? bound > old : bound - old > progress * at_least_one(bound);
}

// Doubles that are no negative zero are in the order of their bits, taken as signed integers; negative ones among
// themselves in the order of unsigned ones turned round.
__device__ __forceinline__ void raise_to(double *place, double bound) {
    if (!(bound > __longlong_as_double((i64)load_relaxed((const u64 *)place)))) return;
    if (bound >= 0) atomicMax((i64 *)place, __double_as_longlong(bound));
    else atomicMin((u64 *)place, (u64)__double_as_longlong(bound));
}

__device__ __forceinline__ void lower_to(double *place, double bound) {
    if (!(bound < __longlong_as_double((i64)load_relaxed((const u64 *)place)))) return;
    if (bound >= 0) atomicMin((i64 *)place, __double_as_longlong(bound));
    else atomicMax((u64 *)place, (u64)__double_as_longlong(bound));
}

// What one term allows its variable. next: lower and upper bound of each variable; changed: a bit a variable.
__device__ __forceinline__ void tighten(const Judged &row, double a, double lower, double upper, u32 column, double *next,
                                        u32 *changed, double progress) {
    bool integral = column >> 31;
    double least = a * lower, most = a * upper;
    if (a < 0) {
        double other = least;
        least = most;
        most = other;
    }
    double low = -infinity(), high = infinity();
    if (row.by_high && most - least >= row.room_high) {
        double error = row.low_error;
        double bound = quotient(row.side_high, residual(row.low, least, row.low_infinite), error, row.exact, a, integral);
        if (a > 0) high = -as_lower(-bound, error, integral, row.slack);
        else low = as_lower(bound, error, integral, row.slack);
    }
    if (row.by_low && most - least >= row.room_low) {
        double error = row.high_error;
        double bound = quotient(row.side_low, residual(row.high, most, row.high_infinite), error, row.exact, a, integral);
        if (a > 0) low = as_lower(bound, error, integral, row.slack);
        else high = -as_lower(-bound, error, integral, row.slack);
    }
    bool raises = is_better(low, lower, integral, progress), lowers = is_better(-high, -upper, integral, progress);
    if (!raises && !lowers) return;
    i64 v = column & 0x7FFFFFFFu;
    if (raises) raise_to(next + 2 * v, low + 0.0);
    if (lowers) lower_to(next + 2 * v + 1, high + 0.0);
    u32 bit = 1u << (v & 31);
    if (!(load_relaxed(changed + (v >> 5)) & bit)) atomicOr(changed + (v >> 5), bit);
}

// What terms in shared memory from `begin` on, every so many, allow their variables. Not put in where it is called: few
// rows come here after the first round, and summing up has the registers for itself.
__device__ __noinline__ void tighten_held(Judged row, const Staged &held, i32 begin, i32 end, i32 step, double *next,
                                          u32 *changed, double progress) {
    #pragma unroll 1
    for (i32 entry = begin; entry < end; entry += step) {
        i32 place = PADDED(entry);
        double2 bound = held.bounds[PADDED_PAIR(entry)];
        tighten(row, (double)held.coefficients[place], bound.x, bound.y, held.columns[place], next, changed, progress);
    }
}

// A row that is too long for shared memory: chunks go to the warps in turn.
__device__ __noinline__ void propagate_long_row(const Rows &rows, i64 row, i64 first, i64 count, const double2 *bounds,
                                                double *next, u32 *changed, i64 *report, double tolerance,
                                                double progress, Activity *parts) {
    i64 chunks = (count + CHUNK - 1) / CHUNK;
    int warp = threadIdx.x / 32;
    Sides sides = sides_of(rows, row);
    Activity sums;
    sums.clear();
    for (i64 base = 0; base < chunks; base += WARPS) {
        Activity part;
        part.clear();
        if (base + warp < chunks) {
            i64 begin = first + (base + warp) * CHUNK, end = begin + CHUNK;
            if (end > first + count) end = first + count;
            #pragma unroll 4
            for (i64 entry = begin + lane_number(); entry < end; entry += 32) {
                double2 bound = bounds[rows.columns[entry] & 0x7FFFFFFFu];
                part.add((double)rows.coefficients[entry], bound.x, bound.y, sides.kind);
            }
            part.add_lanes();
        }
        if (lane_number() == 0) parts[warp] = part;
        __syncthreads();
        for (int w = 0; w < WARPS && base + w < chunks; w++) sums.add(parts[w]);
        __syncthreads();
    }
    Judged judged;
    if (!judge(sides, count, sums, tolerance, report, judged)) return;
    for (i64 entry = first + threadIdx.x; entry < first + count; entry += THREADS) {
        u32 column = rows.columns[entry];
        double2 bound = bounds[column & 0x7FFFFFFFu];
        tighten(judged, (double)rows.coefficients[entry], bound.x, bound.y, column, next, changed, progress);
    }
}

// A variable's bounds on their way to shared memory: past the registers and, what matters more, past the first cache, where
// each would take a line for as long as it is on its way, and there are not enough of them.
__device__ __forceinline__ void bring(double2 *place, const double2 *bound) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((u32)__cvta_generic_to_shared(place)), "l"(bound) : "memory");
#else
    *place = *bound;
#endif
}

// Until what this thread has brought is there.
__device__ __forceinline__ void wait_for_brought() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Rows of one tile; all threads of the block come here, and leave when none reads `held` or `parts` any more.
__device__ __forceinline__ void propagate_tile(const Rows &rows, i64 tile, const double2 *bounds, double *next,
                                               u32 *changed, i64 *report, double tolerance, double progress,
                                               Staged &held, Activity *parts) {
    i64 first_row = rows.tiles[tile], last_row = rows.tiles[tile + 1];
    i64 first = rows.tile_starts[tile], count = rows.tile_starts[tile + 1] - first;
    if (count > CHUNK) {
        propagate_long_row(rows, first_row, first, count, bounds, next, changed, report, tolerance, progress, parts);
        return;
    }
    // All loads of a tile that do not wait for one another are under way at once. Terms are read once a round: they are to
    // leave the caches first, where the bounds of variables stay.
    u32 columns[AT_ONCE];
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        i32 place = threadIdx.x + k * THREADS;
        columns[k] = place < count ? __ldcs(rows.columns + first + place) : 0;
    }
    COEFFICIENT coefficients[AT_ONCE];
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        i32 place = threadIdx.x + k * THREADS;
        coefficients[k] = place < count ? __ldcs(rows.coefficients + first + place) : (COEFFICIENT)0;
    }
    i64 row = first_row + threadIdx.x;
    i32 begin = 0, end = 0;
    if (row < last_row) {
        begin = (i32)(rows.starts[row] - first);
        end = (i32)(rows.starts[row + 1] - first);
    }
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        i32 entry = (i32)threadIdx.x + k * THREADS;
        if (entry < count) bring(held.bounds + PADDED_PAIR(entry), bounds + (columns[k] & 0x7FFFFFFFu));
    }
    #pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        i32 place = PADDED((i32)threadIdx.x + k * THREADS);
        held.coefficients[place] = coefficients[k];
        held.columns[place] = columns[k];
    }
    if (threadIdx.x == 0) held.warp_row_count = 0;
    wait_for_brought();
    __syncthreads();
    Activity sums;
    Judged judged;
    while (row < last_row) {
        if (end - begin > SHORT_ROW) {
            held.warp_rows[atomicAdd(&held.warp_row_count, 1)] = (i32)(row - first_row);
        } else {
            Sides sides = sides_of(rows, row);
            sums.clear();
            for (i32 entry = begin; entry < end; entry++) {
                double2 bound = held.bounds[PADDED_PAIR(entry)];
                sums.add((double)held.coefficients[PADDED(entry)], bound.x, bound.y, sides.kind);
            }
            if (judge(sides, end - begin, sums, tolerance, report, judged))
                tighten_held(judged, held, begin, end, 1, next, changed, progress);
        }
        row += THREADS;
        if (row < last_row) {
            begin = (i32)(rows.starts[row] - first);
            end = (i32)(rows.starts[row + 1] - first);
        }
    }
    __syncthreads();
    for (i32 number = threadIdx.x / 32; number < held.warp_row_count; number += WARPS) {
        row = first_row + held.warp_rows[number];
        begin = (i32)(rows.starts[row] - first);
        end = (i32)(rows.starts[row + 1] - first);
        Sides sides = sides_of(rows, row);
        sums.clear();
        for (i32 entry = begin + (i32)lane_number(); entry < end; entry += 32) {
            double2 bound = held.bounds[PADDED_PAIR(entry)];
            sums.add((double)held.coefficients[PADDED(entry)], bound.x, bound.y, sides.kind);
        }
        sums.add_lanes();
        if (judge(sides, end - begin, sums, tolerance, report, judged))
            tighten_held(judged, held, begin + (i32)lane_number(), end, 32, next, changed, progress);
    }
    __syncthreads();
}

// A block for each tile. bounds: lower and upper bound of each variable before the round, not changed; next: the same
// numbers before, better ones behind it; changed u32: a bit a variable, all zero before; report i64: see CHANGES.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
propagate_rows(const __grid_constant__ Rows rows, const double2 *bounds, double *next, u32 *changed, i64 *report, double tolerance,
               double progress) {
    __shared__ Staged held;
    __shared__ Activity parts[WARPS];
    propagate_tile(rows, blockIdx.x, bounds, next, changed, report, tolerance, progress, held, parts);
}

// Every variable whose bit is set, by the lanes of one warp after another, 1024 variables at a time.
template <typename Visit>
__device__ __forceinline__ void for_changed(const u32 *changed, i64 words, Visit visit) {
    i64 warps = (i64)gridDim.x * WARPS, base = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * 32;
    for (; base < words; base += warps * 32) {
        i64 own = base + lane_number();
        u32 bits = own < words ? changed[own] : 0;
        u32 left = __ballot_sync(ALL_LANES, bits != 0);
        while (left) {
            int source = __ffs(left) - 1;
            left &= left - 1;
            u32 word = __shfl_sync(ALL_LANES, bits, source);
            if (word >> lane_number() & 1) visit(((base + source) << 5) + lane_number());
        }
    }
}

// How many bounds a round has changed, and whether some cross.
__device__ __forceinline__ void count_all_changes(const Rows &rows, const double2 *bounds, const double2 *next,
                                                  const u32 *changed, i64 *report, double tolerance) {
    i32 mine = 0;
    for_changed(changed, (rows.variables + 31) / 32, [&](i64 v) {
        double2 before = bounds[v], after = next[v];
        mine += (before.x != after.x) + (before.y != after.y);
        double slack = OUTWARD ? 0.0 : tolerance * at_least_one(after.y);
        if (after.x > after.y + slack) report_once(report, CONTRADICTION);
    });
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(ALL_LANES, mine, step);
    if (lane_number() == 0 && mine) atomicAdd((u64 *)report + CHANGES, (u64)mine);
}

extern "C" __global__ void __launch_bounds__(THREADS)
count_changes(Rows rows, const double2 *bounds, const double2 *next, const u32 *changed, i64 *report, double tolerance) {
    count_all_changes(rows, bounds, next, changed, report, tolerance);
}

// Have the next round begin from what the last one found; bits are cleared.
__device__ __forceinline__ void take_all_changes(const Rows &rows, double2 *bounds, const double2 *next, u32 *changed) {
    i64 words = (rows.variables + 31) / 32;
    for_changed(changed, words, [&](i64 v) { bounds[v] = next[v]; });
    // A warp has read the words of its own lanes by now, and nobody else reads them.
    i64 warps = (i64)gridDim.x * WARPS, own = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * 32 + lane_number();
    for (; own < words; own += warps * 32) changed[own] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
take_changes(Rows rows, double2 *bounds, const double2 *next, u32 *changed) {
    take_all_changes(rows, bounds, next, changed);
}

// Rounds until nothing changes, in one cooperative launch. `arrived` is zero; rounds (most,): how many bounds changed in
// each round made, those of the last one not taken where it was contradictory; made i64 (1,): how many rounds. changes:
// what the report says before.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
propagate_all(const __grid_constant__ Rows rows, double2 *bounds, double *next, u32 *changed, i64 *report, double tolerance, double progress,
              i64 most, i64 *rounds, i64 *made, u32 *arrived, i64 changes) {
    __shared__ Staged held;
    __shared__ Activity parts[WARPS];
    u64 before = (u64)changes;
    u32 waits = 0;
    i64 round = 0;
    bool goes_on = true;
    while (goes_on && round < most) {
        for (i64 tile = blockIdx.x; tile < rows.tile_count; tile += gridDim.x)
            propagate_tile(rows, tile, bounds, next, changed, report, tolerance, progress, held, parts);
        wait_for_all(arrived, ++waits);
        count_all_changes(rows, bounds, (const double2 *)next, changed, report, tolerance);
        wait_for_all(arrived, ++waits);
        // All blocks read the same here: nobody writes to the report before all have come to the next place to wait.
        u64 total = load_relaxed((const u64 *)report + CHANGES);
        bool is_contradiction = load_relaxed((const u64 *)report + CONTRADICTION) != 0;
        if (blockIdx.x == 0 && threadIdx.x == 0) rounds[round] = (i64)(total - before);
        round++;
        goes_on = total != before && !is_contradiction;
        before = total;
        if (!is_contradiction) take_all_changes(rows, bounds, (const double2 *)next, changed);
        wait_for_all(arrived, ++waits);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *made = round;
}
