/* Loads and stores of every dtype: whole, first n lanes, strided, gathered, scattered.
 *
 * Input: element pointers of natural alignment; strides and indices count elements, of any sign.
 * Output: ld_D ld_D_n lds_D lds_D_n ldg_D ldg_D_n, st_D st_D_n sts_D sts_D_n stg_D stg_D_n, st1_D, lane0_D.
 * Invariant: the _n forms (0 < n < L) touch no element past n; lanes not loaded are 0. */
#ifndef SMELT_VEC_MEMORY_H
#define SMELT_VEC_MEMORY_H

#include <smelt/vec/vec_types.h>

/* Whole vectors of native lanes. */
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D(const T_##D *p) {                                          \
    v_##D v;                                                                       \
    __builtin_memcpy(&v, p, sizeof v);                                                       \
    return v;                                                                      \
  }                                                                                \
  SMELT_FN void st_##D(T_##D *p, v_##D v) { __builtin_memcpy(p, &v, sizeof v); }             \
  SMELT_FN T_##D lane0_##D(v_##D v) { return v[0]; }
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE

#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D(const T_##D *p) {                                          \
    v_##D v;                                                                       \
    __builtin_memcpy(&v.lo, p, sizeof v.lo);                                                 \
    __builtin_memcpy(&v.hi, p + SMELT_H, sizeof v.hi);                                       \
    return v;                                                                      \
  }                                                                                \
  SMELT_FN void st_##D(T_##D *p, v_##D v) {                                        \
    __builtin_memcpy(p, &v.lo, sizeof v.lo);                                                 \
    __builtin_memcpy(p + SMELT_H, &v.hi, sizeof v.hi);                                       \
  }                                                                                \
  SMELT_FN T_##D lane0_##D(v_##D v) { return v.lo[0]; }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE

/* Small integers: extend on load, truncate on store. */
#if SMELT_ISA == 512
SMELT_FN v_i8 ld_i8(const int8_t *p) { return (v_i32)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
SMELT_FN v_u8 ld_u8(const uint8_t *p) { return (v_i32)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
SMELT_FN v_i16 ld_i16(const int16_t *p) { return (v_i32)_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
SMELT_FN v_u16 ld_u16(const uint16_t *p) { return (v_i32)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
SMELT_FN void st_bytes(void *p, v_i32 v) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v)); }
SMELT_FN void st_shorts(void *p, v_i32 v) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)v)); }
#elif SMELT_ISA == 256
SMELT_FN v_i8 ld_i8(const int8_t *p) { return (v_i32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SMELT_FN v_u8 ld_u8(const uint8_t *p) { return (v_i32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SMELT_FN v_i16 ld_i16(const int16_t *p) { return (v_i32)_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)); }
SMELT_FN v_u16 ld_u16(const uint16_t *p) { return (v_i32)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
SMELT_FN void st_bytes(void *p, v_i32 v) {
  __m256i low = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi32(0x0c080400));
  _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
SMELT_FN void st_shorts(void *p, v_i32 v) {
  __m256i low = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi64x(0x0d0c090805040100));
  _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(low, 0x08)));
}
#elif SMELT_ISA == 128
SMELT_FN __m128i ld_4_bytes(const void *p) {
  int32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return _mm_cvtsi32_si128(x);
}
SMELT_FN v_i8 ld_i8(const int8_t *p) { return (v_i32)_mm_cvtepi8_epi32(ld_4_bytes(p)); }
SMELT_FN v_u8 ld_u8(const uint8_t *p) { return (v_i32)_mm_cvtepu8_epi32(ld_4_bytes(p)); }
SMELT_FN v_i16 ld_i16(const int16_t *p) { return (v_i32)_mm_cvtepi16_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SMELT_FN v_u16 ld_u16(const uint16_t *p) { return (v_i32)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)p)); }
SMELT_FN void st_bytes(void *p, v_i32 v) {
  int32_t x = _mm_cvtsi128_si32(_mm_shuffle_epi8((__m128i)v, _mm_set1_epi32(0x0c080400)));
  __builtin_memcpy(p, &x, sizeof x);
}
SMELT_FN void st_shorts(void *p, v_i32 v) {
  _mm_storel_epi64((__m128i *)p, _mm_shuffle_epi8((__m128i)v, _mm_set1_epi64x(0x0d0c090805040100)));
}
#else
typedef int8_t packed_i8 __attribute__((vector_size(SMELT_L)));
typedef uint8_t packed_u8 __attribute__((vector_size(SMELT_L)));
typedef int16_t packed_i16 __attribute__((vector_size(SMELT_L * 2)));
typedef uint16_t packed_u16 __attribute__((vector_size(SMELT_L * 2)));
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D(const T_##D *p) {                                          \
    packed_##D v;                                                                  \
    __builtin_memcpy(&v, p, sizeof v);                                                       \
    return __builtin_convertvector(v, v_i32);                                      \
  }
SMELT_EACH_SMALL(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_FN void st_bytes(void *p, v_i32 v) {
  packed_u8 x = __builtin_convertvector((v_u32)v, packed_u8);
  __builtin_memcpy(p, &x, sizeof x);
}
SMELT_FN void st_shorts(void *p, v_i32 v) {
  packed_u16 x = __builtin_convertvector((v_u32)v, packed_u16);
  __builtin_memcpy(p, &x, sizeof x);
}
#endif

SMELT_FN void st_i8(int8_t *p, v_i8 v) { st_bytes(p, v); }
SMELT_FN void st_u8(uint8_t *p, v_u8 v) { st_bytes(p, v); }
SMELT_FN void st_i16(int16_t *p, v_i16 v) { st_shorts(p, v); }
SMELT_FN void st_u16(uint16_t *p, v_u16 v) { st_shorts(p, v); }
SMELT_FN v_b ld_b(const uint8_t *p) { return ld_u8(p) != 0; }
SMELT_FN void st_b(uint8_t *p, v_b v) { st_bytes(p, v & 1); }
SMELT_FN int8_t lane0_i8(v_i8 v) { return (int8_t)v[0]; }
SMELT_FN int16_t lane0_i16(v_i16 v) { return (int16_t)v[0]; }
SMELT_FN uint8_t lane0_u8(v_u8 v) { return (uint8_t)v[0]; }
SMELT_FN uint16_t lane0_u16(v_u16 v) { return (uint16_t)v[0]; }
SMELT_FN uint8_t lane0_b(v_b v) { return v[0] & 1; }

#include <smelt/vec/vec_half.h>

/* First n lanes. Masked instructions where they exist, else a small array; also where bounds are checked, since no sanitizer
 * sees what those touch. */
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D##_by_lane(const T_##D *p, int64_t n) {                     \
    T_##D lanes[SMELT_L] = {0};                                                    \
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];                               \
    return ld_##D(lanes);                                                          \
  }                                                                                \
  SMELT_FN void st_##D##_by_lane(T_##D *p, v_##D v, int64_t n) {                   \
    T_##D lanes[SMELT_L];                                                          \
    st_##D(lanes, v);                                                              \
    for (int64_t i = 0; i < n; i++) p[i] = lanes[i];                               \
  }                                                                                \
  SMELT_FN void st1_##D(T_##D *p, v_##D v) { *p = lane0_##D(v); }
SMELT_EACH_STORED(SMELT_DEFINE)
#undef SMELT_DEFINE

#define SMELT_BY_LANE(D)                                                                            \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) { return ld_##D##_by_lane(p, n); }           \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) { st_##D##_by_lane(p, v, n); }

#ifdef __SANITIZE_ADDRESS__
SMELT_EACH_STORED(SMELT_BY_LANE)
#elif SMELT_ISA == 512
SMELT_FN uint32_t first_bits(int64_t n) { return (1u << n) - 1; }
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) {                           \
    return (v_##D)_mm512_maskz_loadu_epi32((__mmask16)first_bits(n), p);           \
  }                                                                                \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) {                         \
    _mm512_mask_storeu_epi32(p, (__mmask16)first_bits(n), (__m512i)v);             \
  }
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) {                           \
    uint32_t bits = first_bits(n);                                                 \
    return (v_##D){(h_##D)_mm512_maskz_loadu_epi64((__mmask8)bits, p),             \
                   (h_##D)_mm512_maskz_loadu_epi64((__mmask8)(bits >> 8), p + 8)}; \
  }                                                                                \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) {                         \
    uint32_t bits = first_bits(n);                                                 \
    _mm512_mask_storeu_epi64(p, (__mmask8)bits, (__m512i)v.lo);                    \
    _mm512_mask_storeu_epi64(p + 8, (__mmask8)(bits >> 8), (__m512i)v.hi);         \
  }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D, load, extend, narrow, store)                               \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) {                           \
    return (v_i32)extend(load((__mmask16)first_bits(n), p));                       \
  }                                                                                \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) {                         \
    store(p, (__mmask16)first_bits(n), narrow((__m512i)v));                        \
  }
SMELT_DEFINE(i8, _mm_maskz_loadu_epi8, _mm512_cvtepi8_epi32, _mm512_cvtepi32_epi8, _mm_mask_storeu_epi8)
SMELT_DEFINE(u8, _mm_maskz_loadu_epi8, _mm512_cvtepu8_epi32, _mm512_cvtepi32_epi8, _mm_mask_storeu_epi8)
SMELT_DEFINE(i16, _mm256_maskz_loadu_epi16, _mm512_cvtepi16_epi32, _mm512_cvtepi32_epi16, _mm256_mask_storeu_epi16)
SMELT_DEFINE(u16, _mm256_maskz_loadu_epi16, _mm512_cvtepu16_epi32, _mm512_cvtepi32_epi16, _mm256_mask_storeu_epi16)
#undef SMELT_DEFINE
SMELT_FN v_b ld_b_n(const uint8_t *p, int64_t n) { return ld_u8_n(p, n) != 0; }
SMELT_FN void st_b_n(uint8_t *p, v_b v, int64_t n) { st_u8_n(p, v & 1, n); }
SMELT_EACH_HALF(SMELT_BY_LANE)
#elif SMELT_ISA == 256
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) {                           \
    return (v_##D)_mm256_maskload_epi32((const int *)p, (__m256i)tail_mask(n));    \
  }                                                                                \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) {                         \
    _mm256_maskstore_epi32((int *)p, (__m256i)tail_mask(n), (__m256i)v);           \
  }
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D ld_##D##_n(const T_##D *p, int64_t n) {                           \
    v_i64 lane = iota_i64();                                                       \
    const long long *q = (const long long *)p;                                     \
    return (v_##D){(h_##D)_mm256_maskload_epi64(q, (__m256i)(lane.lo < n)),        \
                   (h_##D)_mm256_maskload_epi64(q + 4, (__m256i)(lane.hi < n))};   \
  }                                                                                \
  SMELT_FN void st_##D##_n(T_##D *p, v_##D v, int64_t n) {                         \
    v_i64 lane = iota_i64();                                                       \
    long long *q = (long long *)p;                                                 \
    _mm256_maskstore_epi64(q, (__m256i)(lane.lo < n), (__m256i)v.lo);              \
    _mm256_maskstore_epi64(q + 4, (__m256i)(lane.hi < n), (__m256i)v.hi);          \
  }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_EACH_SMALL(SMELT_BY_LANE)
SMELT_EACH_HALF(SMELT_BY_LANE)
SMELT_BY_LANE(b)
#else
SMELT_EACH_STORED(SMELT_BY_LANE)
#endif

/* Strided and indexed loads build the vector lane by lane: a hardware gather is not faster on the CPUs at hand. */
#define SMELT_AT_STRIDE(i) p[(i) * stride]
#define SMELT_AT_INDEX(i) p[(i) < SMELT_H ? index.lo[(i) % SMELT_H] : index.hi[(i) % SMELT_H]]
#define SMELT_AT_STRIDE_BOOL(i) -(int32_t)(SMELT_AT_STRIDE(i) != 0)
#define SMELT_AT_INDEX_BOOL(i) -(int32_t)(SMELT_AT_INDEX(i) != 0)
#define SMELT_DEFINE(D)                                                                                              \
  SMELT_FN v_##D lds_##D(const T_##D *p, int64_t stride) { return (v_##D){SMELT_LANES(SMELT_AT_STRIDE)}; }           \
  SMELT_FN v_##D ldg_##D(const T_##D *p, v_i64 index) { return (v_##D){SMELT_LANES(SMELT_AT_INDEX)}; }
SMELT_EACH_SMALL(SMELT_DEFINE)
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                                                              \
  SMELT_FN v_##D lds_##D(const T_##D *p, int64_t stride) {                                                           \
    return (v_##D){(h_##D){SMELT_LANES_LO(SMELT_AT_STRIDE)}, (h_##D){SMELT_LANES_HI(SMELT_AT_STRIDE)}};              \
  }                                                                                                                  \
  SMELT_FN v_##D ldg_##D(const T_##D *p, v_i64 index) {                                                              \
    return (v_##D){(h_##D){SMELT_LANES_LO(SMELT_AT_INDEX)}, (h_##D){SMELT_LANES_HI(SMELT_AT_INDEX)}};                \
  }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_FN v_b lds_b(const uint8_t *p, int64_t stride) { return (v_b){SMELT_LANES(SMELT_AT_STRIDE_BOOL)}; }
SMELT_FN v_b ldg_b(const uint8_t *p, v_i64 index) { return (v_b){SMELT_LANES(SMELT_AT_INDEX_BOOL)}; }

#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D lds_##D##_n(const T_##D *p, int64_t stride, int64_t n) {          \
    T_##D lanes[SMELT_L] = {0};                                                    \
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i * stride];                      \
    return ld_##D(lanes);                                                          \
  }                                                                                \
  SMELT_FN v_##D ldg_##D##_n(const T_##D *p, v_i64 index, int64_t n) {             \
    int64_t at[SMELT_L];                                                           \
    T_##D lanes[SMELT_L] = {0};                                                    \
    st_i64(at, index);                                                             \
    for (int64_t i = 0; i < n; i++) lanes[i] = p[at[i]];                           \
    return ld_##D(lanes);                                                          \
  }                                                                                \
  SMELT_FN void sts_##D##_n(T_##D *p, int64_t stride, v_##D v, int64_t n) {        \
    T_##D lanes[SMELT_L];                                                          \
    st_##D(lanes, v);                                                              \
    for (int64_t i = 0; i < n; i++) p[i * stride] = lanes[i];                      \
  }                                                                                \
  SMELT_FN void stg_##D##_n(T_##D *p, v_i64 index, v_##D v, int64_t n) {           \
    int64_t at[SMELT_L];                                                           \
    T_##D lanes[SMELT_L];                                                          \
    st_i64(at, index);                                                             \
    st_##D(lanes, v);                                                              \
    for (int64_t i = 0; i < n; i++) p[at[i]] = lanes[i];                           \
  }                                                                                \
  SMELT_FN void sts_##D(T_##D *p, int64_t stride, v_##D v) { sts_##D##_n(p, stride, v, SMELT_L); } \
  SMELT_FN void stg_##D(T_##D *p, v_i64 index, v_##D v) { stg_##D##_n(p, index, v, SMELT_L); }
SMELT_EACH_STORED(SMELT_DEFINE)
#undef SMELT_DEFINE

#endif
