/* Products of float32 rows with packed panels of 16-bit floats, as generated code calls them: of bfloat16, whose rows may be rounded
 * to it or are not (WIDENED), and of float16.
 *
 * Input:     as loop_gemm.h has it; panels as half_gemm.h does. Output: declarations. Invariant: half_gemm_unit.h defines them.
 */
#ifndef SMELT_HALF_PRODUCT_H
#define SMELT_HALF_PRODUCT_H

#include <smelt/gemm/loop_gemm.h>

#define SMELT_PRODUCT_BF16 SMELT_NAME(smelt_product_bf16)
#define SMELT_PRODUCT_WIDENED SMELT_NAME(smelt_product_widened)
#define SMELT_PRODUCT_F16 SMELT_NAME(smelt_product_f16)
#define SMELT_PRODUCT_K_BLOCK_BF16 SMELT_NAME(smelt_product_k_block_bf16)
#define SMELT_PRODUCT_K_BLOCK_WIDENED SMELT_NAME(smelt_product_k_block_widened)
#define SMELT_PRODUCT_K_BLOCK_F16 SMELT_NAME(smelt_product_k_block_f16)
#define SMELT_PRODUCT_EPILOGUE_BF16 SMELT_NAME(smelt_product_epilogue_bf16)
#define SMELT_PRODUCT_EPILOGUE_WIDENED SMELT_NAME(smelt_product_epilogue_widened)
#define SMELT_PRODUCT_EPILOGUE_F16 SMELT_NAME(smelt_product_epilogue_f16)

#define SMELT_HALF_PRODUCT(TYPE)                                                                                               \
  void SMELT_PRODUCT_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, float *c, int64_t ldc,         \
                            int64_t m, int64_t p0, int64_t p1, int64_t n_valid);                                               \
  void SMELT_PRODUCT_K_BLOCK_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, int64_t from,          \
                                    int64_t terms, float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1,                   \
                                    int64_t n_valid);                                                                          \
  void SMELT_PRODUCT_EPILOGUE_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, float *block,         \
                                     int64_t ld, int64_t m, int64_t p0, int64_t p1, const smelt_epilogue *epilogue);
SMELT_HALF_PRODUCT(BF16)
SMELT_HALF_PRODUCT(WIDENED)
SMELT_HALF_PRODUCT(F16)

#endif
