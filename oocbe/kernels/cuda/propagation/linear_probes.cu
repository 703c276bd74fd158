// Assignments v = a of a linear system, thousands of them propagated at once, each from the same bounds: probing.
//
// Bounds are a matrix, a row a variable and a column a probe. A warp takes a row of the system for a group of 32 probes, one a
// lane: the row's columns and coefficients are read once for all of them, and the bounds of neighbouring probes lie side by
// side. Rows wait for a group where some probe of it has changed a variable of theirs. Bounds get better in place: a row may
// see some that others have just found, and none that is wrong, and what is left when no row waits is the same whatever the
// order, where all numbers are integers.
// variants: COEFFICIENT=double|float OUTWARD=1|0
#include "linear_rows.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define RESIDENT_BLOCKS 4
#define CHANGED_AT_ONCE 4

struct Matrix {
    const i64 *row_starts, *rows_of; // rows of each variable: (variables + 1), (entries)
    const double2 *root; // (variables): bounds that all probes begin with
    const i64 *probe_variables; // (probes)
    const double *probe_values; // (probes)
    double2 *bounds; // (variables, probes)
    u8 *waiting; // (2, groups, row_stride): rows that wait, in even and odd rounds
    u32 *failed; // (groups): a bit a probe
    u32 *implied; // (2, variables, groups): a bit a probe that fixes the variable at its lower or upper bound; or null
    u64 *report; // (4): see below
    u32 *arrived; // (1), zero
    i64 rows, row_stride, probes; // probes: a multiple of 32; those behind `count` are none
    i64 count;
};

// The last even and the last odd round that rows wait for: one is looked at while the other one may be written already.
#define AGAIN 0
// Non-zeros times probes that were looked at, and rounds made.
#define ENTRIES 2
#define ROUNDS 3

// Give all probes the same bounds but for their own variables, whose rows are to be looked at.
__device__ __forceinline__ void begin_probes(const Rows &rows, const Matrix &matrix, i64 me, i64 threads) {
    i64 cells = rows.variables * matrix.probes;
    for (i64 cell = me; cell < cells; cell += threads) {
        i64 v = cell / matrix.probes, probe = cell - v * matrix.probes;
        double2 bound = matrix.root[v];
        if (probe < matrix.count && matrix.probe_variables[probe] == v) {
            bound.x = bound.y = matrix.probe_values[probe];
            u8 *waiting = matrix.waiting + (probe / 32) * matrix.row_stride;
            for (i64 use = matrix.row_starts[v]; use < matrix.row_starts[v + 1]; use++) waiting[matrix.rows_of[use]] = 1;
        }
        matrix.bounds[cell] = bound;
    }
}

__device__ __forceinline__ double2 load_bounds(const double2 *place) {
    double2 bound;
    bound.x = __longlong_as_double((i64)load_relaxed((const u64 *)place));
    bound.y = __longlong_as_double((i64)load_relaxed((const u64 *)place + 1));
    return bound;
}

// Propagate a row for a group of probes; all lanes come here. Returns the probes that were looked at.
__device__ __forceinline__ u32 propagate_row(const Rows &rows, const Matrix &matrix, i64 group, i64 row, u64 round,
                                             double progress) {
    u32 lane = lane_number();
    // Others set bits meanwhile: all lanes must go by the same ones.
    u32 failed = __shfl_sync(ALL_LANES, load_relaxed(matrix.failed + group), 0);
    if (failed == ALL_LANES) return 0;
    i64 first = rows.starts[row], end = rows.starts[row + 1];
    Sides sides = {rows.row_lower[row], rows.row_upper[row], rows.kinds[row]};
    double2 *bounds = matrix.bounds + group * 32 + lane;
    bool fails = false;
    Activity sums;
    sums.clear();
    #pragma unroll 4
    for (i64 entry = first; entry < end; entry++) {
        double2 bound = bounds[(i64)(rows.columns[entry] & 0x7FFFFFFFu) * matrix.probes];
        fails |= bound.x > bound.y; // found by two rows at once
        sums.add((double)rows.coefficients[entry], bound.x, bound.y, sides.kind);
    }
    Judged judged;
    bool may_bound = judge(sides, end - first, sums, 0.0, judged) && !fails && !(failed >> lane & 1);
    fails |= judged.is_contradiction;
    // What one side of a row tightens is not what it reads.
    bool reads = !is_infinite(sides.low) && !is_infinite(sides.high);
    if (__ballot_sync(ALL_LANES, may_bound)) {
        for (i64 entry = first; entry < end; entry++) {
            u32 column = rows.columns[entry];
            i64 v = column & 0x7FFFFFFFu;
            double2 *place = bounds + v * matrix.probes;
            bool is_changed = false;
            if (may_bound) {
                double2 bound = *place;
                Allowed allowed = allowed_by(judged, (double)rows.coefficients[entry], bound.x, bound.y, column >> 31,
                                             progress);
                is_changed = allowed.raises || allowed.lowers;
                if (allowed.raises) raise_to(&place->x, allowed.low);
                if (allowed.lowers) lower_to(&place->y, allowed.high);
                if (is_changed) {
                    double2 now = load_bounds(place);
                    fails |= now.x > now.y;
                }
            }
            if (!__ballot_sync(ALL_LANES, is_changed && !fails)) continue;
            u8 *waiting = matrix.waiting + (((round + 1) & 1) * (matrix.probes / 32) + group) * matrix.row_stride;
            for (i64 use = matrix.row_starts[v] + lane; use < matrix.row_starts[v + 1]; use += 32) {
                i64 other = matrix.rows_of[use];
                if (reads || other != row) waiting[other] = 1;
            }
            u64 *again = matrix.report + AGAIN + ((round + 1) & 1);
            if (lane == 0 && load_relaxed(again) != round + 1) store_relaxed(again, round + 1);
        }
    }
    u32 failing = __ballot_sync(ALL_LANES, fails);
    if (lane == 0 && failing & ~failed) atomicOr(matrix.failed + group, failing);
    return ~failed;
}

// Which variables the probes fix.
__device__ __forceinline__ void collect(const Rows &rows, const Matrix &matrix, const u8 *integral, i64 warp, i64 warps) {
    i64 groups = matrix.probes / 32;
    for (i64 item = warp; item < rows.variables * groups; item += warps) {
        i64 v = item / groups, group = item - v * groups, probe = group * 32 + lane_number();
        double2 root = matrix.root[v], now = matrix.bounds[v * matrix.probes + probe];
        bool fixes = probe < matrix.count && integral[v] && root.x < root.y && now.x == now.y &&
                     !(load_relaxed(matrix.failed + group) >> lane_number() & 1) && matrix.probe_variables[probe] != v;
        u32 low = __ballot_sync(ALL_LANES, fixes && now.x == root.x), high = __ballot_sync(ALL_LANES, fixes && now.x == root.y);
        if (lane_number() == 0) {
            matrix.implied[item] = low;
            matrix.implied[rows.variables * groups + item] = high;
        }
    }
}

// All of it in one cooperative launch, for `most` rounds at most. waiting, failed, report and arrived are zero before.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
propagate_probes(const __grid_constant__ Rows rows, const __grid_constant__ Matrix matrix, const u8 *integral,
                 double progress, i64 most) {
    i64 threads = (i64)gridDim.x * THREADS, me = (i64)blockIdx.x * THREADS + threadIdx.x;
    i64 warps = threads / 32, warp = me / 32;
    i64 groups = matrix.probes / 32, row_tiles = matrix.row_stride / 32;
    u32 waits = 0;
    u64 looked = 0;
    begin_probes(rows, matrix, me, threads);
    wait_for_all(matrix.arrived, ++waits);
    u64 round = 0;
    while (true) {
        u8 *waiting = matrix.waiting + (round & 1) * groups * matrix.row_stride;
        // Neighbouring warps take groups of the same rows, whose columns and coefficients they share.
        for (i64 item = warp; item < groups * row_tiles; item += warps) {
            i64 tile = item / groups, group = item - tile * groups;
            u8 *place = waiting + group * matrix.row_stride + tile * 32 + lane_number();
            bool waits_here = *place != 0;
            if (waits_here) *place = 0;
            u32 left = __ballot_sync(ALL_LANES, waits_here);
            while (left) {
                i64 row = tile * 32 + __ffs(left) - 1;
                left &= left - 1;
                u32 active = propagate_row(rows, matrix, group, row, round, progress);
                looked += (u64)__popc(active) * (u64)(rows.starts[row + 1] - rows.starts[row]);
            }
        }
        round++;
        wait_for_all(matrix.arrived, ++waits);
        if (load_relaxed(matrix.report + AGAIN + (round & 1)) != round || round >= (u64)most) break;
    }
    if (lane_number() == 0 && looked) atomicAdd(matrix.report + ENTRIES, looked);
    if (me == 0) matrix.report[ROUNDS] = round;
    if (matrix.implied) collect(rows, matrix, integral, warp, warps);
}
