/* The products of half_gemm_unit.h, for numpy; `dots` says whether bfloat16 may be multiplied as it is. */
#define SMELT_LEVEL probe
#include <smelt/gemm/tiles_unit.h>
#undef SMELT_TILES_UNIT
#include <smelt/base/cpu.h>
#include <smelt/half/half_gemm_unit.h>

int32_t probe_dots(int32_t dots) {
  smelt_features = 0;
  if (dots) smelt_cpu_level();
#ifdef SMELT_BF16_DOTS
  return smelt_half_dots(SMELT_HALF_BF16);
#else
  return 0;
#endif
}

/* numbers: kind, m, K, lda, ldc, p0, p1, columns that exist, first term, terms; `f` is bias, added, to, ld, least, most. */
void probe_product(const int64_t *n, const float *a, const uint16_t *panels, float *c) {
  void (*const parts[])(const float *, int64_t, const uint16_t *, int64_t, int64_t, int64_t, float *, int64_t, int64_t, int64_t,
                        int64_t, int64_t) = {SMELT_PRODUCT_K_BLOCK_BF16, SMELT_PRODUCT_K_BLOCK_WIDENED, SMELT_PRODUCT_K_BLOCK_F16};
  parts[n[0]](a, n[3], panels, n[2], n[8], n[9], c, n[4], n[1], n[5], n[6], n[7]);
}

void probe_epilogue(const int64_t *n, const float *a, const uint16_t *panels, float *block, const float *bias, const float *added,
                    float *to, int64_t ld, float least, float most) {
  const smelt_epilogue f = {.bias = bias, .added = added, .to = to, .ld = ld, .columns = n[7] - n[5] * 16, .least = least, .most = most};
  void (*const kinds[])(const float *, int64_t, const uint16_t *, int64_t, float *, int64_t, int64_t, int64_t, int64_t,
                        const smelt_epilogue *) = {SMELT_PRODUCT_EPILOGUE_BF16, SMELT_PRODUCT_EPILOGUE_WIDENED, SMELT_PRODUCT_EPILOGUE_F16};
  kinds[n[0]](a, n[3], panels, n[2], block, n[4], n[1], n[5], n[6], &f);
}
