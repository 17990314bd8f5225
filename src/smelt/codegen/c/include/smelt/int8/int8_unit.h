/* An 8-bit matrix product with what follows it, as a unit of its own.
 *
 * Input:     smelt_task: b and s as the enums below count them. A is [rows, K], B [K, N] or packed; zero points, scales and bias
 *            may be absent (scales of A and B only where the result is int32); those of A are one or one for each row, those of B
 *            and the bias one or one for each column.
 * Output:    [rows, N]: int32 sums of (a - a0) * (b - b0); as float32, times the scales, plus bias; or quantized to uint8 or int8,
 *            rounded half to even after the zero point was added.
 * Invariant: sums are exact modulo 2^32 on every CPU, and results do not depend on threads.
 */
#ifndef SMELT_INT8_UNIT_H
#define SMELT_INT8_UNIT_H

#include <smelt/int8/int8_rows.h>

enum { SMELT_QB_A, SMELT_QB_B, SMELT_QB_A_ZERO, SMELT_QB_B_ZERO, SMELT_QB_A_SCALE, SMELT_QB_B_SCALE, SMELT_QB_BIAS, SMELT_QB_Y_SCALE,
       SMELT_QB_Y_ZERO, SMELT_QB_Y, SMELT_QB_SCRATCH };
enum { SMELT_QS_ROWS, SMELT_QS_K, SMELT_QS_N, SMELT_QS_A_SIGNED, SMELT_QS_B_SIGNED, SMELT_QS_PACKED, SMELT_QS_RESULT,
       SMELT_QS_A_ZEROS, SMELT_QS_B_ZEROS, SMELT_QS_A_SCALES, SMELT_QS_B_SCALES, SMELT_QS_BIASES };
enum { SMELT_Q_INT32, SMELT_Q_FLOAT, SMELT_Q_UINT8, SMELT_Q_INT8 };

enum {
  SMELT_INT8_BLOCK_ROWS = 96,  /* of a task at most */
  SMELT_INT8_LEAST_PANELS = 8, /* of a task that shares its rows with others, since each packs them */
  SMELT_INT8_WIDEST = 8        /* panels of a tile */
};

typedef float smelt_int8_f __attribute__((vector_size(SMELT_VL), may_alias));
typedef float smelt_int8_fu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));

typedef struct {
  const smelt_task *task;
  smelt_int8_source source; /* of A; its zero is that of the first row */
  smelt_int8_tiles tiles;
  const char *panels;
  int64_t rows, K, N, groups, stride, count; /* of panels */
  int64_t block, blocks, across;             /* rows of a task, such blocks, tasks that share one */
} smelt_int8_product;

/* What the sums of some columns still need. */
typedef struct {
  int32_t zero[SMELT_INT8_WIDEST * SMELT_INT8_PANEL]; /* of B, as its bytes are packed */
  float scale[SMELT_INT8_WIDEST * SMELT_INT8_PANEL], bias[SMELT_INT8_WIDEST * SMELT_INT8_PANEL];
} smelt_int8_columns;

SMELT_INLINE int32_t smelt_int8_byte(const void *at, int64_t i, int is_signed) {
  return at ? is_signed ? ((const int8_t *)at)[i] : ((const uint8_t *)at)[i] : 0;
}

/* Floats of some columns: one for all, or one for each of the `count` from `first` on; the last is repeated beyond them. */
SMELT_INLINE void smelt_int8_load_floats(const float *from, int64_t many, int64_t first, int64_t count, int64_t panels, float *to) {
  if (many == 1)
    for (int64_t j = 0; j < panels * SMELT_INT8_PANEL; j += SMELT_INT8_LANES) *(smelt_int8_fu *)(to + j) = *from - (smelt_int8_f){0};
  else
    for (int64_t j = 0; j < panels * SMELT_INT8_PANEL; j++) to[j] = from[first + smelt_min(j, count - 1)];
}

static void smelt_int8_load_columns(const smelt_int8_product *p, int64_t panel, int64_t panels, smelt_int8_columns *out) {
  const smelt_task *t = p->task;
  const int64_t first = panel * SMELT_INT8_PANEL, count = smelt_min(panels * SMELT_INT8_PANEL, p->N - first);
  const int is_signed = (int)t->s[SMELT_QS_B_SIGNED];
  const int32_t flip = is_signed ? 0 : 128, zero = smelt_int8_byte(t->b[SMELT_QB_B_ZERO], 0, is_signed) - flip;
  if (t->s[SMELT_QS_B_ZEROS] == 1)
    for (int64_t j = 0; j < panels * SMELT_INT8_PANEL; j += SMELT_INT8_LANES) *(smelt_int8_vu *)(out->zero + j) = zero - (smelt_int8_v){0};
  else
    for (int64_t j = 0; j < panels * SMELT_INT8_PANEL; j++)
      out->zero[j] = smelt_int8_byte(t->b[SMELT_QB_B_ZERO], first + smelt_min(j, count - 1), is_signed) - flip;
  if (t->b[SMELT_QB_B_SCALE])
    smelt_int8_load_floats(t->b[SMELT_QB_B_SCALE], t->s[SMELT_QS_B_SCALES], first, count, panels, out->scale);
  if (t->b[SMELT_QB_BIAS]) smelt_int8_load_floats(t->b[SMELT_QB_BIAS], t->s[SMELT_QS_BIASES], first, count, panels, out->bias);
}

/* The scale of a row's sums, but for that of each column. */
SMELT_INLINE float smelt_int8_row_scale(const smelt_task *t, int64_t row) {
  const float *scale = t->b[SMELT_QB_A_SCALE];
  return scale ? scale[t->s[SMELT_QS_A_SCALES] > 1 ? row : 0] : 1;
}

/* Sums of one vector of a row as numbers, scaled. */
SMELT_INLINE smelt_int8_f smelt_int8_scaled(smelt_int8_v sums, float row_scale, const float *scale, const smelt_task *t) {
  smelt_int8_f factor = row_scale * *(const smelt_int8_fu *)scale;
  if (t->b[SMELT_QB_Y_SCALE]) factor = smelt_rounded(factor) / *(const float *)t->b[SMELT_QB_Y_SCALE];
  return smelt_rounded(__builtin_convertvector(sums, smelt_int8_f) * factor);
}

/* Rounded half to even and kept in the range of the result's type; NaN becomes its least value. */
SMELT_INLINE smelt_int8_v smelt_int8_quantized(smelt_int8_f x, int is_signed, int32_t zero) {
  const float low = is_signed ? -128 : 0, high = is_signed ? 127 : 255, whole = 12582912; /* 1.5 * 2^23 */
  x += (float)zero;
  smelt_int8_v above = x > low - (smelt_int8_f){0};
  x = (smelt_int8_f)(((smelt_int8_v)x & above) | ((smelt_int8_v)(low - (smelt_int8_f){0}) & ~above));
  smelt_int8_v below = x < high - (smelt_int8_f){0};
  x = (smelt_int8_f)(((smelt_int8_v)x & below) | ((smelt_int8_v)(high - (smelt_int8_f){0}) & ~below));
  return __builtin_convertvector(smelt_rounded(x + whole) - whole, smelt_int8_v);
}

/* One panel of one row of sums to where it belongs. */
SMELT_INLINE void smelt_int8_epilogue(const smelt_int8_product *p, int64_t row, int64_t panel, int32_t *sums, int32_t a_sum,
                                    int32_t a_zero, const smelt_int8_columns *columns, int64_t at) {
  const smelt_task *t = p->task;
  const smelt_int8_header *header = (const smelt_int8_header *)(p->panels + panel * p->stride);
  const int64_t result = t->s[SMELT_QS_RESULT], first = panel * SMELT_INT8_PANEL, size = result == SMELT_Q_INT32 || result == SMELT_Q_FLOAT ? 4 : 1;
  const int64_t wide = smelt_min(SMELT_INT8_PANEL, p->N - first);
  const float row_scale = smelt_int8_row_scale(t, row);
  for (int j = 0; j < SMELT_INT8_PANEL; j += SMELT_INT8_LANES) {
    smelt_int8_v sum = *(smelt_int8_vu *)(sums + j) - *(const smelt_int8_vu *)(columns->zero + at + j) * a_sum;
    if (p->source.form != SMELT_INT8_WIDE) sum -= *(const smelt_int8_vu *)(header->sums + j) * a_zero;
    if (result != SMELT_Q_INT32) {
      smelt_int8_f x = smelt_int8_scaled(sum, row_scale, columns->scale + at + j, t);
      if (t->b[SMELT_QB_BIAS]) x += *(const smelt_int8_fu *)(columns->bias + at + j);
      sum = (smelt_int8_v)x;
      if (result != SMELT_Q_FLOAT)
        sum = smelt_int8_quantized(x, result == SMELT_Q_INT8, smelt_int8_byte(t->b[SMELT_QB_Y_ZERO], 0, result == SMELT_Q_INT8));
    }
    *(smelt_int8_vu *)(sums + j) = sum;
  }
  char *y = (char *)t->b[SMELT_QB_Y] + (row * p->N + first) * size;
  if (size == 1)
    for (int64_t j = 0; j < wide; j++) y[j] = (char)sums[j];
  else if (wide == SMELT_INT8_PANEL) __builtin_memcpy(y, sums, SMELT_INT8_PANEL * 4);
  else __builtin_memcpy(y, sums, (size_t)wide * 4);
}

SMELT_INLINE smelt_int8_source smelt_int8_row_source(const smelt_int8_product *p, int64_t row) {
  smelt_int8_source from = p->source;
  const smelt_task *t = p->task;
  from.zero = smelt_int8_byte(t->b[SMELT_QB_A_ZERO], t->s[SMELT_QS_A_ZEROS] > 1 ? row : 0, from.is_signed);
  if (from.form != SMELT_INT8_WIDE) from.zero += from.flip;
  return from;
}

/* Rows of a tile that starts at row i of a block of `rows`. */
SMELT_INLINE int64_t smelt_int8_tile_rows(int64_t rows, int64_t i) { return smelt_min(SMELT_INT8_ROWS, rows - i); }

/* Packs a block; `sums` and `zeros` are those of its rows. */
static void smelt_int8_pack_rows(const smelt_int8_product *p, int64_t first, int64_t rows, char *packed, int32_t *sums, int32_t *zeros) {
  const uint8_t *a = p->task->b[SMELT_QB_A];
  const int64_t bytes = smelt_int8_group_bytes(p->source.form);
  for (int64_t i = 0; i < rows; i += SMELT_INT8_ROWS) {
    const int64_t tall = smelt_int8_tile_rows(rows, i);
    for (int64_t r = 0; r < tall; r++) {
      const int64_t row = first + i + r;
      const smelt_int8_source from = smelt_int8_row_source(p, row);
      const uint8_t fill = (uint8_t)(from.form == SMELT_INT8_WIDE ? from.zero : from.zero ^ from.flip);
      zeros[i + r] = from.zero;
      sums[i + r] = smelt_int8_pack_row(&from, a + row * p->K, fill, p->K, tall, packed + (i * p->groups + r) * bytes);
    }
  }
}

/* Some panels of one tile of rows. */
SMELT_INLINE void smelt_int8_compute(const smelt_int8_product *p, int64_t first, int64_t i, int64_t tall, int64_t panel, int64_t panels,
                                     const char *packed, const int32_t *a_sums, const int32_t *a_zeros,
                                     const smelt_int8_columns *columns) {
  int32_t sums[SMELT_INT8_SUMS * SMELT_INT8_LANES] __attribute__((aligned(64)));
  const int64_t fit = SMELT_INT8_PANELS(tall);
  const char *rows = packed + i * p->groups * smelt_int8_group_bytes(p->source.form);
  for (int64_t done = 0; done < panels;) {
    const int64_t some = panels - done >= fit ? fit : 1;
    p->tiles[tall - 1][some > 1](rows, p->panels + (panel + done) * p->stride, p->stride, p->groups, sums);
    for (int64_t r = 0; r < tall; r++)
      for (int64_t j = 0; j < some; j++)
        smelt_int8_epilogue(p, first + i + r, panel + done + j, sums + (r * some + j) * SMELT_INT8_PANEL, a_sums[i + r], a_zeros[i + r],
                          columns, (done + j) * SMELT_INT8_PANEL);
    done += some;
  }
}

static void smelt_int8_body(void *context, int64_t index) {
  const smelt_int8_product *p = context;
  const int64_t first = index / p->across * p->block, rows = smelt_min(p->block, p->rows - first);
  const int64_t from = index % p->across * p->count / p->across, to = (index % p->across + 1) * p->count / p->across;
  char *memory = smelt_claim(p->task);
  int32_t *sums = (int32_t *)memory, *zeros = sums + SMELT_INT8_BLOCK_ROWS;
  char *packed = (char *)(zeros + SMELT_INT8_BLOCK_ROWS);
  smelt_int8_columns columns;
  smelt_int8_pack_rows(p, first, rows, packed, sums, zeros);
  const int64_t step = SMELT_INT8_PANELS(smelt_min(rows, SMELT_INT8_ROWS));
  for (int64_t panel = from; panel < to; panel += step) {
    const int64_t panels = smelt_min(step, to - panel);
    smelt_int8_load_columns(p, panel, panels, &columns);
    for (int64_t i = 0; i < rows; i += SMELT_INT8_ROWS)
      smelt_int8_compute(p, first, i, smelt_int8_tile_rows(rows, i), panel, panels, packed, sums, zeros, &columns);
  }
  smelt_release(p->task, memory);
}

static void smelt_int8_pack_body(void *context, int64_t panel) {
  const smelt_int8_product *p = context;
  const smelt_task *t = p->task;
  smelt_int8_pack_panel(t->b[SMELT_QB_B], (int)t->s[SMELT_QS_B_SIGNED], p->K, p->N, panel, (char *)p->panels + panel * p->stride);
}

/* The form of a step: the fastest that is exact on this CPU for these panels. */
static void smelt_int8_choose(smelt_int8_product *p) {
  int small = SMELT_VEX;
  for (int64_t i = 0; small && i < p->count; i++) small = ((const smelt_int8_header *)(p->panels + i * p->stride))->small_pairs;
  p->source.form = smelt_int8_packed_form(small), p->tiles = smelt_int8_packed_tiles(p->source.form);
#ifdef SMELT_INT8_VNNI
  if (smelt_has(SMELT_INT8_VNNI_CPU)) p->source.form = SMELT_INT8_QUADS, p->tiles = smelt_int8_quads;
#endif
#ifdef SMELT_INT8_BYTES /* by tests: the portable step of the byte forms is exact for any panels */
  p->source.form = SMELT_INT8_PAIRS, p->tiles = smelt_int8_pairs_;
#endif
}

/* Blocks of rows first; where there are fewer than tasks are wanted, tasks share the rows of a block. */
static void smelt_int8_cut(smelt_int8_product *p, int64_t processors) {
  const int64_t row_bytes = p->groups * smelt_int8_group_bytes(p->source.form), rows = SMELT_INT8_ROWS;
  const int64_t most = smelt_max(1, smelt_min(SMELT_INT8_BLOCK_ROWS, smelt_sizes.int8_block_bytes / smelt_max(1, row_bytes)) / rows) * rows;
  const int64_t wanted = processors > 1 ? 4 * processors : 1;
  p->blocks = (p->rows + most - 1) / most;
  p->block = ((p->rows + p->blocks - 1) / p->blocks + rows - 1) / rows * rows;
  p->blocks = (p->rows + p->block - 1) / p->block;
  p->across = smelt_max(1, smelt_min((wanted + p->blocks - 1) / p->blocks, p->count / SMELT_INT8_LEAST_PANELS));
}

int32_t SMELT_NAME(smelt_int8_product)(smelt_task *t) {
  smelt_int8_product p = {.task = t, .rows = t->s[SMELT_QS_ROWS], .K = t->s[SMELT_QS_K], .N = t->s[SMELT_QS_N]};
  if (p.rows <= 0 || p.N <= 0) return SMELT_OK;
  p.source = (smelt_int8_source){.flip = t->s[SMELT_QS_A_SIGNED] ? 128 : 0, .is_signed = (int)t->s[SMELT_QS_A_SIGNED]};
  p.groups = smelt_int8_groups(p.K), p.stride = smelt_int8_stride(p.K);
  p.count = (p.N + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL;
  p.panels = t->s[SMELT_QS_PACKED] ? t->b[SMELT_QB_B] : t->b[SMELT_QB_SCRATCH];
  if (!t->s[SMELT_QS_PACKED]) t->env->parallel(t->env, p.count, smelt_int8_pack_body, &p);
  smelt_int8_choose(&p);
  smelt_int8_cut(&p, t->env->processors);
  const int64_t bytes = SMELT_INT8_BLOCK_ROWS * 8 + p.block * p.groups * smelt_int8_group_bytes(p.source.form);
  if (smelt_reserve(t, p.blocks * p.across, (bytes + 63) & ~(int64_t)63)) return t->env->code;
  if (p.blocks * p.across == 1) smelt_int8_body(&p, 0);
  else t->env->parallel(t->env, p.blocks * p.across, smelt_int8_body, &p);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
