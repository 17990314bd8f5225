/* float16 and bfloat16: two bytes in memory, a float in a lane.
 *
 * Input:     elements as uint16_t, the bits of a float16 or bfloat16.
 * Output:    ld_D st_D lane0_D bc_D for f16 and bf16; cvt_f32_D rounds the lanes to the type, to nearest, ties to even.
 * Invariant: a v_f16 or v_bf16 is a v_f32 whose lanes are values of the type, so that leaving it costs nothing. A NaN stays
 *            one; what is too large becomes an infinity; float16 subnormals are exact whatever the CPU does with its own.
 */
#ifndef SMELT_VEC_HALF_H
#define SMELT_VEC_HALF_H

#include <smelt/vec/vec_types.h>

#if SMELT_ISA == 256 && !defined(__F16C__)
#error "a CPU level with AVX2 has F16C"
#endif

/* Lane by lane in 32-bit integers: the bits of the type, zero-extended, to floats and back. */
SMELT_FN v_f32 widen_bf16(v_i32 bits) { return (v_f32)((v_u32)bits << 16); }
SMELT_FN v_i32 narrow_bf16(v_f32 v) {
  v_u32 bits = (v_u32)v, nan = (v_u32)(v != v);
  v_u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (v_i32)((rounded & ~nan) | (((bits >> 16) | 0x40) & nan));
}
#if SMELT_ISA == 0 || SMELT_ISA == 128
SMELT_FN v_f32 widen_f16(v_i32 half) {
  v_u32 bits = (v_u32)half, size = bits & 0x7fff;
  v_u32 special = (v_u32)(size >= 0x7c00), small = (v_u32)(size < 0x400);
  v_u32 wide = (size << 13) + (((v_u32){0} + (112u << 23)) & ~special);
  v_u32 tiny = (v_u32)(__builtin_convertvector((v_i32)size, v_f32) * 0x1p-24f);
  wide = (wide & ~special) | (((size << 13) | 0x7f800000) & special);
  return (v_f32)((wide & ~small) | (tiny & small) | (bits & 0x8000) << 16);
}
SMELT_FN v_i32 narrow_f16(v_f32 v) {
  v_u32 bits = (v_u32)v, size = bits & 0x7fffffff, nan = (v_u32)(v != v);
  v_u32 rounded = (size + 0xfff + ((size >> 13) & 1) - (112u << 23)) >> 13;
  v_u32 large = (v_u32)(size >= 0x47800000), small = (v_u32)(size < 0x38800000);
  v_u32 tiny = (v_u32)((v_f32)size + 0.5f) - 0x3f000000; /* the sum's last place is that of a subnormal */
  rounded = (rounded & ~large) | (0x7c00 & large);
  rounded = (rounded & ~small) | (tiny & small);
  rounded = (rounded & ~nan) | ((((size >> 13) & 0x3ff) | 0x7e00) & nan);
  return (v_i32)(rounded | ((bits >> 16) & 0x8000));
}
#endif

#if SMELT_ISA == 512
SMELT_FN v_f32 ld_f16(const uint16_t *p) { return (v_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
SMELT_FN void st_f16(uint16_t *p, v_f32 v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, 0)); }
SMELT_FN v_f32 cvt_f32_f16(v_f32 v) { return (v_f32)_mm512_cvtph_ps(_mm512_cvtps_ph((__m512)v, 0)); }
#elif SMELT_ISA == 256
SMELT_FN v_f32 ld_f16(const uint16_t *p) { return (v_f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
SMELT_FN void st_f16(uint16_t *p, v_f32 v) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, 0)); }
SMELT_FN v_f32 cvt_f32_f16(v_f32 v) { return (v_f32)_mm256_cvtph_ps(_mm256_cvtps_ph((__m256)v, 0)); }
#elif SMELT_ISA == 64
SMELT_FN v_f32 ld_f16(const uint16_t *p) { return (v_f32)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
SMELT_FN void st_f16(uint16_t *p, v_f32 v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }
SMELT_FN v_f32 cvt_f32_f16(v_f32 v) { return (v_f32)vcvt_f32_f16(vcvt_f16_f32((float32x4_t)v)); }
#else
SMELT_FN v_f32 ld_f16(const uint16_t *p) { return widen_f16(ld_u16(p)); }
SMELT_FN void st_f16(uint16_t *p, v_f32 v) { st_shorts(p, narrow_f16(v)); }
SMELT_FN v_f32 cvt_f32_f16(v_f32 v) { return widen_f16(narrow_f16(v)); }
#endif
SMELT_FN v_f32 ld_bf16(const uint16_t *p) { return widen_bf16(ld_u16(p)); }
SMELT_FN void st_bf16(uint16_t *p, v_f32 v) { st_shorts(p, narrow_bf16(v)); }
SMELT_FN v_f32 cvt_f32_bf16(v_f32 v) { return widen_bf16(narrow_bf16(v)); }

#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_f32 cvt_##D##_f32(v_f32 v) { return v; }                              \
  SMELT_FN uint16_t lane0_##D(v_f32 v) {                                           \
    uint16_t lanes[SMELT_L];                                                       \
    st_##D(lanes, v);                                                              \
    return lanes[0];                                                               \
  }                                                                                \
  SMELT_FN v_f32 bc_##D(uint16_t x) {                                              \
    uint16_t lanes[SMELT_L] = {x};                                                 \
    return ld_##D(lanes)[0] - (v_f32){0};                                          \
  }                                                                                \
  SMELT_FN v_f32 lds_##D(const uint16_t *p, int64_t stride) {                      \
    uint16_t lanes[SMELT_L];                                                       \
    for (int i = 0; i < SMELT_L; i++) lanes[i] = p[i * stride];                    \
    return ld_##D(lanes);                                                          \
  }                                                                                \
  SMELT_FN v_f32 ldg_##D(const uint16_t *p, v_i64 index) {                         \
    int64_t at[SMELT_L];                                                           \
    uint16_t lanes[SMELT_L];                                                       \
    st_i64(at, index);                                                             \
    for (int i = 0; i < SMELT_L; i++) lanes[i] = p[at[i]];                         \
    return ld_##D(lanes);                                                          \
  }
SMELT_EACH_HALF(SMELT_DEFINE)
#undef SMELT_DEFINE

#endif
