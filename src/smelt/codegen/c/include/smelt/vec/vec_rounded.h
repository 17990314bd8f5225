/* Products that are rounded before they are added to.
 *
 * Input:     a float vector of SMELT_VL bytes.
 * Output:    smelt_rounded(x): the same value, which the compiler cannot make part of a fused multiply-add.
 * Invariant: what separate nodes give is rounded twice, and so it is here, on every CPU.
 */
#ifndef SMELT_VEC_ROUNDED_H
#define SMELT_VEC_ROUNDED_H

/* Whether vectors of this length are registers whose instructions are written out. */
#if (SMELT_VL == 64 && defined(__AVX512BW__)) || (SMELT_VL == 32 && defined(__AVX2__))
#define SMELT_VEX 1
#else
#define SMELT_VEX 0
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* it is inlined: nothing is passed */
typedef float smelt_rounded_f __attribute__((vector_size(SMELT_VL), may_alias));

SMELT_INLINE smelt_rounded_f smelt_rounded(smelt_rounded_f x) {
#if SMELT_VEX || (SMELT_VL == 16 && defined(__SSE2__))
  __asm__("" : "+v"(x));
#elif SMELT_VL == 16 && defined(__aarch64__)
  __asm__("" : "+w"(x));
#else
  __asm__("" : "+m"(x));
#endif
  return x;
}

#endif
