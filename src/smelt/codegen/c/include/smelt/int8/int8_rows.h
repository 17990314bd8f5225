/* Packing for 8-bit products: rows of A into blocks of a tile's rows, and a matrix B that comes at run time into panels.
 *
 * Input:     uint8 or int8 matrices, row-major, and A's zero points.
 * Output:    blocks [group of four k][row], each row's four k as the form of the tile wants them (int8_tiles.h); panels, each behind
 *            its header; of each row the sum of a - zero point.
 * Invariant: bytes of B are signed (uint8 less 128) and those of the byte forms of A unsigned (int8 plus 128); rows are filled
 *            up with the zero point, panels with 0.
 */
#ifndef SMELT_INT8_ROWS_H
#define SMELT_INT8_ROWS_H

#include <smelt/int8/int8_dots_arm.h>

typedef uint8_t smelt_int8_16u __attribute__((vector_size(16)));
typedef uint16_t smelt_int8_8u __attribute__((vector_size(16)));
typedef int16_t smelt_int8_8 __attribute__((vector_size(16)));
typedef int32_t smelt_int8_4 __attribute__((vector_size(16)));

SMELT_INLINE int64_t smelt_int8_groups(int64_t K) { return (K + SMELT_INT8_GROUP - 1) / SMELT_INT8_GROUP; }
SMELT_INLINE int64_t smelt_int8_stride(int64_t K) {
  const int64_t groups = smelt_int8_groups(K), spare = smelt_int8_spare(groups);
  return ((int64_t)sizeof(smelt_int8_header) + (groups + spare) * SMELT_INT8_STEP + spare * 4 + 63) & ~(int64_t)63;
}
SMELT_INLINE int64_t smelt_int8_group_bytes(int form) { return form == SMELT_INT8_WIDE ? 8 : 4; }

/* Sixteen bytes of a row, four groups. */
typedef struct {
  int32_t zero;  /* of bytes as they are stored in the packed form */
  int32_t flip;  /* 128 where bytes change between signed and unsigned */
  int form, is_signed;
} smelt_int8_source;

SMELT_INLINE smelt_int8_4 smelt_int8_pair_sums(smelt_int8_8 x) {
  const smelt_int8_4 both = (smelt_int8_4)x;
  return (both << 16 >> 16) + (both >> 16);
}

/* Writes `count` (at most four) groups of one row; gives what they add to the row's sum. */
SMELT_INLINE smelt_int8_4 smelt_int8_put(const smelt_int8_source *from, smelt_int8_16u x, int count, int64_t rows, char *to) {
  smelt_int8_8 even, odd;
  if (from->form != SMELT_INT8_WIDE) x ^= (uint8_t)from->flip - (smelt_int8_16u){0};
  if (from->is_signed && from->form == SMELT_INT8_WIDE) even = (smelt_int8_8)x << 8 >> 8, odd = (smelt_int8_8)x >> 8;
  else even = (smelt_int8_8)((smelt_int8_8u)x & 255), odd = (smelt_int8_8)((smelt_int8_8u)x >> 8);
  even -= (int16_t)from->zero, odd -= (int16_t)from->zero;
  if (from->form == SMELT_INT8_WIDE) {
    const smelt_int8_4 e = (smelt_int8_4)even, o = (smelt_int8_4)odd;
    const smelt_int8_4 out[2] = {{e[0], o[0], e[1], o[1]}, {e[2], o[2], e[3], o[3]}};
    for (int i = 0; i < count; i++) __builtin_memcpy(to + i * rows * 8, (const char *)out + 8 * i, 8);
  } else {
    if (from->form == SMELT_INT8_SIGNED) x ^= (uint8_t)128 - (smelt_int8_16u){0};
    for (int i = 0; i < count; i++) __builtin_memcpy(to + i * rows * 4, (const char *)&x + 4 * i, 4);
  }
  return smelt_int8_pair_sums(even) + smelt_int8_pair_sums(odd);
}

/* Row `row` of a block of `rows`. Gives the sum of a - zero point. */
static int32_t smelt_int8_pack_row(const smelt_int8_source *from, const uint8_t *a, uint8_t fill, int64_t K, int64_t rows, char *to) {
  const int64_t bytes = smelt_int8_group_bytes(from->form);
  smelt_int8_4 sum = {0};
  smelt_int8_16u x;
  int64_t k = 0;
  for (; k + 16 <= K; k += 16, to += 4 * rows * bytes) {
    __builtin_memcpy(&x, a + k, 16);
    sum += smelt_int8_put(from, x, 4, rows, to);
  }
  if (k < K) {
    x = fill - (smelt_int8_16u){0};
    for (int64_t i = k; i < K; i++) x[i - k] = a[i];
    sum += smelt_int8_put(from, x, (int)smelt_int8_groups(K - k), rows, to);
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

/* One panel of a matrix K x N. */
static __attribute__((unused)) void smelt_int8_pack_panel(const uint8_t *b, int is_signed, int64_t K, int64_t N, int64_t panel, char *to) {
  const int64_t first = panel * SMELT_INT8_PANEL, columns = smelt_min(SMELT_INT8_PANEL, N - first);
  const uint8_t flip = is_signed ? 0 : 128;
  int8_t *out = (int8_t *)(to + sizeof(smelt_int8_header));
  smelt_int8_header header = {.small_pairs = 1};
  __builtin_memset(out, 0, (size_t)(smelt_int8_groups(K) * SMELT_INT8_STEP));
  for (int64_t k = 0; k < K; k++)
    for (int64_t j = 0; j < columns; j++) {
      int8_t *at = out + k / 4 * SMELT_INT8_STEP + j * 4 + k % 4;
      *at = (int8_t)(b[k * N + first + j] ^ flip);
      header.sums[j] += *at;
      if (k % 2 && (*at < 0 ? -*at : *at) + (at[-1] < 0 ? -at[-1] : at[-1]) > 128) header.small_pairs = 0;
    }
  __builtin_memcpy(to, &header, sizeof header);
}

#endif
