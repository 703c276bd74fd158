// Infeasible values in complete tables (oocbe/model/infeasible.py): sums of integers beyond `limit` become
// `infeasible`. limit 0: no limit.

#define SUMMANDS 4

__device__ __forceinline__ VALUE clamped(VALUE value, VALUE infeasible, VALUE limit) {
#if COMBINATION == 0 && MARGINALISATION == 0
    if (limit > (VALUE)0 && value > limit) return infeasible;
#elif COMBINATION == 0
    if (limit > (VALUE)0 && value < -limit) return infeasible;
#endif
    return value;
}
