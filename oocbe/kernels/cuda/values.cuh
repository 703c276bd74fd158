// The two operations of a semiring on values. VALUE is the values' type; COMBINATION and MARGINALISATION are the codes
// of oocbe.model.semiring: combine by 0 add, 1 multiply; marginalise by 0 min, 1 max, 2 sum, 3 log-sum-exp. The
// operator excludes integer overflow.

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
    // log(exp(a) + exp(b)) relative to the greater one to avoid overflow; equal infinities stay as they are.
    double greater = b > a ? b : a, lesser = b > a ? a : b;
    if (greater == lesser) return (VALUE)(greater + 0.69314718055994530942);
    return (VALUE)(greater + log1p(exp(lesser - greater)));
#endif
}

// Neutral element of the marginalisation, of the argument's type.
#if MARGINALISATION == 2
template <typename Value> __device__ __forceinline__ Value neutral(Value) { return 0; }
#else
#define LOWEST (MARGINALISATION != 0)
__device__ __forceinline__ int neutral(int) { return LOWEST ? (int)0x80000000 : 0x7FFFFFFF; }
__device__ __forceinline__ long long neutral(long long) {
    return LOWEST ? (long long)0x8000000000000000ull : 0x7FFFFFFFFFFFFFFFll;
}
__device__ __forceinline__ float neutral(float) { return __int_as_float(LOWEST ? (int)0xFF800000 : 0x7F800000); }
__device__ __forceinline__ double neutral(double) {
    return __longlong_as_double(LOWEST ? (long long)0xFFF0000000000000ull : 0x7FF0000000000000ll);
}
#endif
