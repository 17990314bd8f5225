/* Integer division, remainders and powers.
 *
 * Input: vectors of one integer dtype. Output: div_D, mod_D (sign of the divisor), fmod_D (sign of the dividend), pow_D.
 * Invariant: exact, never traps. Up to 16 bits the quotient of two f32 truncates rightly, up to 32 bits that of two f64:
 * a quotient that is not whole lies further from the next whole number than the rounding error. */
#ifndef SMELT_VEC_DIVIDE_H
#define SMELT_VEC_DIVIDE_H

#include <smelt/vec/vec_arith.h>

SMELT_FN v_i32 divide_16_bits(v_i32 a, v_i32 b) {
  return cvt_f32_i32(cvt_i32_f32(a) / cvt_i32_f32(b)) & (v_i32)(b != 0);
}
#define SMELT_DEFINE(D) SMELT_FN v_##D div_##D(v_##D a, v_##D b) { return wrap_##D(divide_16_bits(a, b)); }
SMELT_EACH_SMALL(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_FN v_i32 div_i32(v_i32 a, v_i32 b) {
  return cvt_f64_i32(div_f64(cvt_i32_f64(a), cvt_i32_f64(b))) & (v_i32)(b != 0);
}
SMELT_FN v_u32 div_u32(v_u32 a, v_u32 b) {
  return cvt_f64_u32(div_f64(cvt_u32_f64(a), cvt_u32_f64(b))) & (v_u32)(b != 0);
}

SMELT_FN int64_t divide_lane_i64(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)-(uint64_t)a : a / b;
}
SMELT_FN uint64_t divide_lane_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D div_##D(v_##D a, v_##D b) {                                       \
    T_##D x[SMELT_L], y[SMELT_L];                                                  \
    st_##D(x, a);                                                                  \
    st_##D(y, b);                                                                  \
    for (int i = 0; i < SMELT_L; i++) x[i] = divide_lane_##D(x[i], y[i]);          \
    return ld_##D(x);                                                              \
  }
SMELT_DEFINE(i64) SMELT_DEFINE(u64)
#undef SMELT_DEFINE

/* a - (a / b) * b is a where b is 0: selected away. The signed mod moves a remainder of the wrong sign by one divisor. */
#define SMELT_REMAINDER(D)                                                         \
  SMELT_FN v_##D fmod_##D(v_##D a, v_##D b) {                                      \
    v_##D zero = bc_##D(0);                                                        \
    return sel_##D(ne_##D(b, zero), sub_##D(a, mul_##D(div_##D(a, b), b)), zero);  \
  }
SMELT_EACH_INT(SMELT_REMAINDER)
#undef SMELT_REMAINDER
#define SMELT_SIGNED(D)                                                            \
  SMELT_FN v_##D mod_##D(v_##D a, v_##D b) {                                       \
    v_##D zero = bc_##D(0), rest = fmod_##D(a, b);                                 \
    v_b wrong = and_b(ne_##D(rest, zero), lt_##D(bxor_##D(rest, b), zero));        \
    return add_##D(rest, sel_##D(wrong, b, zero));                                 \
  }
#define SMELT_UNSIGNED(D) SMELT_FN v_##D mod_##D(v_##D a, v_##D b) { return fmod_##D(a, b); }
SMELT_SIGNED(i8) SMELT_SIGNED(i16) SMELT_SIGNED(i32) SMELT_SIGNED(i64)
SMELT_UNSIGNED(u8) SMELT_UNSIGNED(u16) SMELT_UNSIGNED(u32) SMELT_UNSIGNED(u64)
#undef SMELT_SIGNED
#undef SMELT_UNSIGNED

/* Powers by squaring, wrapping. A negative exponent leaves 0, except for bases 1 and -1. */
#define SMELT_SQUARING(D)                                                          \
  SMELT_FN v_##D power_by_squaring_##D(v_##D base, v_##D exponent) {               \
    v_##D one = bc_##D(1), zero = bc_##D(0), result = one;                         \
    for (v_b left = ne_##D(exponent, zero); hor_b(left); left = ne_##D(exponent, zero)) { \
      result = sel_##D(ne_##D(band_##D(exponent, one), zero), mul_##D(result, base), result); \
      base = mul_##D(base, base);                                                  \
      exponent = shr_##D(exponent, one);                                           \
    }                                                                              \
    return result;                                                                 \
  }
SMELT_EACH_INT(SMELT_SQUARING)
#undef SMELT_SQUARING
#define SMELT_SIGNED(D)                                                            \
  SMELT_FN v_##D pow_##D(v_##D base, v_##D exponent) {                             \
    v_##D zero = bc_##D(0), one = bc_##D(1);                                       \
    v_b negative = lt_##D(exponent, zero);                                         \
    v_##D parity = band_##D(exponent, one);                                        \
    v_##D of_minus_one = sub_##D(one, add_##D(parity, parity));                    \
    v_##D reciprocal = sel_##D(eq_##D(base, one), one, sel_##D(eq_##D(base, neg_##D(one)), of_minus_one, zero)); \
    return sel_##D(negative, reciprocal, power_by_squaring_##D(base, sel_##D(negative, zero, exponent))); \
  }
#define SMELT_UNSIGNED(D) \
  SMELT_FN v_##D pow_##D(v_##D base, v_##D exponent) { return power_by_squaring_##D(base, exponent); }
SMELT_SIGNED(i8) SMELT_SIGNED(i16) SMELT_SIGNED(i32) SMELT_SIGNED(i64)
SMELT_UNSIGNED(u8) SMELT_UNSIGNED(u16) SMELT_UNSIGNED(u32) SMELT_UNSIGNED(u64)
#undef SMELT_SIGNED
#undef SMELT_UNSIGNED

#endif
