/* Elementary functions over arrays, and sweeps that give the largest error in ULP against the C library in the next wider
 * type (f32 against double, f64 against long double). */
#include <math.h>
#include <smelt/math/math.h>
#include "harness.h"

typedef struct { double ulp, at, got, want; } worst;

static double reference_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static long double reference_sigmoidl(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }
static double reference_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static long double reference_softplusl(long double x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }
static double reference_gelu(double x) { return 0.5 * x * erfc(-x * 0x1.6a09e667f3bcdp-1); }
static long double reference_gelul(long double x) { return 0.5L * x * erfcl(-x * 0x1.6a09e667f3bcc908b2fcp-1L); }
#define gelu reference_gelu
#define gelul reference_gelul
#define sigmoid reference_sigmoid
#define sigmoidl reference_sigmoidl
#define softplus reference_softplus
#define softplusl reference_softplusl

/* |got - want| in units of the last place of the target format at want; overflow counts as the next power of two. */
static long double distance(long double got, long double want, int mantissa_bits, int lowest, int highest) {
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  long double limit = ldexpl(1, highest);
  if (fabsl(want) >= limit && isinf(got)) return signbit(got) == signbit(want) ? 0 : INFINITY;
  if (isinf(got)) got = copysignl(limit, got);
  if (isinf(want)) want = copysignl(limit, want);
  int exponent = want == 0 ? lowest : ilogbl(want);
  if (exponent < lowest) exponent = lowest;
  if (exponent >= highest) exponent = highest - 1;
  return fabsl(got - want) / ldexpl(1, exponent - mantissa_bits);
}
static void note(worst *most, long double ulp, long double at, long double got, long double want) {
  if (!(ulp > most->ulp)) return;
  *most = (worst){(double)ulp, (double)at, (double)got, (double)want};
}

/* a[0], a[1] = first bit pattern and step; every bit pattern reached below 2^32 is tried. */
#define SWEEP_F32(fn)                                                                          \
  static void sweep_##fn(const void *a, const void *b, void *out, int64_t n) {                 \
    const uint32_t *from = a;                                                                  \
    worst most = {0, 0, 0, 0};                                                                 \
    for (uint64_t bits = from[0]; bits < (uint64_t)1 << 32;) {                                 \
      uint32_t x[SMELT_L];                                                                     \
      float got[SMELT_L];                                                                      \
      for (int i = 0; i < SMELT_L; i++, bits += from[1]) x[i] = (uint32_t)bits;                \
      st_f32(got, fn##_f32((v_f32)ld_u32(x)));                                                 \
      for (int i = 0; i < SMELT_L; i++) {                                                      \
        float value;                                                                           \
        memcpy(&value, x + i, 4);                                                              \
        double want = fn((double)value);                                                       \
        if ((double)got[i] == want) continue;                                                  \
        note(&most, distance(got[i], want, 23, -126, 128), value, got[i], want);               \
      }                                                                                        \
    }                                                                                          \
    memcpy(out, &most, sizeof most);                                                           \
    (void)b, (void)n;                                                                          \
  }                                                                                            \
  static void array_##fn(const void *a, const void *b, void *out, int64_t n) {                 \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L)                                        \
      st_f32((float *)out + i, fn##_f32(ld_f32((const float *)a + i)));                        \
    (void)b;                                                                                   \
  }
#define POINTS_F64(fn)                                                                         \
  static void points_##fn(const void *a, const void *b, void *out, int64_t n) {                \
    const double *x = a;                                                                       \
    worst most = {0, 0, 0, 0};                                                                 \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L) {                                      \
      double got[SMELT_L];                                                                     \
      st_f64(got, fn##_f64(ld_f64(x + i)));                                                    \
      for (int k = 0; k < SMELT_L; k++) {                                                      \
        long double want = fn##l((long double)x[i + k]);                                       \
        note(&most, distance(got[k], want, 52, -1022, 1024), x[i + k], got[k], want);          \
      }                                                                                        \
    }                                                                                          \
    memcpy(out, &most, sizeof most);                                                           \
    (void)b;                                                                                   \
  }                                                                                            \
  static void wide_##fn(const void *a, const void *b, void *out, int64_t n) {                  \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L)                                        \
      st_f64((double *)out + i, fn##_f64(ld_f64((const double *)a + i)));                      \
    (void)b;                                                                                   \
  }

#ifndef SMELT_TEST_F32
#define SMELT_TEST_F32(X)                                                                      \
  X(exp) X(log) X(erf) X(gelu) X(tanh) X(sigmoid) X(softplus) X(sin) X(cos) X(tan) X(asin) X(acos) \
  X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh) X(log1p) X(expm1) X(sqrt)
#define SMELT_TEST_F64(X) SMELT_TEST_F32(X)
#endif
SMELT_TEST_F32(SWEEP_F32)
SMELT_TEST_F64(POINTS_F64)

#define BINARY(name, D, fn, wide, bits, lowest, highest)                                       \
  static void points_##name##_##D(const void *va, const void *vb, void *out, int64_t n) {      \
    const T_##D *a = va, *b = vb;                                                              \
    worst most = {0, 0, 0, 0};                                                                 \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L) {                                      \
      T_##D got[SMELT_L];                                                                      \
      st_##D(got, name##_##D(ld_##D(a + i), ld_##D(b + i)));                                   \
      for (int k = 0; k < SMELT_L; k++) {                                                      \
        long double want = fn((wide)a[i + k], (wide)b[i + k]);                                 \
        note(&most, distance(got[k], want, bits, lowest, highest), a[i + k], got[k], b[i + k]); \
      }                                                                                        \
    }                                                                                          \
    memcpy(out, &most, sizeof most);                                                           \
  }                                                                                            \
  static void array_##name##_##D(const void *va, const void *vb, void *vo, int64_t n) {        \
    const T_##D *a = va, *b = vb;                                                              \
    T_##D *o = vo;                                                                             \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L)                                        \
      st_##D(o + i, name##_##D(ld_##D(a + i), ld_##D(b + i)));                                 \
  }
#ifndef SMELT_TEST_NO_BINARY
BINARY(pow, f32, powl, long double, 23, -126, 128)
BINARY(pow, f64, powl, long double, 52, -1022, 1024)
BINARY(fmod, f32, fmod, double, 23, -126, 128)
BINARY(fmod, f64, fmodl, long double, 52, -1022, 1024)
BINARY(mod, f32, fmod, double, 23, -126, 128)
BINARY(mod, f64, fmodl, long double, 52, -1022, 1024)
#endif

#define ROW_F32(fn) {"sweep_" #fn, sweep_##fn}, {"array_" #fn, array_##fn},
#define ROW_F64(fn) {"points_" #fn, points_##fn}, {"wide_" #fn, wide_##fn},
#define ROW_BINARY(fn) {"points_" #fn, points_##fn}, {"array_" #fn, array_##fn},
static const table_row *harness_table(int *count) {
  static const table_row rows[] = {
#ifndef SMELT_TEST_NO_BINARY
      ROW_BINARY(pow_f32) ROW_BINARY(pow_f64) ROW_BINARY(fmod_f32) ROW_BINARY(fmod_f64)
      ROW_BINARY(mod_f32) ROW_BINARY(mod_f64)
#endif
      SMELT_TEST_F32(ROW_F32) SMELT_TEST_F64(ROW_F64)};
  *count = (int)(sizeof rows / sizeof rows[0]);
  return rows;
}
