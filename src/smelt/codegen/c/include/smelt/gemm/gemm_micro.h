/* f32 GEMM micro-kernels: R rows of A times a few 16-column panels of packed B.
 *
 * Input: A row-major with a leading dimension, B packed in panels (see gemm.h), the depth kc.
 * Output: an R x (W * lanes) tile of C, stored or added to what is there.
 * Invariant: every element is one chain of multiply-adds over k in rising order that starts from zero, whatever R and W are;
 * so a result does not depend on how rows and panels are grouped.
 */
#ifndef SMELT_GEMM_MICRO_H
#define SMELT_GEMM_MICRO_H

#include <stdint.h>

#ifndef SMELT_VL
#error "SMELT_VL (vector bytes) must be defined: 16, 32 or 64"
#endif

#include <smelt/gemm/micro_names.h>

/* Tiles are compiled where they are used, unless SMELT_TILES_LINKED says that tiles_unit.h has them: then they are declared,
 * and have the level in their tables' names. */
#if defined(SMELT_TILES_LINKED) || defined(SMELT_TILES_UNIT)
#include <smelt/base/kernel.h>
#define smelt_gemm_narrow SMELT_NAME(smelt_gemm_narrow)
#define smelt_gemm_main SMELT_NAME(smelt_gemm_main)
#define smelt_gemm_wide SMELT_NAME(smelt_gemm_wide)
#define smelt_gemm_eager SMELT_NAME(smelt_gemm_eager)
#define smelt_gemm_thin SMELT_NAME(smelt_gemm_thin)
#define smelt_gemm_half SMELT_NAME(smelt_gemm_half)
#endif
#ifdef SMELT_TILES_LINKED
#define SMELT_TILES(TYPE, NAME, ...) extern __attribute__((visibility("hidden"))) const TYPE NAME[];
#define SMELT_TILE(...)
#elif defined(SMELT_TILES_UNIT)
#define SMELT_TILES(TYPE, NAME, ...) extern const TYPE NAME[]; const TYPE NAME[] = {__VA_ARGS__};
#define SMELT_TILE(...) __VA_ARGS__
#else
#define SMELT_TILES(TYPE, NAME, ...) static const TYPE NAME[] = {__VA_ARGS__};
#define SMELT_TILE(...) __VA_ARGS__
#endif

#define SMELT_GEMM_PANEL 16
#define SMELT_GEMM_LANES (SMELT_VL / 4)
/* Vectors in one row of a panel. */
#define SMELT_GEMM_VPP (SMELT_GEMM_PANEL / SMELT_GEMM_LANES)

typedef float smelt_gemm_v __attribute__((vector_size(SMELT_VL), may_alias));
typedef float smelt_gemm_vu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));

/* Row lists: X(row, base pointer, offset from it in rows, argument). A base pointer serves three rows, because
 * base, base + lda and base + 2 * lda are single addressing modes. */
#define SMELT_ROWS_1(X, U) X(0, 0, 0, U)
#define SMELT_ROWS_2(X, U) SMELT_ROWS_1(X, U) X(1, 0, 1, U)
#define SMELT_ROWS_3(X, U) SMELT_ROWS_2(X, U) X(2, 0, 2, U)
#define SMELT_ROWS_4(X, U) SMELT_ROWS_3(X, U) X(3, 1, 0, U)
#define SMELT_ROWS_5(X, U) SMELT_ROWS_4(X, U) X(4, 1, 1, U)
#define SMELT_ROWS_6(X, U) SMELT_ROWS_5(X, U) X(5, 1, 2, U)
#define SMELT_ROWS_7(X, U) SMELT_ROWS_6(X, U) X(6, 2, 0, U)
#define SMELT_ROWS_8(X, U) SMELT_ROWS_7(X, U) X(7, 2, 1, U)
#define SMELT_ROWS_9(X, U) SMELT_ROWS_8(X, U) X(8, 2, 2, U)
#define SMELT_ROWS_10(X, U) SMELT_ROWS_9(X, U) X(9, 3, 0, U)
#define SMELT_ROWS_11(X, U) SMELT_ROWS_10(X, U) X(10, 3, 1, U)
#define SMELT_ROWS_12(X, U) SMELT_ROWS_11(X, U) X(11, 3, 2, U)
#define SMELT_ROWS_13(X, U) SMELT_ROWS_12(X, U) X(12, 4, 0, U)
#define SMELT_ROWS_14(X, U) SMELT_ROWS_13(X, U) X(13, 4, 1, U)
#define SMELT_BASES_1(X) X(0)
#define SMELT_BASES_2(X) X(0)
#define SMELT_BASES_3(X) X(0)
#define SMELT_BASES_4(X) X(0) X(1)
#define SMELT_BASES_5(X) X(0) X(1)
#define SMELT_BASES_6(X) X(0) X(1)
#define SMELT_BASES_7(X) X(0) X(1) X(2)
#define SMELT_BASES_8(X) X(0) X(1) X(2)
#define SMELT_BASES_9(X) X(0) X(1) X(2)
#define SMELT_BASES_10(X) X(0) X(1) X(2) X(3)
#define SMELT_BASES_11(X) X(0) X(1) X(2) X(3)
#define SMELT_BASES_12(X) X(0) X(1) X(2) X(3)
#define SMELT_BASES_13(X) X(0) X(1) X(2) X(3) X(4)
#define SMELT_BASES_14(X) X(0) X(1) X(2) X(3) X(4)

/* The same rows by base pointer, three of them or what is left: X(rows of the group, base pointer, first row, second, third,
 * argument). */
#define SMELT_GROUPS_1(X, U) X(0, 1, 0, 1, 2, U)
#define SMELT_GROUPS_2(X, U) X(0, 2, 0, 1, 2, U)
#define SMELT_GROUPS_3(X, U) X(0, 3, 0, 1, 2, U)
#define SMELT_GROUPS_4(X, U) SMELT_GROUPS_3(X, U) X(1, 1, 3, 4, 5, U)
#define SMELT_GROUPS_5(X, U) SMELT_GROUPS_3(X, U) X(1, 2, 3, 4, 5, U)
#define SMELT_GROUPS_6(X, U) SMELT_GROUPS_3(X, U) X(1, 3, 3, 4, 5, U)
#define SMELT_GROUPS_7(X, U) SMELT_GROUPS_6(X, U) X(2, 1, 6, 7, 8, U)
#define SMELT_GROUPS_8(X, U) SMELT_GROUPS_6(X, U) X(2, 2, 6, 7, 8, U)
#define SMELT_GROUPS_9(X, U) SMELT_GROUPS_6(X, U) X(2, 3, 6, 7, 8, U)
#define SMELT_GROUPS_10(X, U) SMELT_GROUPS_9(X, U) X(3, 1, 9, 10, 11, U)
#define SMELT_GROUPS_11(X, U) SMELT_GROUPS_9(X, U) X(3, 2, 9, 10, 11, U)
#define SMELT_GROUPS_12(X, U) SMELT_GROUPS_9(X, U) X(3, 3, 9, 10, 11, U)
#define SMELT_GROUPS_13(X, U) SMELT_GROUPS_12(X, U) X(4, 1, 12, 13, 14, U)
#define SMELT_GROUPS_14(X, U) SMELT_GROUPS_12(X, U) X(4, 2, 12, 13, 14, U)

/* Column lists: F(row, vector). */
#define SMELT_COLS_1(F, I) F(I, 0)
#define SMELT_COLS_2(F, I) F(I, 0) F(I, 1)
#define SMELT_COLS_4(F, I) F(I, 0) F(I, 1) F(I, 2) F(I, 3)
#define SMELT_COLS_8(F, I) F(I, 0) F(I, 1) F(I, 2) F(I, 3) F(I, 4) F(I, 5) F(I, 6) F(I, 7)
#define SMELT_COLS_16(F, I)                                                                                            \
  SMELT_COLS_8(F, I) F(I, 8) F(I, 9) F(I, 10) F(I, 11) F(I, 12) F(I, 13) F(I, 14) F(I, 15)

#define SMELT_ZERO_1(I, J) smelt_gemm_v c##I##_##J = {0};
/* Spelled out on x86: left to itself, gcc picks forms that overwrite a factor, and spills accumulators. */
#if (SMELT_VL == 64 && defined(__AVX512F__)) || (SMELT_VL == 32 && defined(__FMA__))
#define SMELT_FMA_1(I, J) __asm__("vfmadd231ps %1, %2, %0" : "+v"(c##I##_##J) : "v"(a), "v"(b##J));
#else
#define SMELT_FMA_1(I, J) c##I##_##J += a * b##J;
#endif
#define SMELT_PUT_1(I, J) *(smelt_gemm_vu *)(crow + SMELT_TILE_COL(J)) = c##I##_##J;
#define SMELT_ADD_1(I, J) *(smelt_gemm_vu *)(crow + SMELT_TILE_COL(J)) += c##I##_##J;
#define SMELT_TILE_COL(J) ((J) * SMELT_GEMM_LANES)

#define SMELT_BASE_DECL(B) const char *r##B = (const char *)a_ + (B) * 3 * lda_bytes;
/* The empty asm keeps the compiler from turning every row into an induction variable of its own, which spills. */
#define SMELT_BASE_HIDE(B) __asm__("" : "+r"(r##B));
#define SMELT_BASE_STEP4(B) r##B += 16;
#define SMELT_BASE_STEP1(B) r##B += 4;
/* Of rows and of panels, in bytes. */
#define SMELT_GEMM_STRIDES                                                                                             \
  int64_t lda_bytes = lda * 4, panel_bytes = panel_stride * 4, three_panels = panel_bytes * 3;                         \
  (void)lda_bytes, (void)three_panels;
#define SMELT_ROW_ELEMENT(BASE, OFF, U) (*(const float *)(r##BASE + (OFF) * lda_bytes + (U) * 4))

/* Vector J of a step lies in panel J / SMELT_GEMM_VPP. A pointer serves four panels, like that of rows. */
#define SMELT_B_LEAD(J) ((J) % (4 * SMELT_GEMM_VPP) == 0)
#define SMELT_B_POINTER(U, J)                                                                                          \
  const char *p##J __attribute__((unused)) = (const char *)(b_ + ((J) / SMELT_GEMM_VPP) * panel_stride);
#define SMELT_B_HIDE(U, J)                                                                                             \
  if (SMELT_B_LEAD(J))                                                                                                 \
    __asm__("" : "+r"(p##J));
#define SMELT_B_AFTER(J) ((J) / SMELT_GEMM_VPP % 4 < 3 ? (J) / SMELT_GEMM_VPP % 4 * panel_bytes : three_panels)
#define SMELT_B_PLACE(U, J) ((const float *)(SMELT_B_OF_##J + SMELT_B_AFTER(J)) + (U) * SMELT_GEMM_PANEL)
#define SMELT_B_LOAD(U, J)                                                                                             \
  const smelt_gemm_v b##J = *(const smelt_gemm_vu *)(SMELT_B_PLACE(U, J) + ((J) % SMELT_GEMM_VPP) * SMELT_GEMM_LANES);
#define SMELT_B_STEP(U, J)                                                                                             \
  if (SMELT_B_LEAD(J))                                                                                                 \
    p##J += (U) * SMELT_GEMM_PANEL * 4;
/* A low tile waits for memory: it prefetches each panel SMELT_GEMM_AHEAD steps early. */
#define SMELT_GEMM_AHEAD 24
#define SMELT_B_AHEAD(U, J)                                                                                            \
  if ((J) % SMELT_GEMM_VPP == 0)                                                                                       \
    __builtin_prefetch(SMELT_B_PLACE((U) + SMELT_GEMM_AHEAD, J));
#if SMELT_GEMM_LANES == 16
#define SMELT_B_FIFTH p4
#else
#define SMELT_B_FIFTH p0
#endif
#define SMELT_B_OF_0 p0
#define SMELT_B_OF_1 p0
#define SMELT_B_OF_2 p0
#define SMELT_B_OF_3 p0
#define SMELT_B_OF_4 SMELT_B_FIFTH
#define SMELT_B_OF_5 SMELT_B_FIFTH
#define SMELT_B_OF_6 SMELT_B_FIFTH
#define SMELT_B_OF_7 SMELT_B_FIFTH
#define SMELT_B_OF_8 p0
#define SMELT_B_OF_9 p0
#define SMELT_B_OF_10 p0
#define SMELT_B_OF_11 p0
#define SMELT_B_OF_12 p0
#define SMELT_B_OF_13 p0
#define SMELT_B_OF_14 p0
#define SMELT_B_OF_15 p0

/* Defines smelt_f32_gemm_<MR>x<NR>__<feature>: MR is R, NR the columns of W vectors. */
#define SMELT_GEMM_MICRO(R, W) SMELT_GEMM_MICRO_AS(f32_gemm, R, W, 1)

/* The sums of a tile as c##row##_##vector. TO, rows `STEP` floats apart, is where they go; `LINES` lines of what comes next are
 * prefetched every four steps. */
#define SMELT_GEMM_SUMS(R, W, LINES, TO, STEP)                                                                         \
  SMELT_GEMM_STRIDES                                                                                                   \
  SMELT_BASES_##R(SMELT_BASE_DECL)                                                                                     \
  SMELT_COLS_##W(SMELT_B_POINTER, 0)                                                                                   \
  SMELT_ROWS_##R(SMELT_ROW_ZERO_##W, 0)                                                                                \
  for (int i = 0; i < R; ++i) {                                                                                        \
    __builtin_prefetch((TO) + i * (STEP), 1);                                                                          \
    __builtin_prefetch((TO) + i * (STEP) + W * SMELT_GEMM_LANES - 1, 1);                                               \
  }                                                                                                                    \
  for (int64_t odd = kc & 3; odd; --odd) {                                                                             \
    SMELT_BASES_##R(SMELT_BASE_HIDE)                                                                                   \
    SMELT_COLS_##W(SMELT_B_HIDE, 0)                                                                                    \
    SMELT_STEP(R, W, 0)                                                                                                \
    __asm__ volatile("" ::: "memory");                                                                                 \
    SMELT_BASES_##R(SMELT_BASE_STEP1)                                                                                  \
    SMELT_COLS_##W(SMELT_B_STEP, 1)                                                                                    \
  }                                                                                                                    \
  const char *next_end = (const char *)next + kc / 4 * 64 * LINES;                                                     \
  for (int64_t left = -(kc / 4) * 8 * LINES; left; left += 8 * LINES) {                                                \
    __asm__("" : "+r"(left), "+r"(next_end));                                                                          \
    SMELT_BASES_##R(SMELT_BASE_HIDE)                                                                                   \
    SMELT_COLS_##W(SMELT_B_HIDE, 0)                                                                                    \
    SMELT_STEP(R, W, 0)                                                                                                \
    SMELT_STEP(R, W, 1)                                                                                                \
    SMELT_STEP(R, W, 2)                                                                                                \
    SMELT_STEP(R, W, 3)                                                                                                \
    __asm__ volatile("" ::: "memory");                                                                                 \
    if (R > SMELT_GEMM_LOW_ROWS)                                                                                       \
      __builtin_prefetch(next_end + left * 8, 0, 2);                                                                   \
    if (LINES > 1)                                                                                                     \
      __builtin_prefetch(next_end + left * 8 + 64, 0, 2);                                                              \
    SMELT_BASES_##R(SMELT_BASE_STEP4)                                                                                  \
    SMELT_COLS_##W(SMELT_B_STEP, 4)                                                                                    \
  }

/* The same by another name. It prefetches `LINES` lines of what comes next every four steps. */
#define SMELT_GEMM_MICRO_AS(NAME, R, W, LINES) SMELT_TILE(SMELT_GEMM_MICRO_CODE(NAME, R, W, LINES))
#define SMELT_GEMM_MICRO_CODE(NAME, R, W, LINES)                                                                       \
  static __attribute__((noinline)) void SMELT_MICRO(NAME, R, W)(                                                       \
      const float *a_, int64_t lda, const float *b_, int64_t panel_stride, int64_t kc, float *c_, int64_t ldc,         \
      int add, const float *next) {                                                                                    \
    SMELT_GEMM_SUMS(R, W, LINES, c_, ldc)                                                                              \
    float *crow = c_;                                                                                                  \
    if (add) {                                                                                                         \
      SMELT_ROWS_##R(SMELT_ROW_ADD_##W, 0)                                                                             \
    } else {                                                                                                           \
      SMELT_ROWS_##R(SMELT_ROW_PUT_##W, 0)                                                                             \
    }                                                                                                                  \
  }

/* The barrier keeps clang from loading B for several steps at once, and gcc from holding lda_bytes + 4, + 8 and + 12 apart:
 * there are no registers for either. The counter of the loop is also the offset of what is prefetched: each instruction less
 * counts where another thread shares the core. */
#define SMELT_STEP(R, W, U)                                                                                            \
  {                                                                                                                    \
    __asm__ volatile("" : "+r"(lda_bytes), "+r"(panel_bytes), "+r"(three_panels)::"memory");                           \
    if (R <= SMELT_GEMM_LOW_ROWS) {                                                                                    \
      SMELT_COLS_##W(SMELT_B_AHEAD, U)                                                                                 \
    }                                                                                                                  \
    SMELT_COLS_##W(SMELT_B_LOAD, U)                                                                                    \
    SMELT_GROUPS_##R(SMELT_GROUP_FMA_##W, U)                                                                           \
  }

/* x - 0 is x, the sign of zero and NaN included, so nothing is computed. */
#define SMELT_SPLAT(X) ((X) - (smelt_gemm_v){0})
#define SMELT_ROW_ZERO_1(I, B, O, U) SMELT_COLS_1(SMELT_ZERO_1, I)
#define SMELT_ROW_FMA_1(I, B, O, U) { const smelt_gemm_v a = SMELT_SPLAT(SMELT_ROW_ELEMENT(B, O, U)); SMELT_COLS_1(SMELT_FMA_1, I) }
#define SMELT_ROW_PUT_1(I, B, O, U) SMELT_COLS_1(SMELT_PUT_1, I) crow += ldc;
#define SMELT_ROW_ADD_1(I, B, O, U) SMELT_COLS_1(SMELT_ADD_1, I) crow += ldc;
#define SMELT_ROW_ZERO_2(I, B, O, U) SMELT_COLS_2(SMELT_ZERO_1, I)
#define SMELT_ROW_FMA_2(I, B, O, U) { const smelt_gemm_v a = SMELT_SPLAT(SMELT_ROW_ELEMENT(B, O, U)); SMELT_COLS_2(SMELT_FMA_1, I) }
#define SMELT_ROW_PUT_2(I, B, O, U) SMELT_COLS_2(SMELT_PUT_1, I) crow += ldc;
#define SMELT_ROW_ADD_2(I, B, O, U) SMELT_COLS_2(SMELT_ADD_1, I) crow += ldc;
#define SMELT_ROW_ZERO_4(I, B, O, U) SMELT_COLS_4(SMELT_ZERO_1, I)
#define SMELT_ROW_FMA_4(I, B, O, U) { const smelt_gemm_v a = SMELT_SPLAT(SMELT_ROW_ELEMENT(B, O, U)); SMELT_COLS_4(SMELT_FMA_1, I) }
#define SMELT_ROW_PUT_4(I, B, O, U) SMELT_COLS_4(SMELT_PUT_1, I) crow += ldc;
#define SMELT_ROW_ADD_4(I, B, O, U) SMELT_COLS_4(SMELT_ADD_1, I) crow += ldc;
#define SMELT_ROW_ZERO_8(I, B, O, U) SMELT_COLS_8(SMELT_ZERO_1, I)
#define SMELT_ROW_FMA_8(I, B, O, U) { const smelt_gemm_v a = SMELT_SPLAT(SMELT_ROW_ELEMENT(B, O, U)); SMELT_COLS_8(SMELT_FMA_1, I) }
#define SMELT_ROW_PUT_8(I, B, O, U) SMELT_COLS_8(SMELT_PUT_1, I) crow += ldc;
#define SMELT_ROW_ADD_8(I, B, O, U) SMELT_COLS_8(SMELT_ADD_1, I) crow += ldc;
#define SMELT_ROW_ZERO_16(I, B, O, U) SMELT_COLS_16(SMELT_ZERO_1, I)
#define SMELT_ROW_FMA_16(I, B, O, U) { const smelt_gemm_v a = SMELT_SPLAT(SMELT_ROW_ELEMENT(B, O, U)); SMELT_COLS_16(SMELT_FMA_1, I) }
#define SMELT_ROW_PUT_16(I, B, O, U) SMELT_COLS_16(SMELT_PUT_1, I) crow += ldc;
#define SMELT_ROW_ADD_16(I, B, O, U) SMELT_COLS_16(SMELT_ADD_1, I) crow += ldc;

/* A group's rows one after the other, as functions of a row. */
#define SMELT_GROUP_ROWS_1(F, B, I, J, K, U) F(I, B, 0, U)
#define SMELT_GROUP_ROWS_2(F, B, I, J, K, U) F(I, B, 0, U) F(J, B, 1, U)
#define SMELT_GROUP_ROWS_3(F, B, I, J, K, U) F(I, B, 0, U) F(J, B, 1, U) F(K, B, 2, U)
#if SMELT_VL == 64 && defined(__AVX512F__)
/* One statement for a group of rows, or for a row of four vectors and more, whose operands would be too many. Between several,
 * gcc moves accumulators about, and the 39 tiles and as many that epilogue their sums took it four times as long. */
#define SMELT_ASM_PLACE_0 "%c[u](%[r])"
#define SMELT_ASM_PLACE_1 "%c[u](%[r],%[l])"
#define SMELT_ASM_PLACE_2 "%c[u](%[r],%[l],2)"
#define SMELT_ASM_FMA(C, J) "vfmadd231ps %[a], %[b" #J "], %[" #C #J "]\n\t"
#define SMELT_ASM_ROW_1(C, O) "vbroadcastss " SMELT_ASM_PLACE_##O ", %[a]\n\t" SMELT_ASM_FMA(C, 0)
#define SMELT_ASM_ROW_2(C, O) SMELT_ASM_ROW_1(C, O) SMELT_ASM_FMA(C, 1)
#define SMELT_ASM_ROW_4(C, O) SMELT_ASM_ROW_2(C, O) SMELT_ASM_FMA(C, 2) SMELT_ASM_FMA(C, 3)
#define SMELT_ASM_ROW_8(C, O)                                                                                          \
  SMELT_ASM_ROW_4(C, O) SMELT_ASM_FMA(C, 4) SMELT_ASM_FMA(C, 5) SMELT_ASM_FMA(C, 6) SMELT_ASM_FMA(C, 7)
#define SMELT_ASM_SUM(C, I, J) [C##J] "+v"(c##I##_##J)
#define SMELT_ASM_SUMS_1(C, I) SMELT_ASM_SUM(C, I, 0)
#define SMELT_ASM_SUMS_2(C, I) SMELT_ASM_SUMS_1(C, I), SMELT_ASM_SUM(C, I, 1)
#define SMELT_ASM_SUMS_4(C, I) SMELT_ASM_SUMS_2(C, I), SMELT_ASM_SUM(C, I, 2), SMELT_ASM_SUM(C, I, 3)
#define SMELT_ASM_SUMS_8(C, I)                                                                                         \
  SMELT_ASM_SUMS_4(C, I), SMELT_ASM_SUM(C, I, 4), SMELT_ASM_SUM(C, I, 5), SMELT_ASM_SUM(C, I, 6), SMELT_ASM_SUM(C, I, 7)
#define SMELT_ASM_B_1 [b0] "v"(b0)
#define SMELT_ASM_B_2 SMELT_ASM_B_1, [b1] "v"(b1)
#define SMELT_ASM_B_4 SMELT_ASM_B_2, [b2] "v"(b2), [b3] "v"(b3)
#define SMELT_ASM_B_8 SMELT_ASM_B_4, [b4] "v"(b4), [b5] "v"(b5), [b6] "v"(b6), [b7] "v"(b7)
/* It reads rows of A behind the compiler's back; steps are between barriers for that. */
#define SMELT_ASM_GROUP(W, TEXT, B, U, ...)                                                                            \
  {                                                                                                                    \
    smelt_gemm_v a;                                                                                                    \
    __asm__ volatile(TEXT : [a] "=&v"(a), __VA_ARGS__ : [r] "r"(r##B), [l] "r"(lda_bytes), [u] "i"((U) * 4), SMELT_ASM_B_##W); \
  }
#define SMELT_GROUP_ASM_1(W, B, I, J, K, U) SMELT_ASM_GROUP(W, SMELT_ASM_ROW_##W(x, 0), B, U, SMELT_ASM_SUMS_##W(x, I))
#define SMELT_GROUP_ASM_2(W, B, I, J, K, U)                                                                            \
  SMELT_ASM_GROUP(W, SMELT_ASM_ROW_##W(x, 0) SMELT_ASM_ROW_##W(y, 1), B, U, SMELT_ASM_SUMS_##W(x, I), SMELT_ASM_SUMS_##W(y, J))
#define SMELT_GROUP_ASM_3(W, B, I, J, K, U)                                                                            \
  SMELT_ASM_GROUP(W, SMELT_ASM_ROW_##W(x, 0) SMELT_ASM_ROW_##W(y, 1) SMELT_ASM_ROW_##W(z, 2), B, U,                    \
                  SMELT_ASM_SUMS_##W(x, I), SMELT_ASM_SUMS_##W(y, J), SMELT_ASM_SUMS_##W(z, K))
#define SMELT_ROW_ASM_4(I, B, O, U) SMELT_ASM_GROUP(4, SMELT_ASM_ROW_4(x, O), B, U, SMELT_ASM_SUMS_4(x, I))
#define SMELT_ROW_ASM_8(I, B, O, U) SMELT_ASM_GROUP(8, SMELT_ASM_ROW_8(x, O), B, U, SMELT_ASM_SUMS_8(x, I))
#define SMELT_GROUP_FMA_1(B, N, I, J, K, U) SMELT_GROUP_ASM_##N(1, B, I, J, K, U)
#define SMELT_GROUP_FMA_2(B, N, I, J, K, U) SMELT_GROUP_ASM_##N(2, B, I, J, K, U)
#define SMELT_GROUP_FMA_4(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_ASM_4, B, I, J, K, U)
#define SMELT_GROUP_FMA_8(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_ASM_8, B, I, J, K, U)
#else
#define SMELT_GROUP_FMA_1(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_FMA_1, B, I, J, K, U)
#define SMELT_GROUP_FMA_2(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_FMA_2, B, I, J, K, U)
#define SMELT_GROUP_FMA_4(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_FMA_4, B, I, J, K, U)
#define SMELT_GROUP_FMA_8(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_FMA_8, B, I, J, K, U)
#define SMELT_GROUP_FMA_16(B, N, I, J, K, U) SMELT_GROUP_ROWS_##N(SMELT_ROW_FMA_16, B, I, J, K, U)
#endif

typedef void (*smelt_gemm_tile)(const float *a, int64_t lda, const float *b, int64_t panel_stride, int64_t kc, float *c,
                                int64_t ldc, int add, const float *next);

/* Per level: a main tile has up to SMELT_GEMM_MR rows and covers SMELT_GEMM_NV vectors; tiles for a few rows are wider
 * (smelt_gemm_thin), so that enough independent chains hide the latency of a multiply-add. Only AVX-512 has main tiles of two
 * panels; there an odd last panel goes to the narrow tiles of up to SMELT_GEMM_NARROW_MR rows, enough chains to hide latency.
 *
 * A tile of R rows and W vectors takes R + W loads and R * W multiply-adds a step. Two loads of 64 bytes a cycle are more than
 * an AVX-512 core sustains, and a core that another thread shares issues three instructions a cycle or fewer: there the most
 * square tile is best, SMELT_GEMM_WIDE_MR rows of SMELT_GEMM_WP panels, and the tall one serves columns that are left. */
#if SMELT_VL == 64 && defined(__AVX512F__)
#define SMELT_GEMM_MR 14
#define SMELT_GEMM_NARROW_MR 14
#define SMELT_GEMM_WIDE_MR 6
#define SMELT_GEMM_NV 2
#elif SMELT_VL == 64
/* AVX-512 source on a lesser machine: for tests, so it is kept small. */
#define SMELT_GEMM_MR 5
#define SMELT_GEMM_NARROW_MR 3
#define SMELT_GEMM_WIDE_MR 2
#define SMELT_GEMM_NV 2
#elif SMELT_VL == 32
#define SMELT_GEMM_MR 6
#define SMELT_GEMM_NV 2
#elif defined(__aarch64__)
#define SMELT_GEMM_MR 6
#define SMELT_GEMM_NV 4
#else
#define SMELT_GEMM_MR 4
#define SMELT_GEMM_NV 2
#endif
#ifndef SMELT_GEMM_NARROW_MR
#define SMELT_GEMM_NARROW_MR SMELT_GEMM_MR
#endif
/* Rows up to which a tile is low: as a rule it has its panels to itself. */
#define SMELT_GEMM_LOW_ROWS 3
/* Panels of a main tile; a tile narrower than a panel is run several times. */
#define SMELT_GEMM_NP (SMELT_GEMM_NV >= SMELT_GEMM_VPP ? SMELT_GEMM_NV / SMELT_GEMM_VPP : 1)

/* Panels of the widest tile that many rows share. */
#if SMELT_VL == 64
#define SMELT_GEMM_WP 4
#else
#define SMELT_GEMM_WP SMELT_GEMM_NP
#define SMELT_GEMM_WIDE_MR SMELT_GEMM_MR
#endif

#define SMELT_GEMM_MICRO_5(W)                                                                                          \
  SMELT_GEMM_MICRO(1, W) SMELT_GEMM_MICRO(2, W) SMELT_GEMM_MICRO(3, W) SMELT_GEMM_MICRO(4, W) SMELT_GEMM_MICRO(5, W)
#define SMELT_GEMM_MICRO_14(W)                                                                                         \
  SMELT_GEMM_MICRO_5(W) SMELT_GEMM_MICRO(6, W) SMELT_GEMM_MICRO(7, W) SMELT_GEMM_MICRO(8, W) SMELT_GEMM_MICRO(9, W)    \
  SMELT_GEMM_MICRO(10, W) SMELT_GEMM_MICRO(11, W) SMELT_GEMM_MICRO(12, W) SMELT_GEMM_MICRO(13, W) SMELT_GEMM_MICRO(14, W)
#define SMELT_GEMM_MICRO_12(W)                                                                                         \
  SMELT_GEMM_MICRO_5(W) SMELT_GEMM_MICRO(6, W) SMELT_GEMM_MICRO(7, W) SMELT_GEMM_MICRO(8, W) SMELT_GEMM_MICRO(9, W)    \
  SMELT_GEMM_MICRO(10, W) SMELT_GEMM_MICRO(11, W) SMELT_GEMM_MICRO(12, W)
#define SMELT_GEMM_NAME(R, W) SMELT_MICRO(f32_gemm, R, W)
#define SMELT_GEMM_NAMES_3(W) 0, SMELT_GEMM_NAME(1, W), SMELT_GEMM_NAME(2, W), SMELT_GEMM_NAME(3, W)
#define SMELT_GEMM_NAMES_5(W) SMELT_GEMM_NAMES_3(W), SMELT_GEMM_NAME(4, W), SMELT_GEMM_NAME(5, W)
#define SMELT_GEMM_NAMES_14(W)                                                                                         \
  SMELT_GEMM_NAMES_5(W), SMELT_GEMM_NAME(6, W), SMELT_GEMM_NAME(7, W), SMELT_GEMM_NAME(8, W),                       \
      SMELT_GEMM_NAME(9, W), SMELT_GEMM_NAME(10, W), SMELT_GEMM_NAME(11, W), SMELT_GEMM_NAME(12, W),               \
      SMELT_GEMM_NAME(13, W), SMELT_GEMM_NAME(14, W)

#if SMELT_VL == 64 && defined(__AVX512F__)
SMELT_GEMM_MICRO_14(1) SMELT_GEMM_MICRO_14(2)
SMELT_GEMM_MICRO_5(4) SMELT_GEMM_MICRO(6, 4) SMELT_GEMM_MICRO(1, 8) SMELT_GEMM_MICRO(2, 8) SMELT_GEMM_MICRO(3, 8)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_narrow, SMELT_GEMM_NAMES_14(1))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_main, SMELT_GEMM_NAMES_14(2))
SMELT_GEMM_MICRO_AS(f32_gemm_eager, 5, 4, 2) SMELT_GEMM_MICRO_AS(f32_gemm_eager, 6, 4, 2)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_wide, SMELT_GEMM_NAMES_5(4), SMELT_GEMM_NAME(6, 4))
/* For blocks of so few rows that the tiles of one line would not bring all of the coming panels. */
#define SMELT_GEMM_EAGER_ROWS 5
SMELT_TILES(smelt_gemm_tile, smelt_gemm_eager, 0, 0, 0, 0, 0, SMELT_MICRO(f32_gemm_eager, 5, 4), SMELT_MICRO(f32_gemm_eager, 6, 4))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_thin, SMELT_GEMM_NAMES_3(8), SMELT_GEMM_NAME(4, 4))
static const int8_t smelt_gemm_thin_panels[] = {0, 8, 8, 8, 4};
#elif SMELT_VL == 64
SMELT_GEMM_MICRO(1, 1) SMELT_GEMM_MICRO(2, 1) SMELT_GEMM_MICRO(3, 1) SMELT_GEMM_MICRO_5(2) SMELT_GEMM_MICRO(1, 4)
SMELT_GEMM_MICRO(2, 4) SMELT_GEMM_MICRO(1, 8)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_narrow, SMELT_GEMM_NAMES_3(1))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_main, SMELT_GEMM_NAMES_5(2))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_wide, 0, SMELT_GEMM_NAME(1, 4), SMELT_GEMM_NAME(2, 4))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_thin, 0, SMELT_GEMM_NAME(1, 8))
static const int8_t smelt_gemm_thin_panels[] = {0, 8};
#elif SMELT_VL == 32
SMELT_GEMM_MICRO_5(2) SMELT_GEMM_MICRO(6, 2) SMELT_GEMM_MICRO(1, 8) SMELT_GEMM_MICRO(2, 4) SMELT_GEMM_MICRO(3, 4)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_main, SMELT_GEMM_NAMES_5(2), SMELT_GEMM_NAME(6, 2))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_thin, 0, SMELT_GEMM_NAME(1, 8), SMELT_GEMM_NAME(2, 4), SMELT_GEMM_NAME(3, 4))
static const int8_t smelt_gemm_thin_panels[] = {0, 4, 2, 2};
/* One vector of a panel, the only one that exists: twelve rows have as many chains as six of two vectors. */
#define SMELT_GEMM_HALF_MR 12
SMELT_GEMM_MICRO_12(1)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_half, SMELT_GEMM_NAMES_5(1), SMELT_GEMM_NAME(6, 1), SMELT_GEMM_NAME(7, 1), SMELT_GEMM_NAME(8, 1),
            SMELT_GEMM_NAME(9, 1), SMELT_GEMM_NAME(10, 1), SMELT_GEMM_NAME(11, 1), SMELT_GEMM_NAME(12, 1))
#elif defined(__aarch64__)
SMELT_GEMM_MICRO_5(4) SMELT_GEMM_MICRO(6, 4) SMELT_GEMM_MICRO(1, 16) SMELT_GEMM_MICRO(2, 8) SMELT_GEMM_MICRO(3, 8)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_main, SMELT_GEMM_NAMES_5(4), SMELT_GEMM_NAME(6, 4))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_thin, 0, SMELT_GEMM_NAME(1, 16), SMELT_GEMM_NAME(2, 8), SMELT_GEMM_NAME(3, 8))
static const int8_t smelt_gemm_thin_panels[] = {0, 4, 2, 2};
#else
SMELT_GEMM_MICRO(1, 2) SMELT_GEMM_MICRO(2, 2) SMELT_GEMM_MICRO(3, 2) SMELT_GEMM_MICRO(4, 2) SMELT_GEMM_MICRO(1, 8)
SMELT_GEMM_MICRO(2, 4)
SMELT_TILES(smelt_gemm_tile, smelt_gemm_main, SMELT_GEMM_NAMES_3(2), SMELT_GEMM_NAME(4, 2))
SMELT_TILES(smelt_gemm_tile, smelt_gemm_thin, 0, SMELT_GEMM_NAME(1, 8), SMELT_GEMM_NAME(2, 4))
static const int8_t smelt_gemm_thin_panels[] = {0, 2, 1};
#endif
/* Columns that tiles come in at the end: a whole panel, or half of one. */
#ifdef SMELT_GEMM_HALF_MR
#define SMELT_GEMM_HALF SMELT_GEMM_LANES
#else
#define SMELT_GEMM_HALF SMELT_GEMM_PANEL
#endif
#define SMELT_GEMM_THIN_ROWS ((int64_t)(sizeof smelt_gemm_thin_panels) - 1)

#endif
