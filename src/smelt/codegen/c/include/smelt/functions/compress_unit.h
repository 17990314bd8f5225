/* The slices of a tensor along an axis where a condition holds.
 *
 * Input:     b: x[outer, length, inner], condition (truth values); s: outer, length, bytes of a slice's piece, conditions.
 * Output:    b: the slices[outer, count, inner] (may be NULL), nothing, the count.
 * Invariant: the order of slices is kept. Conditions beyond the axis, and slices beyond the conditions, are left out.
 */
#include <smelt/threads/loop.h>
#include <string.h>

int32_t SMELT_NAME(smelt_compress)(smelt_task *t);
int32_t SMELT_NAME(smelt_compress)(smelt_task *t) {
  const char *x = (const char *)t->b[0];
  const uint8_t *holds = (const uint8_t *)t->b[1];
  const int64_t outer = t->s[0], length = t->s[1], bytes = t->s[2], limit = smelt_min(length, t->s[3]);
  char *to = (char *)t->b[2];
  int64_t count = 0;
  for (int64_t i = 0; i < limit; i++) count += holds[i] != 0;
  *(int64_t *)t->b[4] = count;
  for (int64_t o = 0; to && o < outer; o++)
    for (int64_t i = 0; i < limit; i++) {
      if (!holds[i]) continue;
      memcpy(to, x + (o * length + i) * bytes, (size_t)bytes);
      to += bytes;
    }
  return SMELT_OK;
}
