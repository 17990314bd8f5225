/* Loops whose speed is the machine's limit: multiply-adds from registers alone, and streams through memory.
 *
 * Input: sizes and buffers of the caller, who takes the time. Output: a value that depends on every step, so that no
 * compiler drops the work. Invariant: no call leaves this file.
 */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
typedef float vector __attribute__((vector_size(SMELT_VL)));
typedef float loose_vector __attribute__((vector_size(SMELT_VL), aligned(4)));
#define LANES ((int64_t)(SMELT_VL / sizeof(float)))

/* Twelve independent chains hide the latency of a multiply-add. Does steps * 24 * lanes flops. */
EXPORT float limit_fma(int64_t steps) {
  vector a = {0}, b = {0};
  a += 0.999f, b += 1e-6f;
  /* Chains that begin alike would be one chain to an optimizer. */
  vector c0 = b, c1 = c0 + b, c2 = c1 + b, c3 = c2 + b, c4 = c3 + b, c5 = c4 + b, c6 = c5 + b, c7 = c6 + b, c8 = c7 + b,
         c9 = c8 + b, c10 = c9 + b, c11 = c10 + b;
#define STEP(C) C = C * a + b;
  for (int64_t s = 0; s < steps; ++s) {
    __asm__ volatile("" ::: "memory");
    STEP(c0) STEP(c1) STEP(c2) STEP(c3) STEP(c4) STEP(c5) STEP(c6) STEP(c7) STEP(c8) STEP(c9) STEP(c10) STEP(c11)
  }
  const vector sum = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  return sum[0];
}

EXPORT int64_t limit_lanes(void) { return LANES; }

/* Sums of products of bytes: by VNNI (`features` says which there is: 1 AVX-512's, 2 AVX's), else by AVX2's pairs. Does
 * steps * 24 * limit_dot_bytes() operations; 0 where there is no such instruction. */
#if defined(__AVX2__)
#define TWELVE(OP) OP(0) OP(1) OP(2) OP(3) OP(4) OP(5) OP(6) OP(7) OP(8) OP(9) OP(10) OP(11)
#define QUADS(I) "vpdpbusd %12, %12, %" #I "\n\t"
#define VEX_QUADS(I) "%{vex%} vpdpbusd %12, %12, %" #I "\n\t"
#define DOTS(OP)                                                                                                               \
  for (int64_t s = 0; s < steps; ++s)                                                                                          \
    __asm__ volatile(TWELVE(OP)                                                                                                \
                     : "+v"(c[0]), "+v"(c[1]), "+v"(c[2]), "+v"(c[3]), "+v"(c[4]), "+v"(c[5]), "+v"(c[6]), "+v"(c[7]),         \
                       "+v"(c[8]), "+v"(c[9]), "+v"(c[10]), "+v"(c[11])                                                        \
                     : "v"(a));
#if SMELT_VL == 64
typedef int64_t wide __attribute__((vector_size(64)));
#else
typedef int64_t wide __attribute__((vector_size(32)));
#endif
EXPORT int64_t limit_dots(int64_t steps, int features) {
  wide c[12] = {{0}}, a = {1}, pairs;
#if SMELT_VL == 64
  if (features & 1) {
    DOTS(QUADS)
    return c[0][0] + c[11][0];
  }
#else
  if (features & 2) {
    DOTS(VEX_QUADS)
    return c[0][0] + c[11][0];
  }
#endif
  for (int64_t s = 0; s < steps; ++s)
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      __asm__ volatile("vpmaddubsw %1, %1, %0\n\tvpmaddwd %1, %0, %0" : "=&v"(pairs) : "v"(a));
      c[i] += pairs;
    }
  int64_t sum = 0;
  for (int i = 0; i < 12; ++i) sum += c[i][0];
  return sum;
}
EXPORT int64_t limit_dot_bytes(void) { return sizeof(wide); }
#else
EXPORT int64_t limit_dots(int64_t steps, int features) { return steps & features; }
EXPORT int64_t limit_dot_bytes(void) { return 0; }
#endif

/* Sums of products of bfloat16 by AVX512_BF16, which `has` says there is. Does steps * 48 * limit_bf16_lanes() flops. */
#if defined(__AVX512F__) && SMELT_VL == 64
#define PAIRS(I) "vdpbf16ps %12, %12, %" #I "\n\t"
EXPORT float limit_bf16(int64_t steps, int has) {
  vector c[12] = {{0}}, a = {1e-9f};
  if (has) DOTS(PAIRS)
  return c[0][0] + c[11][0];
}
EXPORT int64_t limit_bf16_lanes(void) { return LANES; }
#else
EXPORT float limit_bf16(int64_t steps, int has) { return (float)(steps & has); }
EXPORT int64_t limit_bf16_lanes(void) { return 0; }
#endif

/* Reads `floats` floats, as four streams. */
EXPORT float limit_read(const float *data, int64_t floats) {
  const int64_t part = floats / 4 / LANES * LANES;
  vector s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < part; i += LANES) {
    s0 += *(const loose_vector *)(data + i);
    s1 += *(const loose_vector *)(data + part + i);
    s2 += *(const loose_vector *)(data + 2 * part + i);
    s3 += *(const loose_vector *)(data + 3 * part + i);
  }
  s0 += s1 + s2 + s3;
  return s0[0];
}

/* Reads one array and writes another: what an element-wise kernel cannot avoid. */
EXPORT float limit_copy(float *to, const float *from, int64_t floats) {
  for (int64_t i = 0; i + LANES <= floats; i += LANES)
    *(loose_vector *)(to + i) = *(const loose_vector *)(from + i) * 1.5f;
  return to[0];
}
