/* Causal attention of grouped queries over a KV cache, which is written in place where past and present share memory.
 *
 * Input:     smelt_task: b, s and f as the enums below count them. Queries and new keys and values are [batch][row][head][depth],
 *            caches [batch][head][place][depth]; `last` has the number of keys of each batch index, less one.
 * Output:    [batch][row][head * depth]; the caches with the new keys behind the past's; each where it is asked for.
 * Invariant: past keys are read from the past's cache and new ones from the operands, so that no output is read. Keys are taken
 *            in blocks whose borders depend on sizes alone: bits do not depend on threads. Query heads that share keys pass by
 *            them together. A cache of its own memory holds zeros behind its keys; a shared one keeps what it had.
 */
#ifndef SMELT_GROUPED_QUERIES_UNIT_H
#define SMELT_GROUPED_QUERIES_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/attention/grouped_queries_few.h>
#include <smelt/attention/online_softmax.h>
#include <smelt/gemm/gemm.h>
#include <smelt/gemm/transpose.h>
#include <smelt/math/math.h>
#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>

enum { SMELT_GQ_Q, SMELT_GQ_K, SMELT_GQ_V, SMELT_GQ_PAST_K, SMELT_GQ_PAST_V, SMELT_GQ_LAST, SMELT_GQ_SINK,
       SMELT_GQ_Y, SMELT_GQ_NEXT_K, SMELT_GQ_NEXT_V, SMELT_GQ_SCRATCH };
enum { SMELT_GS_BATCH, SMELT_GS_ROWS, SMELT_GS_HEADS, SMELT_GS_KV_HEADS, SMELT_GS_DEPTH, SMELT_GS_PAST, SMELT_GS_LENGTH,
       SMELT_GS_TOTAL };
enum { SMELT_GF_SCALE, SMELT_GF_SOFTCAP };

/* Keys of a block, of a prefetch beside its values, rows that pass by it; keys of a task of few rows, and the rows that are few. */
enum { SMELT_GQ_BLOCK = 128, SMELT_GQ_STEP = 16, SMELT_GQ_ROWS = 96, SMELT_GQ_SPAN = 512, SMELT_GQ_FEW = 16 };

typedef struct {
  smelt_task *task;
  const float *q, *k, *v, *past_k, *past_v, *sink;
  const int32_t *last;
  float *y, *next_k, *next_v, *parts;
  int64_t batch, rows, heads, kv_heads, depth, past, length, group, panels; /* panels of 16 columns of the depth */
  int64_t row_step, row_tasks, spans;
  int whole, unusual; /* the call has all keys: nothing is read of the past; rows pass by keys that they do not see */
  float scale, softcap;
} smelt_gq;

/* Some rows of a batch index's query heads that share keys, and their memory. */
typedef struct {
  int64_t batch, head, first, rows, count, before, limit; /* count = rows * group; keys at hand end at the limit */
  float *q, *keys, *values, *scores, *sums, *part;        /* sums: [count][panels * 16] */
  float *tops, *totals, *block_tops, *block_totals;
} smelt_gq_tile;

SMELT_INLINE int64_t smelt_gq_before(const smelt_gq *p, int64_t batch) {
  return p->whole ? 0 : p->last[batch] + 1 - p->rows;
}

SMELT_INLINE int64_t smelt_gq_slot_floats(const smelt_gq *p, int64_t count) {
  const int64_t wide = p->panels * SMELT_GEMM_PANEL;
  return count * p->depth + SMELT_GQ_BLOCK * (p->depth + wide) + count * (SMELT_GQ_BLOCK + 2 * wide) + 4 * count + 64;
}

static smelt_gq_tile smelt_gq_tile_of(const smelt_gq *p, float *room, int64_t batch, int64_t head, int64_t first) {
  smelt_gq_tile t = {.batch = batch, .head = head, .first = first, .rows = smelt_min(p->row_step, p->rows - first)};
  const int64_t wide = p->panels * SMELT_GEMM_PANEL;
  t.count = t.rows * p->group, t.before = smelt_gq_before(p, batch);
  t.keys = room, t.values = t.keys + SMELT_GQ_BLOCK * p->depth;
  t.scores = t.values + SMELT_GQ_BLOCK * wide;
  t.sums = t.scores + t.count * SMELT_GQ_BLOCK, t.part = t.sums + t.count * wide;
  t.q = t.part + t.count * wide;
  t.tops = t.q + t.count * p->depth, t.totals = t.tops + t.count;
  t.block_tops = t.totals + t.count, t.block_totals = t.block_tops + t.count;
  return t;
}

/* The row of the queries and of the result that row u of a tile is: heads of a group lie side by side. */
SMELT_INLINE int64_t smelt_gq_row(const smelt_gq *p, const smelt_gq_tile *t, int64_t u) {
  return (t->batch * p->rows + t->first + u / p->group) * p->heads + t->head * p->group + u % p->group;
}

/* Where keys or values [from, from + count) lie that are all the past's, or all new, and the floats from one to the next. */
SMELT_INLINE const float *smelt_gq_place(const smelt_gq *p, const smelt_gq_tile *t, const float *past, const float *now, int64_t from,
                                         int64_t *stride) {
  if (from < t->before) {
    *stride = p->depth;
    return past + ((t->batch * p->kv_heads + t->head) * p->past + from) * p->depth;
  }
  *stride = p->kv_heads * p->depth;
  return now + ((t->batch * p->rows + from - t->before) * p->kv_heads + t->head) * p->depth;
}

/* The end of the keys from `from` on that lie in one place, at most `to`. */
SMELT_INLINE int64_t smelt_gq_stretch(const smelt_gq_tile *t, int64_t from, int64_t to) {
  return from < t->before ? smelt_min(to, t->before) : to;
}

/* Up to 16 keys as a panel [depth][16]; columns without a key are zero. */
static void smelt_gq_pack_keys(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count, float *to) {
  if (count < SMELT_GEMM_PANEL) __builtin_memset(to, 0, (size_t)(p->depth * SMELT_GEMM_PANEL) * sizeof(float));
  for (int64_t at = from, end; at < from + count; at = end) {
    int64_t stride;
    const float *keys = smelt_gq_place(p, t, p->past_k, p->k, at, &stride);
    end = smelt_gq_stretch(t, at, from + count);
    smelt_transpose(keys, stride, end - at, p->depth, to + (at - from), SMELT_GEMM_PANEL);
  }
}

/* Values of a block as panels [panel][key][16]; columns beyond the depth are zero. */
static void smelt_gq_pack_values(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count, float *to) {
  for (int64_t at = from, end; at < from + count; at = end) {
    int64_t stride;
    const float *values = smelt_gq_place(p, t, p->past_v, p->v, at, &stride);
    end = smelt_gq_stretch(t, at, from + count);
    for (int64_t key = at; key < end; key++, values += stride)
      for (int64_t j = 0; j < p->panels; j++) {
        float *line = to + (j * count + key - from) * SMELT_GEMM_PANEL;
        const int64_t columns = smelt_min(SMELT_GEMM_PANEL, p->depth - j * SMELT_GEMM_PANEL);
        if (columns == SMELT_GEMM_PANEL) __builtin_memcpy(line, values + j * SMELT_GEMM_PANEL, SMELT_GEMM_PANEL * sizeof(float));
        else
          for (int64_t i = 0; i < SMELT_GEMM_PANEL; i++) line[i] = i < columns ? values[j * SMELT_GEMM_PANEL + i] : 0;
      }
  }
}

/* Scores of a row against `columns` keys (whole vectors), of which it sees `seen`, become powers relative to the largest. */
SMELT_INLINE void smelt_gq_powers(const smelt_gq *p, float *row, int64_t columns, int64_t seen, float *top, float *total) {
  const v_f32 scale = bc_f32(p->scale), cap = bc_f32(p->softcap), none = bc_f32(-__builtin_inff());
  v_f32 most = bc_f32(-__FLT_MAX__), sum = bc_f32(0);
  for (int64_t j = 0; j < columns; j += SMELT_L) {
    v_f32 x = mul_f32(ld_f32(row + j), scale);
    if (p->softcap > 0) x = mul_f32(tanh_f32(x / cap), cap);
    if (j + SMELT_L > seen)
      for (int64_t i = 0; i < SMELT_L; i++) x[i] = j + i < seen ? x[i] : none[i];
    st_f32(row + j, x);
    most = max_f32(most, x);
  }
  *top = hmax_f32(most);
  const v_f32 shift = bc_f32(*top);
  for (int64_t j = 0; j < columns; j += SMELT_L) {
    const v_f32 x = exp_weight_f32(sub_f32(ld_f32(row + j), shift));
    st_f32(row + j, x);
    sum = add_f32(sum, x);
  }
  *total = hsum_f32(sum);
}

/* Where SMELT_L keys lie; beyond the last of the block it is the last again. */
SMELT_INLINE void smelt_gq_few_places(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count, const float **keys) {
  int64_t stride;
  if (count >= SMELT_L && smelt_gq_stretch(t, from, from + SMELT_L) == from + SMELT_L) {
    keys[0] = smelt_gq_place(p, t, p->past_k, p->k, from, &stride);
    for (int64_t i = 1; i < SMELT_L; i++) keys[i] = keys[i - 1] + stride;
    return;
  }
  for (int64_t i = 0; i < SMELT_L; i++) keys[i] = smelt_gq_place(p, t, p->past_k, p->k, from + smelt_min(i, count - 1), &stride);
}

/* Scores of a block for few rows, from where keys are; the past's values, which come next, are prefetched. `keys` is the room of part
 * sums. */
static void smelt_gq_few_block_scores(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count) {
  for (int64_t key = 0; key < count; key += SMELT_L) {
    const float *keys[SMELT_L];
    int64_t stride;
    smelt_gq_few_places(p, t, from + key, count - key, keys);
    const float *values = smelt_gq_place(p, t, p->past_v, p->v, from + key, &stride);
    if (from + key + SMELT_L <= t->before) smelt_gq_prefetch(values, SMELT_L * p->depth);
    smelt_gq_few_scores(t->q, t->count, p->depth, keys, t->keys, t->scores + key, SMELT_GQ_BLOCK);
  }
}

/* Weighed values of a block for few rows. The past's keys of the next block, if it has them all, are prefetched. */
static void smelt_gq_few_block_values(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count) {
  const int64_t wide = p->panels * SMELT_GEMM_PANEL;
  __builtin_memset(t->part, 0, (size_t)(t->count * wide) * sizeof(float));
  for (int64_t at = from, end; at < from + count; at = end) {
    int64_t stride;
    const float *values = smelt_gq_place(p, t, p->past_v, p->v, at, &stride);
    end = smelt_gq_stretch(t, at, smelt_min(at + SMELT_GQ_STEP, from + count));
    if (from + 2 * SMELT_GQ_BLOCK <= t->before)
      smelt_gq_prefetch(smelt_gq_place(p, t, p->past_k, p->k, at + SMELT_GQ_BLOCK, &stride), (end - at) * p->depth);
    const smelt_gq_stretch_of stretch = {t->scores + (at - from), values, SMELT_GQ_BLOCK, stride, end - at, wide};
    smelt_gq_few_values(&stretch, t->count, t->part);
  }
}

/* Rows that are few and of whole panels read keys and values in place. */
SMELT_INLINE int smelt_gq_is_few(const smelt_gq *p, const smelt_gq_tile *t) {
  return t->count <= SMELT_GQ_FEW && p->depth == p->panels * SMELT_GEMM_PANEL;
}

/* A block of keys. */
static void smelt_gq_block(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t count, int first) {
  const int64_t panels = (count + SMELT_GEMM_PANEL - 1) / SMELT_GEMM_PANEL, wide = p->panels * SMELT_GEMM_PANEL;
  const int few = smelt_gq_is_few(p, t);
  if (few) smelt_gq_few_block_scores(p, t, from, count);
  else {
    for (int64_t j = 0; j < panels; j++)
      smelt_gq_pack_keys(p, t, from + j * SMELT_GEMM_PANEL, smelt_min(SMELT_GEMM_PANEL, count - j * SMELT_GEMM_PANEL),
                         t->keys + j * SMELT_GEMM_PANEL * p->depth);
    smelt_gemm_f32(t->q, p->depth, t->keys, p->depth, t->scores, SMELT_GQ_BLOCK, t->count, 0, panels, panels * SMELT_GEMM_PANEL, NULL);
  }
  for (int64_t u = 0; u < t->count; u++) {
    const int64_t seen = smelt_min(count, t->before + t->first + u / p->group + 1 - from);
    smelt_gq_powers(p, t->scores + u * SMELT_GQ_BLOCK, panels * SMELT_GEMM_PANEL, seen, t->block_tops + u, t->block_totals + u);
  }
  if (few) smelt_gq_few_block_values(p, t, from, count);
  else {
    smelt_gq_pack_values(p, t, from, count, t->values);
    smelt_gemm_f32(t->scores, SMELT_GQ_BLOCK, t->values, count, t->part, wide, t->count, 0, p->panels, wide, NULL);
  }
  const smelt_softmax_state seen = {t->block_tops, t->block_totals, t->tops, t->totals};
  smelt_softmax_merge(t->sums, t->part, wide, t->count, seen, first);
}

/* Whether a new value is not finite: zero times it is no number, for rows that do not see it too, as where all is one product. */
static int smelt_gq_unusual(const smelt_gq *p) {
  const int64_t count = p->batch * p->rows * p->kv_heads * p->depth, whole = count / SMELT_L * SMELT_L;
  v_f32 sum = bc_f32(0);
  float rest = 0;
  for (int64_t i = 0; i < whole; i += SMELT_L) sum = add_f32(sum, mul_f32(ld_f32(p->v + i), bc_f32(0)));
  for (int64_t i = whole; i < count; i++) rest += p->v[i] * 0;
  return hsum_f32(sum) + rest != 0;
}

/* Adds the sink to a row's total, and divides. */
SMELT_INLINE void smelt_gq_normalize(const smelt_gq *p, const float *sums, float top, float total, int64_t row) {
  float *y = p->y + row * p->depth;
  float factor = 1;
  if (p->sink) {
    const float drain = p->sink[row % p->heads];
    const smelt_softmax_state both = {(float *)&drain, (float[]){1}, &top, &total};
    const float before = top;
    smelt_softmax_merge(NULL, NULL, 0, 1, both, 0);
    factor = lane0_f32(exp_f32(bc_f32(before - top)));
  }
  for (int64_t i = 0; i < p->depth; i++) y[i] = sums[i] * factor / total;
}

/* Keys [from, to) of the tile, the first block of which begins the sums. */
static void smelt_gq_keys(const smelt_gq *p, const smelt_gq_tile *t, int64_t from, int64_t to) {
  for (int64_t u = 0; u < t->count; u++)
    __builtin_memcpy(t->q + u * p->depth, p->q + smelt_gq_row(p, t, u) * p->depth, (size_t)p->depth * sizeof(float));
  for (int64_t key = from; key < to; key += SMELT_GQ_BLOCK)
    smelt_gq_block(p, t, key, smelt_min(SMELT_GQ_BLOCK, to - key), key == from);
}

/* Floats of a row of a span: its sums, its largest score, its total. */
SMELT_INLINE int64_t smelt_gq_part_floats(const smelt_gq *p) { return p->panels * SMELT_GEMM_PANEL + 2; }
SMELT_INLINE float *smelt_gq_part(const smelt_gq *p, int64_t pair, int64_t span) {
  return p->parts + (pair * p->spans + span) * p->rows * p->group * smelt_gq_part_floats(p);
}

static void smelt_gq_attend(const smelt_gq *p, float *room, int64_t pair, int64_t rest) {
  const int64_t wide = p->panels * SMELT_GEMM_PANEL, span = rest % p->spans;
  const smelt_gq_tile t = smelt_gq_tile_of(p, room, pair / p->kv_heads, pair % p->kv_heads,
                                           (p->row_tasks - 1 - rest / p->spans) * p->row_step); /* the longest come first */
  const int64_t all = t.before + p->rows, seen = p->unusual ? all : t.before + t.first + t.rows;
  if (p->spans == 1) {
    smelt_gq_keys(p, &t, 0, seen);
    for (int64_t u = 0; u < t.count; u++) smelt_gq_normalize(p, t.sums + u * wide, t.tops[u], t.totals[u], smelt_gq_row(p, &t, u));
    return;
  }
  smelt_gq_keys(p, &t, span * SMELT_GQ_SPAN, smelt_min(seen, (span + 1) * SMELT_GQ_SPAN));
  if (span * SMELT_GQ_SPAN >= seen) return;
  for (int64_t u = 0; u < t.count; u++) {
    float *part = smelt_gq_part(p, pair, span) + u * smelt_gq_part_floats(p);
    __builtin_memcpy(part, t.sums + u * wide, (size_t)wide * sizeof(float));
    part[wide] = t.tops[u], part[wide + 1] = t.totals[u];
  }
}

/* The spans of all rows of a batch index and a head, which are merged in rising order into those of the first. */
static void smelt_gq_merge_body(void *context, int64_t pair) {
  const smelt_gq *p = context;
  const int64_t wide = p->panels * SMELT_GEMM_PANEL, batch = pair / p->kv_heads;
  const int64_t all = smelt_gq_before(p, batch) + p->rows;
  smelt_gq_tile t = {.batch = batch, .head = pair % p->kv_heads, .first = 0};
  for (int64_t u = 0; u < p->rows * p->group; u++) {
    float *whole = smelt_gq_part(p, pair, 0) + u * smelt_gq_part_floats(p);
    for (int64_t span = 1; span * SMELT_GQ_SPAN < all; span++) {
      float *part = smelt_gq_part(p, pair, span) + u * smelt_gq_part_floats(p);
      const smelt_softmax_state both = {part + wide, part + wide + 1, whole + wide, whole + wide + 1};
      smelt_softmax_merge(whole, part, wide, 1, both, 0);
    }
    smelt_gq_normalize(p, whole, whole[wide], whole[wide + 1], smelt_gq_row(p, &t, u));
  }
}

/* A cache of one batch index and head: the past's keys unless they are there, the new ones, zeros. */
static void smelt_gq_store(const smelt_gq *p, const float *past, const float *now, float *next, int64_t pair) {
  const int64_t batch = pair / p->kv_heads, before = smelt_gq_before(p, batch), end = before + p->rows, row = p->depth;
  const int shared = next == past;
  float *to = next + pair * p->length * row;
  if (!shared) {
    if (before) __builtin_memcpy(to, past + pair * p->past * row, (size_t)(before * row) * sizeof(float));
    __builtin_memset(to + end * row, 0, (size_t)((p->length - end) * row) * sizeof(float));
  }
  for (int64_t r = 0; r < p->rows; r++)
    __builtin_memcpy(to + (before + r) * row, now + ((batch * p->rows + r) * p->kv_heads + pair % p->kv_heads) * row,
                     (size_t)row * sizeof(float));
}

/* Tasks of attention, then those that write the caches: none reads what another one writes. */
static void smelt_gq_body(void *context, int64_t index) {
  const smelt_gq *p = context;
  const int64_t each = p->row_tasks * p->spans, pairs = p->batch * p->kv_heads;
  if (index < pairs * each) {
    float *room = (float *)smelt_claim(p->task);
    smelt_gq_attend(p, room, index / each, index % each);
    smelt_release(p->task, (char *)room);
    return;
  }
  index -= pairs * each;
  if (p->next_k) smelt_gq_store(p, p->past_k, p->k, p->next_k, index);
  if (p->next_v) smelt_gq_store(p, p->past_v, p->v, p->next_v, index);
}

/* The largest number of keys; what the caches have no place for is an error. */
static int64_t smelt_gq_most_keys(const smelt_gq *p) {
  int64_t most = p->rows;
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t before = smelt_gq_before(p, b);
    if (before < 0 || before > p->past || before + p->rows > p->length) {
      smelt_fail(p->task->env, SMELT_E_INDEX, -1, before, p->past, 0);
      return -1;
    }
    most = smelt_max(most, before + p->rows);
  }
  return most;
}

int32_t SMELT_NAME(smelt_grouped_queries)(smelt_task *t) {
  smelt_gq p = {.task = t, .q = t->b[SMELT_GQ_Q], .k = t->b[SMELT_GQ_K], .v = t->b[SMELT_GQ_V], .past_k = t->b[SMELT_GQ_PAST_K],
                .past_v = t->b[SMELT_GQ_PAST_V], .last = t->b[SMELT_GQ_LAST], .sink = t->b[SMELT_GQ_SINK], .y = t->b[SMELT_GQ_Y],
                .next_k = t->b[SMELT_GQ_NEXT_K], .next_v = t->b[SMELT_GQ_NEXT_V], .parts = t->b[SMELT_GQ_SCRATCH],
                .batch = t->s[SMELT_GS_BATCH], .rows = t->s[SMELT_GS_ROWS], .heads = t->s[SMELT_GS_HEADS],
                .kv_heads = t->s[SMELT_GS_KV_HEADS], .depth = t->s[SMELT_GS_DEPTH], .past = t->s[SMELT_GS_PAST],
                .length = t->s[SMELT_GS_LENGTH], .whole = t->s[SMELT_GS_TOTAL] == t->s[SMELT_GS_ROWS],
                .scale = (float)t->f[SMELT_GF_SCALE], .softcap = (float)t->f[SMELT_GF_SOFTCAP]};
  if (p.batch <= 0 || p.rows <= 0 || p.kv_heads <= 0 || p.depth <= 0) return SMELT_OK;
  const int64_t most = smelt_gq_most_keys(&p), pairs = p.batch * p.kv_heads;
  if (most < 0) return t->env->code;
  p.group = p.heads / p.kv_heads, p.panels = (p.depth + SMELT_GEMM_PANEL - 1) / SMELT_GEMM_PANEL;
  p.unusual = p.rows > 1 && smelt_gq_unusual(&p);
  const int few = p.rows * p.group <= SMELT_GQ_FEW;
  p.spans = few ? (most + SMELT_GQ_SPAN - 1) / SMELT_GQ_SPAN : 1;
  p.row_step = smelt_min(p.rows, smelt_max(1, SMELT_GQ_ROWS / p.group));
  p.row_tasks = (p.rows + p.row_step - 1) / p.row_step;
  if (!p.y) p.row_tasks = 0; /* the caches alone are asked for */
  const int64_t tasks = pairs * p.row_tasks * p.spans;
  if (smelt_reserve(t, tasks, smelt_gq_slot_floats(&p, p.row_step * p.group) * (int64_t)sizeof(float))) return t->env->code;
  t->env->parallel(t->env, tasks + (p.next_k || p.next_v ? pairs : 0), smelt_gq_body, &p);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  if (p.spans > 1 && p.y) t->env->parallel(t->env, pairs, smelt_gq_merge_body, &p);
  return t->env->code;
}

#endif
