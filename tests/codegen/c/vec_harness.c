/* Every operation of vec.h over arrays of any length: whole vectors, then one tail. */
#include <smelt/math/math.h>
#include "harness.h"

#define LOOP(body, tail)                                          \
  int64_t i = 0;                                                  \
  for (; i + SMELT_L <= n; i += SMELT_L) { body; }                \
  if (i < n) { int64_t k = n - i; tail; }                         \
  (void)b

#define UNARY(op, S, D)                                                                     \
  static void op##__##S(const void *va, const void *b, void *vo, int64_t n) {               \
    const T_##S *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    LOOP(st_##D(o + i, op##_##S(ld_##S(a + i))), st_##D##_n(o + i, op##_##S(ld_##S##_n(a + i, k)), k)); \
  }
#define CONVERT(S, D)                                                                       \
  static void cvt__##S##_##D(const void *va, const void *b, void *vo, int64_t n) {          \
    const T_##S *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    LOOP(st_##D(o + i, cvt_##S##_##D(ld_##S(a + i))), st_##D##_n(o + i, cvt_##S##_##D(ld_##S##_n(a + i, k)), k)); \
  }
#define BINARY(op, S, D)                                                                    \
  static void op##__##S(const void *va, const void *vb, void *vo, int64_t n) {              \
    const T_##S *a = va, *b = vb;                                                           \
    T_##D *o = vo;                                                                          \
    LOOP(st_##D(o + i, op##_##S(ld_##S(a + i), ld_##S(b + i))),                             \
         st_##D##_n(o + i, op##_##S(ld_##S##_n(a + i, k), ld_##S##_n(b + i, k)), k));       \
  }
/* sel: the mask is a > b by lane number parity of the other dtype's memory form: bool bytes in b. */
#define SELECT(D)                                                                           \
  static void sel__##D(const void *va, const void *vb, void *vo, int64_t n) {               \
    const T_##D *a = va;                                                                    \
    const uint8_t *b = vb;                                                                  \
    T_##D *o = vo;                                                                          \
    LOOP(st_##D(o + i, sel_##D(ld_b(b + i), ld_##D(a + i), bc_##D(1))),                     \
         st_##D##_n(o + i, sel_##D(ld_b_n(b + i, k), ld_##D##_n(a + i, k), bc_##D(1)), k)); \
  }
/* Memory: stride 3 in, stride 2 out (odd slots untouched); gather and scatter through index b. */
#define MEMORY(D)                                                                           \
  static void strided__##D(const void *va, const void *b, void *vo, int64_t n) {            \
    const T_##D *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    LOOP(sts_##D(o + 2 * i, 2, lds_##D(a + 3 * i, 3)), sts_##D##_n(o + 2 * i, 2, lds_##D##_n(a + 3 * i, 3, k), k)); \
  }                                                                                         \
  static void gather__##D(const void *va, const void *vb, void *vo, int64_t n) {            \
    const T_##D *a = va;                                                                    \
    const int64_t *b = vb;                                                                  \
    T_##D *o = vo;                                                                          \
    LOOP(st_##D(o + i, ldg_##D(a, ld_i64(b + i))), st_##D##_n(o + i, ldg_##D##_n(a, ld_i64_n(b + i, k), k), k)); \
  }                                                                                         \
  static void scatter__##D(const void *va, const void *vb, void *vo, int64_t n) {           \
    const T_##D *a = va;                                                                    \
    const int64_t *b = vb;                                                                  \
    T_##D *o = vo;                                                                          \
    LOOP(stg_##D(o, ld_i64(b + i), ld_##D(a + i)), stg_##D##_n(o, ld_i64_n(b + i, k), ld_##D##_n(a + i, k), k)); \
  }                                                                                         \
  static void lane0__##D(const void *va, const void *b, void *vo, int64_t n) {              \
    const T_##D *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    for (int64_t i = 0; i < n; i++) o[i] = lane0_##D(bc_##D(a[i]));                         \
    (void)b;                                                                                \
  }                                                                                         \
  static void st1__##D(const void *va, const void *b, void *vo, int64_t n) {                \
    const T_##D *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    for (int64_t i = 0; i < n; i++) st1_##D(o + i, bc_##D(a[i]));                           \
    (void)b;                                                                                \
  }
#define REDUCE(op, D)                                                                       \
  static void op##__##D(const void *va, const void *b, void *vo, int64_t n) {               \
    const T_##D *a = va;                                                                    \
    T_##D *o = vo;                                                                          \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L) o[i / SMELT_L] = op##_##D(ld_##D(a + i)); \
    (void)b;                                                                                \
  }
#define REDUCE_BOOL(op)                                                                     \
  static void op##__b(const void *va, const void *b, void *vo, int64_t n) {                 \
    const uint8_t *a = va;                                                                  \
    uint8_t *o = vo;                                                                        \
    for (int64_t i = 0; i + SMELT_L <= n; i += SMELT_L) o[i / SMELT_L] = (uint8_t)op##_b(ld_b(a + i)); \
    (void)b;                                                                                \
  }

#define NUMBER(D)                                                                                              \
  UNARY(neg, D, D) UNARY(abs, D, D) UNARY(sign, D, D) BINARY(add, D, D) BINARY(sub, D, D) BINARY(mul, D, D)    \
  BINARY(div, D, D) BINARY(min, D, D) BINARY(max, D, D) BINARY(eq, D, b) BINARY(ne, D, b) BINARY(lt, D, b)     \
  BINARY(le, D, b) BINARY(gt, D, b) BINARY(ge, D, b) REDUCE(hsum, D) REDUCE(hprod, D) REDUCE(hmin, D)          \
  REDUCE(hmax, D)
#define INTEGER(D)                                                                                             \
  BINARY(mod, D, D) BINARY(fmod, D, D) BINARY(pow, D, D) BINARY(band, D, D) BINARY(bor, D, D)                  \
  BINARY(bxor, D, D) BINARY(shl, D, D) BINARY(shr, D, D) UNARY(bnot, D, D)
#define FLOAT(D)                                                                                               \
  UNARY(floor, D, D) UNARY(ceil, D, D) UNARY(round, D, D) UNARY(trunc, D, D) UNARY(sqrt, D, D)                 \
  UNARY(recip, D, D) UNARY(isnan, D, b) UNARY(isinf, D, b) UNARY(isinf_pos, D, b) UNARY(isinf_neg, D, b)
#define CONVERT_FROM(S)                                                                                        \
  CONVERT(S, i8) CONVERT(S, i16) CONVERT(S, i32) CONVERT(S, i64) CONVERT(S, u8) CONVERT(S, u16)                \
  CONVERT(S, u32) CONVERT(S, u64) CONVERT(S, f32) CONVERT(S, f64) CONVERT(S, b)
#define LOGIC                                                                                                  \
  BINARY(and, b, b) BINARY(or, b, b) BINARY(xor, b, b) UNARY(not, b, b) BINARY(eq, b, b) BINARY(ne, b, b)      \
  REDUCE_BOOL(hand) REDUCE_BOOL(hor)

#define ALL                                                                                                    \
  NUMBER(i8) NUMBER(i16) NUMBER(i32) NUMBER(i64) NUMBER(u8) NUMBER(u16) NUMBER(u32) NUMBER(u64) NUMBER(f32)    \
  NUMBER(f64) INTEGER(i8) INTEGER(i16) INTEGER(i32) INTEGER(i64) INTEGER(u8) INTEGER(u16) INTEGER(u32)         \
  INTEGER(u64) FLOAT(f32) FLOAT(f64) LOGIC SMELT_EACH_DTYPE(CONVERT_FROM) SMELT_EACH_DTYPE(SELECT)             \
  SMELT_EACH_STORED(MEMORY) CONVERT(f32, f16) CONVERT(f32, bf16) CONVERT(f16, f32) CONVERT(bf16, f32)

ALL

static void lanes(const void *a, const void *b, void *out, int64_t n) {
  (void)a, (void)b, (void)n;
  *(int64_t *)out = SMELT_L;
}
/* iota + tail_mask(n) of the n-th record. */
static void tail_masks(const void *a, const void *b, void *out, int64_t n) {
  (void)a, (void)b;
  for (int64_t i = 0; i < n; i++) st_b((uint8_t *)out + i * SMELT_L, tail_mask(i + 1));
}
static void iotas(const void *a, const void *b, void *out, int64_t n) {
  (void)a, (void)b, (void)n;
  st_i64(out, iota_i64());
}

#undef UNARY
#undef BINARY
#undef CONVERT
#undef SELECT
#undef MEMORY
#undef REDUCE
#undef REDUCE_BOOL
#define UNARY(op, S, D) {#op "_" #S, op##__##S},
#define BINARY(op, S, D) {#op "_" #S, op##__##S},
#define CONVERT(S, D) {"cvt_" #S "_" #D, cvt__##S##_##D},
#define SELECT(D) {"sel_" #D, sel__##D},
#define MEMORY(D)                                                                                              \
  {"strided_" #D, strided__##D}, {"gather_" #D, gather__##D}, {"scatter_" #D, scatter__##D},                   \
  {"lane0_" #D, lane0__##D}, {"st1_" #D, st1__##D},
#define REDUCE(op, D) {#op "_" #D, op##__##D},
#define REDUCE_BOOL(op) {#op "_b", op##__b},

static const table_row *harness_table(int *count) {
  static const table_row rows[] = {ALL{"lanes", lanes}, {"tail_masks", tail_masks}, {"iotas", iotas}};
  *count = (int)(sizeof rows / sizeof rows[0]);
  return rows;
}
