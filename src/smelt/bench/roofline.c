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
