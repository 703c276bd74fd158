// One round of bound propagation over all rows of a linear system (Sofranac, Gleixner and Pokutta 2021, algorithms 2 and
// 3): activities, residual activities and new bounds in one kernel. The arithmetic and the order of all sums are those of
// oocbe/propagation/kernels/cpu/linear_rows.py, so bounds are equal bit for bit, whatever the blocks.
// variants: COEFFICIENT=double|float OUTWARD=1|0 RESIDENT_BLOCKS=5|8
#include "linear_rows.cuh"

#define THREADS 128
#define WARPS (THREADS / 32)
#define CHUNK 1024
#define SHORT_ROW 32
#define AT_ONCE (CHUNK / THREADS)
#define MOST_WARP_ROWS (CHUNK / SHORT_ROW)
// RESIDENT_BLOCKS: of a multiprocessor at least, that registers are shared among. Small blocks, and several: each has a
// tile's terms on their way at once, and a thread for each of its rows when they have come. How many is best depends on
// where the bounds of variables come from (linear_rows.py).

// What a round reports, numbers that only grow: bounds that have changed, and whether anything was contradictory or inexact.
#define CHANGES 0
#define CONTRADICTION 1
#define INEXACT 2

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

__device__ __forceinline__ void report_once(i64 *report, int what) {
    u64 *flag = (u64 *)report + what;
    if (load_relaxed(flag) == 0) store_relaxed(flag, 1ull);
}

// Whether the row may bound a variable; what shows infeasibility or inexact sums is reported.
__device__ __forceinline__ bool judge_and_report(const Sides &sides, i64 count, const Activity &sums, double tolerance,
                                                 i64 *report, Judged &made) {
    bool bounds = judge(sides, count, sums, tolerance, made);
    if (made.is_inexact) report_once(report, INEXACT);
    if (made.is_contradiction) report_once(report, CONTRADICTION);
    return bounds;
}

// Take what one term allows its variable. next: lower and upper bound of each variable; changed: a bit a variable.
__device__ __forceinline__ void tighten(const Judged &row, double a, double lower, double upper, u32 column, double *next,
                                        u32 *changed, double progress) {
    Allowed allowed = allowed_by(row, a, lower, upper, column >> 31, progress);
    if (!allowed.raises && !allowed.lowers) return;
    i64 v = column & 0x7FFFFFFFu;
    if (allowed.raises) raise_to(next + 2 * v, allowed.low);
    if (allowed.lowers) lower_to(next + 2 * v + 1, allowed.high);
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
    if (!judge_and_report(sides, count, sums, tolerance, report, judged)) return;
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
            if (judge_and_report(sides, end - begin, sums, tolerance, report, judged))
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
        if (judge_and_report(sides, end - begin, sums, tolerance, report, judged))
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

// Where each variable is first mentioned. columns: as of the rows, numbered as they came; first (variables): their number of
// entries at least before, the first entry of each variable that has one behind it.
extern "C" __global__ void __launch_bounds__(THREADS)
first_mentions(const u32 *columns, i64 entries, u64 *first) {
    i64 threads = (i64)gridDim.x * THREADS;
    for (i64 entry = (i64)blockIdx.x * THREADS + threadIdx.x; entry < entries; entry += threads) {
        u64 *place = first + (columns[entry] & 0x7FFFFFFFu);
        if (load_relaxed(place) > (u64)entry) atomicMin(place, (u64)entry);
    }
}

// Give the variables of all columns other numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
renumber(u32 *columns, i64 entries, const u32 *places) {
    i64 threads = (i64)gridDim.x * THREADS;
    for (i64 entry = (i64)blockIdx.x * THREADS + threadIdx.x; entry < entries; entry += threads) {
        u32 column = columns[entry];
        columns[entry] = places[column & 0x7FFFFFFFu] | (column & 0x80000000u);
    }
}
