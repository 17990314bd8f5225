/* Boxes of the highest scores that do not overlap much: ONNX's NonMaxSuppression.
 *
 * Input:     b: boxes[batches, boxes, 4], scores[batches, classes, boxes], most boxes of a class (int64), overlap limit, score
 *            limit; the last three may be NULL. s: batches, classes, boxes, whether boxes are a centre and sizes.
 * Output:    b: batch, class and box of each that is chosen (may be NULL); then a pair of a score and an index for each score and
 *            a count for each class; then how many there are.
 * Invariant: by batch, by class, by falling score; of equal scores the lower index first. Scores must exceed their limit, and a
 *            box is left out when its overlap with one that was chosen exceeds its own.
 */
#include <smelt/threads/loop.h>

typedef struct {
  float score;
  int32_t index;
} smelt_candidate;

typedef struct {
  float y0, x0, y1, x1, area;
} smelt_box;

static smelt_box smelt_box_at(const float *p, int64_t centred) {
  const float y0 = centred ? p[1] - p[3] / 2 : p[0], y1 = centred ? p[1] + p[3] / 2 : p[2];
  const float x0 = centred ? p[0] - p[2] / 2 : p[1], x1 = centred ? p[0] + p[2] / 2 : p[3];
  smelt_box b = {y0 < y1 ? y0 : y1, x0 < x1 ? x0 : x1, y0 < y1 ? y1 : y0, x0 < x1 ? x1 : x0, 0};
  b.area = (b.x1 - b.x0) * (b.y1 - b.y0);
  return b;
}

static int smelt_overlap(smelt_box a, smelt_box b, float limit) {
  const float y0 = a.y0 > b.y0 ? a.y0 : b.y0, y1 = a.y1 < b.y1 ? a.y1 : b.y1;
  const float x0 = a.x0 > b.x0 ? a.x0 : b.x0, x1 = a.x1 < b.x1 ? a.x1 : b.x1;
  if (!(y1 > y0) || !(x1 > x0) || !(a.area > 0) || !(b.area > 0)) return 0;
  const float shared = (x1 - x0) * (y1 - y0), all = a.area + b.area - shared;
  return all > 0 && shared / all > limit;
}

static int smelt_worse(smelt_candidate a, smelt_candidate b) {
  return a.score < b.score || (a.score == b.score && a.index > b.index);
}

static void smelt_sift_down(smelt_candidate *heap, int64_t at, int64_t count) {
  const smelt_candidate moved = heap[at];
  for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && smelt_worse(heap[child], heap[child + 1])) child++;
    if (!smelt_worse(moved, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

typedef struct {
  const float *boxes, *scores, *score_limit;
  smelt_candidate *memory;
  int64_t *counts;
  int64_t classes, n, most, centred;
  float limit;
} smelt_suppression;

/* A heap of candidates shrinks from its end; those that are chosen take the places behind it. */
static int64_t smelt_choose(const smelt_suppression *s, const float *boxes, const float *scores, smelt_candidate *heap) {
  int64_t count = 0, chosen = 0;
  for (int64_t i = 0; i < s->n; i++)
    if (!s->score_limit || scores[i] > *s->score_limit) heap[count++] = (smelt_candidate){scores[i], (int32_t)i};
  for (int64_t i = count / 2 - 1; i >= 0; i--) smelt_sift_down(heap, i, count);
  for (int64_t left = count; left > 0 && chosen < s->most; ) {
    const smelt_candidate best = heap[0];
    heap[0] = heap[--left];
    smelt_sift_down(heap, 0, left);
    const smelt_box box = smelt_box_at(boxes + best.index * 4, s->centred);
    int kept = 1;
    for (int64_t c = 0; kept && c < chosen; c++)
      kept = !smelt_overlap(box, smelt_box_at(boxes + heap[s->n - 1 - c].index * 4, s->centred), s->limit);
    if (kept) heap[s->n - 1 - chosen++] = best;
  }
  return chosen;
}

static void smelt_suppression_body(void *context, int64_t task) {
  const smelt_suppression *s = (const smelt_suppression *)context;
  s->counts[task] = smelt_choose(s, s->boxes + task / s->classes * s->n * 4, s->scores + task * s->n, s->memory + task * s->n);
}

int32_t SMELT_NAME(smelt_non_max_suppression)(smelt_task *t);
int32_t SMELT_NAME(smelt_non_max_suppression)(smelt_task *t) {
  const int64_t lists = t->s[0] * t->s[1], n = t->s[2];
  smelt_suppression s = {.boxes = (const float *)t->b[0], .scores = (const float *)t->b[1],
                         .score_limit = (const float *)t->b[4], .counts = (int64_t *)t->b[6], .classes = t->s[1], .n = n,
                         .most = t->b[2] ? *(const int64_t *)t->b[2] : 0, .centred = t->s[3],
                         .limit = t->b[3] ? *(const float *)t->b[3] : 0};
  s.memory = (smelt_candidate *)(s.counts + lists);
  int64_t *to = (int64_t *)t->b[5], *count = (int64_t *)t->b[7];
  *count = 0;
  if (n > INT32_MAX) return smelt_fail(t->env, SMELT_E_OVERFLOW, -1, n, 0, 0);
  if (!lists || !n || s.most <= 0) return SMELT_OK;
  if (lists == 1 || lists * n < 4096)
    for (int64_t i = 0; i < lists; i++) smelt_suppression_body(&s, i);
  else
    t->env->parallel(t->env, lists, smelt_suppression_body, &s);
  for (int64_t list = 0; list < lists; list++)
    for (int64_t c = 0; c < s.counts[list]; c++, ++*count) {
      if (!to) continue;
      to[*count * 3] = list / s.classes;
      to[*count * 3 + 1] = list % s.classes;
      to[*count * 3 + 2] = s.memory[list * n + n - 1 - c].index;
    }
  return t->env->code;
}
