/* Stacks of 8-bit products whose right matrices come at run time, quantized again, as a unit of its own: attention's products.
 *
 * Input:     smelt_task: b and s as the enums below count them: A [stack, M, K], B [stack, K, N] or (transposed) [stack, N, K], one
 *            scale and zero point of each and of the result.
 * Output:    [stack, M, N] bytes.
 * Invariant: sums are exact modulo 2^32 on every CPU. Each matrix of a stack is a task, which packs its B; the product is that of
 *            int8_conv.h.
 */
#ifndef SMELT_INT8_STACK_UNIT_H
#define SMELT_INT8_STACK_UNIT_H

#include <smelt/int8/int8_matrix.h>

enum { SMELT_KB_A, SMELT_KB_B, SMELT_KB_A_SCALE, SMELT_KB_A_ZERO, SMELT_KB_B_SCALE, SMELT_KB_B_ZERO, SMELT_KB_Y_SCALE, SMELT_KB_Y_ZERO,
       SMELT_KB_Y };
enum { SMELT_KS_STACK, SMELT_KS_M, SMELT_KS_K, SMELT_KS_N, SMELT_KS_A_SIGNED, SMELT_KS_B_SIGNED, SMELT_KS_TRANSPOSED, SMELT_KS_RESULT };

typedef struct {
  const smelt_task *task;
  int64_t stride, panels, groups; /* bytes of a panel; panels; groups of four of K */
  int64_t packed, columns, rows;  /* bytes of a task's memory: panels, what columns need, rows that are filled up */
} smelt_int8_stack;

/* Groups of a panel from rows of B, four at a time; where there are fewer, or fewer than 16 columns, the rest is `fill`. */
static void smelt_int8_panel_of_rows(const uint8_t *b, int64_t depth, int64_t step, int64_t columns, uint8_t fill, uint32_t flip, char *to) {
  uint8_t part[4][SMELT_INT8_PANEL];
  for (int64_t k = 0; k < depth; k += SMELT_INT8_GROUP, to += SMELT_INT8_STEP) {
    smelt_int8_v four[SMELT_INT8_VPP];
    SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) four[v] = (smelt_int8_v){0};
    SMELT_INT8_UNROLL for (int i = 0; i < 4; i++) {
      const uint8_t *row = b + (k + i) * step;
      if (columns < SMELT_INT8_PANEL || k + i >= depth) {
        __builtin_memset(part[i], fill, SMELT_INT8_PANEL);
        for (int64_t j = 0; k + i < depth && j < columns; j++) part[i][j] = row[j];
        row = part[i];
      }
      SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) four[v] |= smelt_int8_widened(row + v * SMELT_INT8_LANES, 0) << (8 * i);
    }
    SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++)
      *(smelt_int8_vu *)(to + v * SMELT_VL) = four[v] ^ (int32_t)flip;
  }
}

/* The same from rows of B transposed: each has the four bytes of a column side by side. */
static void smelt_int8_panel_of_columns(const uint8_t *b, int64_t depth, int64_t step, int64_t columns, uint8_t fill, uint32_t flip, char *to) {
  for (int64_t j = 0; j < SMELT_INT8_PANEL; j++) {
    const uint8_t *column = b + smelt_min(j, columns - 1) * step;
    uint32_t *at = (uint32_t *)to + j;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, at += SMELT_INT8_PANEL) {
      uint32_t four;
      __builtin_memcpy(&four, column + k, 4);
      *at = four ^ flip;
    }
    if (k == depth) continue;
    uint8_t last[4] = {fill, fill, fill, fill};
    for (int64_t i = k; i < depth; i++) last[i - k] = column[i];
    uint32_t four;
    __builtin_memcpy(&four, last, 4);
    *at = four ^ flip;
  }
}

/* Sums of the signed bytes of each column, which the header has. */
static void smelt_int8_head_panel(char *panel, int64_t groups) {
  smelt_int8_header header = {.small_pairs = 0};
  smelt_int8_i16 sums = {0};
  for (int64_t g = 0; g < groups; g++) {
    const smelt_int8_i16 four = *(const smelt_int8_i16 *)(panel + sizeof header + g * SMELT_INT8_STEP);
    sums += (four << 24 >> 24) + (four << 16 >> 24) + (four << 8 >> 24) + (four >> 24);
  }
  __builtin_memcpy(header.sums, &sums, sizeof header.sums);
  __builtin_memcpy(panel, &header, sizeof header);
}

static void smelt_int8_pack_matrix(const smelt_int8_stack *k, const uint8_t *b, char *to) {
  const int64_t *s = k->task->s, N = s[SMELT_KS_N], K = s[SMELT_KS_K];
  const uint8_t fill = s[SMELT_KS_B_SIGNED] ? 0 : 128; /* 0 as it is packed */
  const uint32_t flip = s[SMELT_KS_B_SIGNED] ? 0 : 0x80808080u;
  for (int64_t p = 0; p < k->panels; p++, to += k->stride) {
    const int64_t first = p * SMELT_INT8_PANEL, columns = smelt_min(SMELT_INT8_PANEL, N - first);
    char *groups = to + sizeof(smelt_int8_header);
    if (s[SMELT_KS_TRANSPOSED]) smelt_int8_panel_of_columns(b + first * K, K, K, columns, fill, flip, groups);
    else smelt_int8_panel_of_rows(b + first, K, N, columns, fill, flip, groups);
    smelt_int8_head_panel(to, k->groups);
  }
}

/* Rows of A in whole groups: what is missing counts as the zero point. */
static const uint8_t *smelt_int8_fill_rows(const smelt_int8_stack *k, const uint8_t *a, uint8_t *to) {
  const int64_t *s = k->task->s, K = s[SMELT_KS_K], wide = k->groups * SMELT_INT8_GROUP;
  if (K == wide) return a;
  const int32_t zero = smelt_int8_byte(k->task->b[SMELT_KB_A_ZERO], 0, (int)s[SMELT_KS_A_SIGNED]);
  for (int64_t r = 0; r < s[SMELT_KS_M]; r++, a += K) {
    __builtin_memcpy(to + r * wide, a, (size_t)K);
    for (int64_t i = K; i < wide; i++) to[r * wide + i] = (uint8_t)zero;
  }
  return to;
}

static smelt_int8_conv smelt_int8_conv_of(const smelt_int8_stack *k, smelt_int8_matrix *m) {
  const int64_t *s = k->task->s;
  smelt_int8_numbers_of(k->task, m, s[SMELT_KS_M], k->groups * SMELT_INT8_GROUP, s[SMELT_KS_N], k->stride, s[SMELT_KS_RESULT]);
  m->s[SMELT_LS_X_SIGNED] = s[SMELT_KS_A_SIGNED], m->s[SMELT_LS_W_SIGNED] = s[SMELT_KS_B_SIGNED];
  return smelt_int8_conv_of_rows(m);
}

static void smelt_int8_stack_body(void *context, int64_t index) {
  const smelt_int8_stack *k = context;
  const int64_t *s = k->task->s, M = s[SMELT_KS_M], K = s[SMELT_KS_K], N = s[SMELT_KS_N];
  void *const *b = k->task->b;
  char *memory = smelt_claim(k->task), *columns = memory + k->packed, *rows = columns + k->columns;
  smelt_int8_pack_matrix(k, (const uint8_t *)b[SMELT_KB_B] + index * K * N, memory);
  smelt_int8_matrix m = {.b = {[SMELT_LB_W] = memory, [SMELT_LB_X_SCALE] = b[SMELT_KB_A_SCALE], [SMELT_LB_X_ZERO] = b[SMELT_KB_A_ZERO],
                               [SMELT_LB_W_SCALE] = b[SMELT_KB_B_SCALE], [SMELT_LB_W_ZERO] = b[SMELT_KB_B_ZERO],
                               [SMELT_LB_Y_SCALE] = b[SMELT_KB_Y_SCALE], [SMELT_LB_Y_ZERO] = b[SMELT_KB_Y_ZERO],
                               [SMELT_LB_SCRATCH] = columns}};
  m.b[SMELT_LB_X] = (void *)smelt_int8_fill_rows(k, (const uint8_t *)b[SMELT_KB_A] + index * M * K, (uint8_t *)rows);
  m.b[SMELT_LB_Y] = (uint8_t *)b[SMELT_KB_Y] + index * M * N;
  smelt_int8_conv c = smelt_int8_conv_of(k, &m);
  smelt_int8_rows_times(&c, rows + k->rows);
  smelt_release(k->task, memory);
}

int32_t SMELT_NAME(smelt_int8_stack)(smelt_task *t) {
  const int64_t *s = t->s, M = s[SMELT_KS_M], K = s[SMELT_KS_K], N = s[SMELT_KS_N];
  if (s[SMELT_KS_STACK] <= 0 || M <= 0 || N <= 0) return SMELT_OK;
  smelt_int8_stack k = {.task = t, .stride = smelt_int8_stride(K), .groups = smelt_int8_groups(K)};
  k.panels = (N + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL;
  const int64_t wide = k.groups * SMELT_INT8_GROUP;
  k.packed = k.panels * k.stride;
  k.columns = smelt_int8_columns_bytes(k.panels, wide);
  k.rows = K == wide ? 0 : (M * wide + 2 * 64) & ~(int64_t)63;
  smelt_int8_matrix m = {.b = {NULL}};
  smelt_int8_conv c = smelt_int8_conv_of(&k, &m);
  c.pixel = wide, smelt_int8_conv_taps(&c), smelt_int8_conv_cut(&c, 1);
  if (smelt_reserve(t, s[SMELT_KS_STACK], k.packed + k.columns + k.rows + smelt_int8_conv_bytes(&c))) return t->env->code;
  if (s[SMELT_KS_STACK] == 1) smelt_int8_stack_body(&k, 0);
  else t->env->parallel(t->env, s[SMELT_KS_STACK], smelt_int8_stack_body, &k);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
