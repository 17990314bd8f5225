/* The integer peak: VNNI's products of four bytes from registers alone, or AVX2's where there is no VNNI.
 *
 * Input: steps. Output: operations of one step, two for each product of bytes. Invariant: twelve independent chains hide latency.
 */
#include <stdint.h>

#if defined(__AVX512VNNI__)
typedef int32_t vector __attribute__((vector_size(64)));
#define STEP(C) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(C) : "v"(a), "v"(b));
#elif defined(__AVXVNNI__)
typedef int32_t vector __attribute__((vector_size(32)));
#define STEP(C) __asm__ volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(C) : "x"(a), "x"(b));
#else
typedef int32_t vector __attribute__((vector_size(32)));
#define STEP(C)                                                                                                                \
  {                                                                                                                            \
    vector pairs;                                                                                                              \
    __asm__ volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0" : "+x"(C), "=&x"(pairs) : "x"(a), "x"(b), "x"(ones)); \
  }
#endif

int64_t peak_dots(int64_t steps) {
  vector a = {1}, b = {2}, ones __attribute__((unused)) = {0};
  ones += 0x00010001;
  vector c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a, c6 = a, c7 = a, c8 = a, c9 = a, c10 = a, c11 = a;
  for (int64_t s = 0; s < steps; ++s) {
    STEP(c0) STEP(c1) STEP(c2) STEP(c3) STEP(c4) STEP(c5) STEP(c6) STEP(c7) STEP(c8) STEP(c9) STEP(c10) STEP(c11)
  }
  c0 += c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  __asm__ volatile("" ::"x"(c0));
  return 12 * 2 * (int64_t)sizeof(vector);
}
