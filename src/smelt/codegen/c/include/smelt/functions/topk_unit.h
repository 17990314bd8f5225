/* The k largest or smallest elements along an axis, best first, with their indices.
 *
 * Input:     b: x[outer, length, inner]; s: outer, length, inner, k, largest.
 * Output:    b: values[outer, k, inner], indices[outer, k, inner], either may be NULL; then a heap of k pairs per row.
 * Invariant: of equal elements the one with the lower index comes first; NaN counts as larger than any number.
 */
#include <smelt/vec/element.h>

typedef struct {
  element value;
  int64_t index;
} smelt_ranked;

SMELT_INLINE int smelt_below(element a, element b) { return a < b || (b != b && a == a); }

/* Whether a comes before b in the result. */
SMELT_INLINE int smelt_ahead(smelt_ranked a, smelt_ranked b, int64_t largest) {
  if (largest ? smelt_below(b.value, a.value) : smelt_below(a.value, b.value)) return 1;
  if (largest ? smelt_below(a.value, b.value) : smelt_below(b.value, a.value)) return 0;
  return a.index < b.index;
}

/* The root of the heap is the pair that would come last. */
static void smelt_sift(smelt_ranked *heap, int64_t at, int64_t count, int64_t largest) {
  smelt_ranked moved = heap[at];
  for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && smelt_ahead(heap[child], heap[child + 1], largest)) child++;
    if (!smelt_ahead(moved, heap[child], largest)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

static void smelt_rank(smelt_ranked *heap, const element *x, int64_t length, int64_t stride, int64_t k, int64_t largest) {
  for (int64_t i = 0; i < k; i++) heap[i] = (smelt_ranked){x[i * stride], i};
  for (int64_t i = k / 2 - 1; i >= 0; i--) smelt_sift(heap, i, k, largest);
  for (int64_t i = k; i < length; i++) {
    const element value = x[i * stride];
    if (largest ? smelt_below(heap[0].value, value) : smelt_below(value, heap[0].value)) {
      heap[0] = (smelt_ranked){value, i};
      smelt_sift(heap, 0, k, largest);
    }
  }
  for (int64_t last = k - 1; last > 0; last--) {
    smelt_ranked worst = heap[0];
    heap[0] = heap[last];
    heap[last] = worst;
    smelt_sift(heap, 0, last, largest);
  }
}

static void smelt_topk_body(void *context, int64_t task) {
  const smelt_task *t = context;
  const int64_t length = t->s[1], inner = t->s[2], k = t->s[3], largest = t->s[4];
  for (int64_t row = task * t->step; row < smelt_min((task + 1) * t->step, t->units); row++) {
    smelt_ranked *heap = (smelt_ranked *)t->b[3] + row * k;
    const int64_t outer = row / inner, in = row % inner;
    smelt_rank(heap, (const element *)t->b[0] + outer * length * inner + in, length, inner, k, largest);
    const int64_t first = outer * k * inner + in;
    if (t->b[1])
      for (int64_t i = 0; i < k; i++) ((element *)t->b[1])[first + i * inner] = heap[i].value;
    if (t->b[2])
      for (int64_t i = 0; i < k; i++) ((int64_t *)t->b[2])[first + i * inner] = heap[i].index;
  }
}

int32_t SMELT_FUNCTION(smelt_topk_)(smelt_task *t) {
  if (t->s[3] < 0 || t->s[3] > t->s[1]) return smelt_fail(t->env, SMELT_E_VALUE, -1, t->s[3], 0, 0);
  if (t->s[3] == 0) return SMELT_OK;
  return smelt_launch(t, smelt_topk_body, t->s[0] * t->s[2], t->s[1] * 4 + t->s[3] * 16, 0);
}
