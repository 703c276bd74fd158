// The two operations of a semiring on values. VALUE is the values' type; COMBINATION and MARGINALISATION are the codes of
// oocbe.semiring: combine by 0 add, 1 multiply; marginalise by 0 min, 1 max, 2 sum, 3 log-sum-exp. The operator has
// checked that integers do not overflow.

__device__ __forceinline__ VALUE combine(VALUE a, VALUE b) {
#if COMBINATION == 0
    return a + b;
#else
    return a * b;
#endif
}

__device__ __forceinline__ VALUE marginalise(VALUE a, VALUE b) {
#if MARGINALISATION == 0
    return b < a ? b : a;
#elif MARGINALISATION == 1
    return b > a ? b : a;
#elif MARGINALISATION == 2
    return a + b;
#else
    // log(exp(a) + exp(b)) from the greater one, so that nothing overflows; equal infinities stay as they are.
    double greater = b > a ? b : a, lesser = b > a ? a : b;
    if (greater == lesser) return (VALUE)(greater + 0.69314718055994530942);
    return (VALUE)(greater + log1p(exp(lesser - greater)));
#endif
}
