// Assignments v = a of a linear system, thousands of them propagated at once, each from the same bounds: probing.
//
// Probes come in groups of 32, one a lane, and a block takes a group until none of its rows waits: groups know nothing of one
// another. Of a variable that has two values at first, a group knows two words: a bit a probe that has fixed it at the lower
// value, and at the upper one. So a warp that takes a row reads a few bytes a term for all 32 probes, and its lanes read
// different terms at a time. Variables of more values have a pair of bounds a probe.
//
// A row waits for some probes of a group: those that have changed a variable of it. Bounds get better in place: a row may see
// some that others have just found, and none that is wrong, and what is left when no row waits is the same whatever the
// order, where all numbers are integers.
// variants: COEFFICIENT=double|float OUTWARD=1|0
#include "linear_rows.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
#define RESIDENT_BLOCKS 2
// Terms that a warp holds at a time.
#define HELD 32

struct Matrix {
    const u32 *uses, *rows_of; // rows of each variable: (variables + 1), (entries); see LOWER_COUNTS
    const double2 *root; // (variables): bounds that all probes begin with
    const double2 *activities; // (rows): least and most, where they are exact and no variable is wide; or no numbers
    const i32 *wide; // (variables): its place among those with a pair a probe, -1 for others; null where there are none
    const u32 *wide_variables; // (wide_count)
    const u32 *probe_variables; // (probes)
    const double *probe_values; // (probes)
    u64 *fixed; // (groups, variables), zero before: a bit a probe that fixes it at its lower bound; 32 more for the upper one
    double2 *pairs; // (groups, wide_count, 32)
    u32 *waiting; // (blocks, rows), zero before and behind: a bit a probe that a row waits for
    u32 *queues; // (blocks, 2, rows): rows that wait, in even and odd rounds
    u32 *failed; // (groups): a bit a probe
    i64 rows, wide_count, groups, probes;
};

// In the high bits of a variable's row: whether it says more when the variable's upper bound is lowered, and when its lower
// one is raised. A row without a lower side does not when its greatest activity gets smaller.
#define LOWER_COUNTS 0x80000000u
#define RAISE_COUNTS 0x40000000u
#define ROW_NUMBER 0x3FFFFFFFu

// Terms of a row that a warp has in shared memory.
struct Held {
    double2 bounds[HELD]; // that the probes began with
    double coefficients[HELD];
    u64 fixed[HELD];
    u32 columns[HELD];
    i32 wide[HELD];
};

// What is shared by the warps of a block.
struct Group {
    i64 number;
    u32 counts[3]; // rows in the queues of three rounds in turn
    u32 failed; // a bit a probe
};

__device__ __forceinline__ double2 load_bounds(const double2 *place) {
    double2 bound;
    bound.x = __longlong_as_double((i64)load_relaxed((const u64 *)place));
    bound.y = __longlong_as_double((i64)load_relaxed((const u64 *)place + 1));
    return bound;
}

__device__ __forceinline__ u64 *fixed_of(const Rows &rows, const Matrix &matrix, const Group &group, u32 v) {
    return matrix.fixed + group.number * rows.variables + v;
}

__device__ __forceinline__ double2 *pairs_of(const Matrix &matrix, const Group &group, i32 wide) {
    return matrix.pairs + (group.number * matrix.wide_count + wide) * 32;
}

// Have a row wait for some probes in a round.
__device__ __forceinline__ void wait_for(const Matrix &matrix, Group &group, u32 row, u32 probes, u64 round) {
    u32 *queue = matrix.queues + (2 * blockIdx.x + (round & 1)) * matrix.rows;
    if (atomicOr(matrix.waiting + blockIdx.x * matrix.rows + row, probes) == 0)
        queue[atomicAdd(group.counts + round % 3, 1u)] = row;
}

// Have the rows of each lane's variable, whose upper bound some probes have lowered and others have raised the lower one, wait
// in a round where they say more then; all lanes come here, and share the rows of all their variables. begin, end: the
// lane's uses; `but`: a row that does not wait.
__device__ __forceinline__ void wake(const Matrix &matrix, Group &group, u32 begin, u32 end, u32 down, u32 up, u64 round,
                                     i64 but) {
    u32 lane = lane_number(), sum = down | up ? end - begin : 0;
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u32 before = __shfl_up_sync(ALL_LANES, sum, step);
        if (lane >= step) sum += before;
    }
    u32 total = __shfl_sync(ALL_LANES, sum, 31);
    for (u32 base = 0; base < total; base += 32) {
        u32 place = base + lane, owner = 0; // the first lane whose sum exceeds the place, or the last one
        #pragma unroll
        for (int step = 16; step > 0; step /= 2)
            if (__shfl_sync(ALL_LANES, sum, owner + step - 1) <= place) owner += step;
        u32 use = __shfl_sync(ALL_LANES, end, owner) - (__shfl_sync(ALL_LANES, sum, owner) - place);
        u32 lowered = __shfl_sync(ALL_LANES, down, owner), raised = __shfl_sync(ALL_LANES, up, owner);
        if (place >= total) continue;
        u32 row = matrix.rows_of[use], probes = (row & LOWER_COUNTS ? lowered : 0) | (row & RAISE_COUNTS ? raised : 0);
        row &= ROW_NUMBER;
        if (probes && row != but) wait_for(matrix, group, row, probes, round);
    }
}

// Bring terms of a row, from `first` on, to shared memory.
__device__ __forceinline__ void hold(const Rows &rows, const Matrix &matrix, const Group &group, i64 first, i64 end,
                                     Held &held) {
    u32 lane = lane_number();
    __syncwarp(); // nobody reads the terms before any more
    if (first + lane < end) {
        u32 column = rows.columns[first + lane], v = column & 0x7FFFFFFFu;
        held.columns[lane] = column;
        held.coefficients[lane] = (double)rows.coefficients[first + lane];
        held.wide[lane] = matrix.wide ? matrix.wide[v] : -1;
        held.bounds[lane] = matrix.root[v];
        held.fixed[lane] = load_relaxed(fixed_of(rows, matrix, group, v));
    }
    __syncwarp();
}

// This lane's bounds of the variable of a term that is held.
__device__ __forceinline__ double2 bounds_of(const Matrix &matrix, const Group &group, const Held &held, i32 term) {
    if (held.wide[term] >= 0) return load_bounds(pairs_of(matrix, group, held.wide[term]) + lane_number());
    double2 bound = held.bounds[term], own = bound;
    u64 fixed = held.fixed[term] >> lane_number();
    if (fixed & 1) own.y = bound.x;
    if (fixed >> 32 & 1) own.x = bound.y; // with both they cross
    return own;
}

// What a warp knows of the row that it propagates.
struct Task {
    i64 first, end, but; // terms; and the row itself where what it tightens is not what it reads
    Sides sides;
    u64 round;
    bool is_active; // whether it is this lane's probe that the row waits for
};

__device__ __forceinline__ i32 terms_from(const Task &task, i64 base) {
    return (i32)(task.end - base < HELD ? task.end - base : HELD);
}

// Fix variables of two values, those of the terms that are held: each lane says of its own term for which probes it has the
// lower value, and the upper one. Their rows wait. All lanes come here. Returns whether this lane's probe has both of some.
__device__ __forceinline__ bool fix(const Rows &rows, const Matrix &matrix, Group &group, const Task &task, const Held &held,
                                    u32 down, u32 up) {
    u64 now = (u64)up << 32 | down;
    u32 begin = 0, end = 0, both = 0;
    u64 added = 0;
    if (now) {
        u32 v = held.columns[lane_number()] & 0x7FFFFFFFu;
        begin = matrix.uses[v];
        end = matrix.uses[v + 1];
        u64 before = atomicOr(fixed_of(rows, matrix, group, v), now);
        added = now & ~before;
        now |= before;
        both = (u32)now & (u32)(now >> 32);
    }
    __threadfence_block(); // rows that wait from now on see this
    __syncwarp();
    wake(matrix, group, begin, end, (u32)added, (u32)(added >> 32), task.round + 1, task.but);
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) both |= __shfl_xor_sync(ALL_LANES, both, step);
    return both >> lane_number() & 1;
}

// A row of integers with two values each: what it adds up to is what it did at first and what fixed terms make of that, and
// a term that varies by more than there is room for has to be where it takes least. Returns whether this lane's probe fails.
__device__ __forceinline__ bool propagate_exact(const Rows &rows, const Matrix &matrix, Group &group, const Task &task,
                                                double2 activity, Held &held) {
    u32 lane = lane_number();
    double low = activity.x, high = activity.y;
    bool fails = false;
    for (i64 base = task.first; base < task.end; base += HELD) {
        hold(rows, matrix, group, base, task.end, held);
        u32 some = __ballot_sync(ALL_LANES, (i32)lane < terms_from(task, base) && held.fixed[lane]);
        for (; some; some &= some - 1) {
            i32 term = __ffs(some) - 1;
            u64 fixed = held.fixed[term] >> lane;
            bool is_low = fixed & 1, is_high = fixed >> 32 & 1;
            double2 bound = held.bounds[term];
            double a = held.coefficients[term], spread = fabs(a) * (bound.y - bound.x);
            fails |= is_low && is_high; // found by two rows at once
            if (a > 0 ? is_low : is_high) high -= spread;
            if (a > 0 ? is_high : is_low) low += spread;
        }
    }
    fails = task.is_active && (fails || low > task.sides.high || high < task.sides.low);
    double room_high = high > task.sides.high ? task.sides.high - low : infinity();
    double room_low = low < task.sides.low ? high - task.sides.low : infinity();
    bool may_bound = task.is_active && !fails;
    float least = may_bound ? __double2float_rd(room_high < room_low ? room_high : room_low) : __int_as_float(0x7F800000);
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) least = fminf(least, __shfl_xor_sync(ALL_LANES, least, step));
    if (least == __int_as_float(0x7F800000)) return fails;
    for (i64 base = task.first; base < task.end; base += HELD) {
        if (task.end - task.first > HELD) hold(rows, matrix, group, base, task.end, held);
        bool is_candidate = false;
        if ((i32)lane < terms_from(task, base)) {
            double2 bound = held.bounds[lane];
            is_candidate = fabs(held.coefficients[lane]) * (bound.y - bound.x) > least;
        }
        u32 some = __ballot_sync(ALL_LANES, is_candidate), down = 0, up = 0;
        for (; some; some &= some - 1) {
            i32 term = __ffs(some) - 1;
            double2 bound = held.bounds[term];
            double a = held.coefficients[term], spread = fabs(a) * (bound.y - bound.x);
            bool is_free = may_bound && !fails && !(held.fixed[term] >> lane & 0x100000001ull);
            bool is_least = is_free && spread > room_high, is_most = is_free && spread > room_low;
            fails |= is_least && is_most;
            u32 least_ones = __ballot_sync(ALL_LANES, is_least && !fails);
            u32 most_ones = __ballot_sync(ALL_LANES, is_most && !fails);
            if (term == (i32)lane) {
                down = a > 0 ? least_ones : most_ones;
                up = a > 0 ? most_ones : least_ones;
            }
        }
        if (__ballot_sync(ALL_LANES, down | up)) fails |= fix(rows, matrix, group, task, held, down, up) && task.is_active;
    }
    return fails;
}

// Any row. Returns whether this lane's probe fails. Not put in where it is called: the other rows have the registers.
__device__ __noinline__ bool propagate_any(const Rows &rows, const Matrix &matrix, Group &group, const Task &task,
                                              double progress, Held &held) {
    u32 lane = lane_number();
    bool fails = false;
    Activity sums;
    sums.clear();
    for (i64 base = task.first; base < task.end; base += HELD) {
        hold(rows, matrix, group, base, task.end, held);
        i32 count = terms_from(task, base);
        for (i32 term = 0; term < count; term++) {
            double2 bound = bounds_of(matrix, group, held, term);
            fails |= bound.x > bound.y; // found by two rows at once
            sums.add(held.coefficients[term], bound.x, bound.y, task.sides.kind);
        }
    }
    Judged judged;
    bool may_bound = judge(task.sides, task.end - task.first, sums, 0.0, judged) && !fails && task.is_active;
    fails = (fails || judged.is_contradiction) && task.is_active;
    if (!__ballot_sync(ALL_LANES, may_bound)) return fails;
    for (i64 base = task.first; base < task.end; base += HELD) {
        if (task.end - task.first > HELD) hold(rows, matrix, group, base, task.end, held);
        i32 count = terms_from(task, base);
        u32 down = 0, up = 0;
        for (i32 term = 0; term < count; term++) {
            u32 column = held.columns[term];
            i32 wide = held.wide[term];
            Allowed allowed = {0.0, 0.0, false, false};
            if (may_bound && !fails) {
                // What others found meanwhile makes a residual activity smaller, so what follows from it weaker.
                double2 bound = bounds_of(matrix, group, held, term);
                allowed = allowed_by(judged, held.coefficients[term], bound.x, bound.y, column >> 31, progress);
                fails |= (allowed.raises ? allowed.low : bound.x) > (allowed.lowers ? allowed.high : bound.y);
            }
            allowed.raises = allowed.raises && !fails;
            allowed.lowers = allowed.lowers && !fails;
            u32 lowered = __ballot_sync(ALL_LANES, allowed.lowers), raised = __ballot_sync(ALL_LANES, allowed.raises);
            if (wide < 0) {
                if (term == (i32)lane) {
                    down = lowered;
                    up = raised;
                }
                continue;
            }
            u32 changed = lowered | raised;
            if (!changed) continue;
            if (changed >> lane & 1) {
                double2 *place = pairs_of(matrix, group, wide) + lane;
                if (allowed.raises) raise_to(&place->x, allowed.low);
                if (allowed.lowers) lower_to(&place->y, allowed.high);
                double2 now = load_bounds(place);
                fails |= now.x > now.y;
            }
            __threadfence_block();
            __syncwarp();
            u32 v = column & 0x7FFFFFFFu;
            if (lane != 0) lowered = raised = 0;
            wake(matrix, group, matrix.uses[v], matrix.uses[v + 1], lowered, raised, task.round + 1, task.but);
        }
        if (__ballot_sync(ALL_LANES, down | up)) fails |= fix(rows, matrix, group, task, held, down, up) && task.is_active;
    }
    return fails;
}

// Propagate a row for the probes that it waits for; all lanes come here.
__device__ __forceinline__ void propagate_row(const Rows &rows, const Matrix &matrix, Group &group, i64 row, u64 round,
                                              double progress, Held &held) {
    Task task; // loads that do not wait for the exchange
    task.first = rows.starts[row];
    task.end = rows.starts[row + 1];
    task.sides = {rows.row_lower[row], rows.row_upper[row], rows.kinds[row]};
    double2 activity = matrix.activities[row];
    u32 probes = 0;
    if (lane_number() == 0) {
        probes = atomicExch(matrix.waiting + blockIdx.x * matrix.rows + row, 0u);
        probes &= ~*(volatile u32 *)&group.failed;
        __threadfence_block(); // what changed before the row was made to wait is seen
    }
    probes = __shfl_sync(ALL_LANES, probes, 0);
    if (!probes) return;
    task.but = is_infinite(task.sides.low) || is_infinite(task.sides.high) ? row : -1;
    task.round = round;
    task.is_active = probes >> lane_number() & 1;
    bool fails = activity.x == activity.x ? propagate_exact(rows, matrix, group, task, activity, held)
                                          : propagate_any(rows, matrix, group, task, progress, held);
    u32 failing = __ballot_sync(ALL_LANES, fails);
    if (lane_number() == 0 && failing) atomicOr(&group.failed, failing);
}

// Say in the high bits of the rows of variables when they count; a warp a row of the system. rows_of: numbers of rows before.
extern "C" __global__ void __launch_bounds__(THREADS)
flag_uses(const __grid_constant__ Rows rows, i64 count, const u32 *uses, u32 *rows_of) {
    i64 row = ((i64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (row >= count) return;
    bool has_low = !is_infinite(rows.row_lower[row]), has_high = !is_infinite(rows.row_upper[row]);
    for (i64 entry = rows.starts[row] + lane_number(); entry < rows.starts[row + 1]; entry += 32) {
        u32 v = rows.columns[entry] & 0x7FFFFFFFu, first = uses[v], last = uses[v + 1];
        while (first < last) {
            u32 middle = first + (last - first) / 2;
            if ((load_relaxed(rows_of + middle) & ROW_NUMBER) < row) first = middle + 1; else last = middle;
        }
        bool is_positive = rows.coefficients[entry] > 0;
        u32 flags = (is_positive ? has_low : has_high) ? LOWER_COUNTS : 0;
        if (is_positive ? has_high : has_low) flags |= RAISE_COUNTS;
        store_relaxed(rows_of + first, (u32)row | flags);
    }
}

// What rows add up to with the bounds that probes begin with, of rows that are exact; a thread a row. activities: written.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_rows(const __grid_constant__ Rows rows, i64 count, const double2 *root, const i32 *wide, double2 *activities) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= count) return;
    double2 found = {0.0, 0.0};
    double size = 0.0;
    bool is_exact = rows.kinds[row] == INTEGER_ROW;
    for (i64 entry = rows.starts[row]; entry < rows.starts[row + 1] && is_exact; entry++) {
        u32 v = rows.columns[entry] & 0x7FFFFFFFu;
        double a = (double)rows.coefficients[entry], x = a * root[v].x, y = a * root[v].y;
        found.x += x < y ? x : y;
        found.y += x < y ? y : x;
        size += fabs(x) > fabs(y) ? fabs(x) : fabs(y);
        is_exact = !(wide && wide[v] >= 0) && size < EXACT_LIMIT;
    }
    if (!is_exact) found.x = found.y = no_number();
    activities[row] = found;
}

// Give a group its probes, whose rows wait for round 0.
__device__ __forceinline__ void begin_group(const Rows &rows, const Matrix &matrix, Group &group, i64 number) {
    i64 begin = number * 32, left = matrix.probes - begin;
    if (threadIdx.x == 0) {
        group.number = number;
        group.counts[0] = group.counts[1] = group.counts[2] = 0;
        group.failed = left >= 32 ? 0 : ALL_LANES << left; // there are no such probes
    }
    __syncthreads();
    for (i64 cell = threadIdx.x; cell < matrix.wide_count * 32; cell += THREADS)
        pairs_of(matrix, group, 0)[cell] = matrix.root[matrix.wide_variables[cell / 32]];
    __syncthreads();
    for (i32 probe = threadIdx.x / 32; probe < 32 && probe < left; probe += WARPS) {
        u32 v = matrix.probe_variables[begin + probe];
        double value = matrix.probe_values[begin + probe];
        if (lane_number() == 0) {
            if (matrix.wide && matrix.wide[v] >= 0) pairs_of(matrix, group, matrix.wide[v])[probe] = {value, value};
            else atomicOr(fixed_of(rows, matrix, group, v), (u64)1 << (value == matrix.root[v].x ? probe : probe + 32));
        }
        __threadfence_block();
        __syncwarp();
        u32 bit = lane_number() == 0 ? 1u << probe : 0, down = value < matrix.root[v].y ? bit : 0;
        u32 up = value > matrix.root[v].x ? bit : 0;
        wake(matrix, group, matrix.uses[v], matrix.uses[v + 1], down, up, 0, -1);
    }
    __syncthreads();
}

// Write the failures of a group, and reset the rows that wait. `size`: rows that wait in a round.
__device__ __forceinline__ void end_group(const Matrix &matrix, Group &group, u64 round, u32 size) {
    u32 *waiting = matrix.waiting + blockIdx.x * matrix.rows;
    const u32 *queue = matrix.queues + (2 * blockIdx.x + (round & 1)) * matrix.rows;
    for (u32 place = threadIdx.x; place < size; place += THREADS) waiting[queue[place]] = 0;
    __syncthreads();
    if (threadIdx.x == 0) matrix.failed[group.number] = group.failed;
    __syncthreads();
}

// All probes, for `most` rounds of each group at most; blocks take groups in turn, as many blocks as `waiting` is for.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
propagate_probes(const __grid_constant__ Rows rows, const __grid_constant__ Matrix matrix, double progress,
                 i64 most) {
    __shared__ Held held[WARPS];
    __shared__ Group group;
    int warp = threadIdx.x / 32;
    for (i64 number = blockIdx.x; number < matrix.groups; number += gridDim.x) {
        begin_group(rows, matrix, group, number);
        u64 round = 0;
        u32 size;
        while (true) {
            size = group.counts[round % 3];
            bool is_over = size == 0 || round == (u64)most || group.failed == ALL_LANES;
            __syncthreads(); // all have read that; the counter of the round after the next one is nobody's now
            if (is_over) break;
            if (threadIdx.x == 0) group.counts[(round + 2) % 3] = 0;
            const u32 *queue = matrix.queues + (2 * blockIdx.x + (round & 1)) * matrix.rows;
            for (u32 place = warp; place < size; place += WARPS) {
                propagate_row(rows, matrix, group, queue[place], round, progress, held[warp]);
            }
            round++;
            __syncthreads();
        }
        end_group(matrix, group, round, size);
    }
}
