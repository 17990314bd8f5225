/* The distinct slices of a tensor along an axis.
 *
 * Input:     b: x[outer, length, inner]; s: outer, length, inner, sorted.
 * Output:    b: the slices[outer, count, inner], the first index of each, the place of each of x's slices among them, how often
 *            each is there (any may be NULL); then memory for four indices for each slice; then the count.
 * Invariant: slices are compared element by element, NaN equal to NaN and above every number. They come in rising order, or
 *            where that is not asked for in the order of their first indices.
 */
#include <smelt/vec/element.h>

typedef struct {
  const element *x;
  int64_t outer, length, inner;
} smelt_slices;

static int smelt_compare(const smelt_slices *s, int64_t a, int64_t b) {
  for (int64_t o = 0; o < s->outer; o++)
    for (int64_t i = 0; i < s->inner; i++) {
      const element p = s->x[(o * s->length + a) * s->inner + i], q = s->x[(o * s->length + b) * s->inner + i];
      if (p < q || (q != q && p == p)) return -1;
      if (q < p || (p != p && q == q)) return 1;
    }
  return 0;
}

/* A stable merge sort of indices from the bottom up; returns the array with the result. */
static int64_t *smelt_sorted(const smelt_slices *s, int64_t *a, int64_t *b) {
  const int64_t n = s->length;
  for (int64_t i = 0; i < n; i++) a[i] = i;
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t left = 0; left < n; left += 2 * width) {
      const int64_t middle = smelt_min(left + width, n), right = smelt_min(left + 2 * width, n);
      for (int64_t i = left, j = middle, k = left; k < right; k++)
        b[k] = j >= right || (i < middle && smelt_compare(s, a[i], a[j]) <= 0) ? a[i++] : a[j++];
    }
    int64_t *swap = a;
    a = b, b = swap;
  }
  return a;
}

/* `place`, of each group in rising order, becomes its place by first index; `first` is in the order of groups before and after. */
static void smelt_by_first(int64_t *first, int64_t *place, int64_t *group_at, int64_t count, int64_t length) {
  for (int64_t i = 0; i < length; i++) group_at[i] = -1;
  for (int64_t g = 0; g < count; g++) group_at[first[g]] = g;
  int64_t next = 0;
  for (int64_t i = 0; i < length; i++)
    if (group_at[i] >= 0) place[group_at[i]] = next++;
}

int32_t SMELT_FUNCTION(smelt_unique_)(smelt_task *t) {
  const smelt_slices s = {(const element *)t->b[0], t->s[0], t->s[1], t->s[2]};
  const int64_t n = s.length;
  int64_t *memory = (int64_t *)t->b[5], *first = memory + 2 * n, *place = memory + 3 * n, count = 0;
  const int64_t *order = smelt_sorted(&s, memory, memory + n);
  int64_t *other = order == memory ? memory + n : memory, *inverse = (int64_t *)t->b[3], *often = (int64_t *)t->b[4];
  for (int64_t i = 0; i < n; i++)
    if (!i || smelt_compare(&s, order[i - 1], order[i])) first[count] = order[i], place[count] = count, count++;
  *(int64_t *)t->b[6] = count;
  if (!t->s[3]) smelt_by_first(first, place, other, count, n);
  for (int64_t i = 0; often && i < count; i++) often[i] = 0;
  for (int64_t i = 0, g = -1; i < n && (often || inverse); i++) {
    g += g + 1 < count && order[i] == first[g + 1];
    if (often) often[place[g]]++;
    if (inverse) inverse[order[i]] = place[g];
  }
  element *y = (element *)t->b[1];
  for (int64_t g = 0; g < count; g++) {
    if (t->b[2]) ((int64_t *)t->b[2])[place[g]] = first[g];
    for (int64_t o = 0; y && o < s.outer; o++)
      for (int64_t i = 0; i < s.inner; i++)
        y[(o * count + place[g]) * s.inner + i] = s.x[(o * n + first[g]) * s.inner + i];
  }
  return SMELT_OK;
}
