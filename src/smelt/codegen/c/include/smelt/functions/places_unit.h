/* Where the elements of a tensor are not zero.
 *
 * Input:     b: x as truth values; s: elements, rank, dims. Output: b: indices[rank, count] (may be NULL), nothing, the count.
 * Invariant: indices are in the order of the elements; one row for each axis.
 */
#include <smelt/threads/loop.h>

static int64_t smelt_true_count(const uint8_t *x, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += x[i] != 0;
  return count;
}

int32_t SMELT_NAME(smelt_places)(smelt_task *t);
int32_t SMELT_NAME(smelt_places)(smelt_task *t) {
  const uint8_t *x = (const uint8_t *)t->b[0];
  const int64_t n = t->s[0], rank = t->s[1], *dims = t->s + 2, count = smelt_true_count(x, n);
  int64_t *to = (int64_t *)t->b[1], last = rank ? dims[rank - 1] : 1, next = 0;
  *(int64_t *)t->b[3] = count;
  if (!to || !count) return SMELT_OK;
  for (int64_t row = 0; row * last < n; row++)
    for (int64_t i = 0; i < last; i++) {
      if (!x[row * last + i]) continue;
      to[(rank - 1) * count + next] = i;
      for (int64_t d = rank - 2, left = row; d >= 0; left /= dims[d], d--) to[d * count + next] = left % dims[d];
      next++;
    }
  return SMELT_OK;
}
