// The arithmetic of bound propagation over rows of a linear system: activities, residual activities and new bounds. It is
// that of oocbe/propagation/kernels/cpu/linear_rows.py. Sources that include this are compiled with COEFFICIENT, the type
// of coefficients, and OUTWARD, whether bounds are moved by the rounding error.
#include "integers.cuh"

#define HALF_UNIT 0x1p-53
#define EXACT_LIMIT 0x1p53
#define INFINITE 1e20

#define INTEGER_COEFFICIENTS 1
#define REAL_ROW 0
#define INTEGER_ROW 2

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

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7FF0000000000000ll); }
__device__ __forceinline__ double no_number() { return __longlong_as_double(0x7FF8000000000000ll); }
__device__ __forceinline__ bool is_infinite(double number) { return fabs(number) == infinity(); }
__device__ __forceinline__ bool is_whole(double number) { return floor(number) == number; }
__device__ __forceinline__ double at_least_one(double number) { return fabs(number) > 1.0 ? fabs(number) : 1.0; }


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

// Sides and kind of a row: all but its terms.
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
    bool is_contradiction, is_inexact; // it cannot be satisfied; its sums of integers reached 2^53
};

// Whether the row may bound a variable.
__device__ __forceinline__ bool judge(const Sides &sides, i64 count, const Activity &sums, double tolerance, Judged &made) {
    int kind = sides.kind;
    made.side_low = sides.low;
    made.side_high = sides.high;
    made.low = sums.low;
    made.high = sums.high;
    made.low_infinite = sums.low_infinite;
    made.high_infinite = sums.high_infinite;
    made.exact = kind != REAL_ROW && sums.whole;
    made.is_inexact = sums.low_size >= EXACT_LIMIT || sums.high_size >= EXACT_LIMIT;
    if (made.is_inexact) made.exact = false;
    made.is_inexact = made.is_inexact && kind == INTEGER_ROW;
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
    made.is_contradiction = (no_low && made.low - made.low_error > made.side_high + slack_high) ||
                            (no_high && made.high + made.high_error < made.side_low - slack_low);
    if (made.is_contradiction) return false;
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

// What a term allows its variable, and whether that is better than the bounds before.
struct Allowed {
    double low, high;
    bool raises, lowers;
};

__device__ __forceinline__ Allowed allowed_by(const Judged &row, double a, double lower, double upper, bool integral,
                                              double progress) {
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
    // Adding zero makes a zero of a negative one.
    return {low + 0.0, high + 0.0, is_better(low, lower, integral, progress), is_better(-high, -upper, integral, progress)};
}
