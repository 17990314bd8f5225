/* An 8-bit depthwise convolution over an NHWC image with its epilogue, as a unit of its own.
 *
 * Input:     a task as int8_layer.h says, with one group and as many columns as channels. Weights are panels of 16 channels in blocks of
 *            64: vector q of a block has the channels 16 l + 4 q + i (l, i = 0 .. 3), which is the order that interleaving the
 *            bytes of four lines gives. A panel has, for every four lines of the kernel and each of its columns, four weights a channel.
 * Output:    [batch, OH, OW, C].
 * Invariant: sums are exact modulo 2^32 on every CPU. With AVX-512 VNNI, four lines of the image are interleaved once and used for all
 *            columns of the kernel; elsewhere, and for results that are no bytes, channels are summed tap by tap in int32.
 */
#ifndef SMELT_INT8_DEPTHWISE_UNIT_H
#define SMELT_INT8_DEPTHWISE_UNIT_H

#include <smelt/int8/int8_layer.h>

enum { SMELT_INT8_FOUR = 4, SMELT_INT8_BLOCK = 64 /* channels that are computed together */ };

typedef struct {
  smelt_int8_layer l;
  const char *panels;
  const uint8_t *zeros;     /* a pixel of padding */
  const int32_t *weights;   /* [tap][channel], where they are not used as they are packed */
  int64_t stride, fours, wide; /* bytes of a panel; lines of the kernel by four; columns of the image that a line of windows sees */
  int64_t lines, tasks;        /* lines of the result, and tasks that share them */
} smelt_int8_depthwise;

/* The channel of lane i of panel p. */
SMELT_INLINE int64_t smelt_int8_lane(int64_t p, int64_t i) {
  return p / SMELT_INT8_FOUR * SMELT_INT8_BLOCK + i / 4 * 16 + p % SMELT_INT8_FOUR * 4 + i % 4;
}

/* Line y of the image, or NULL for one of padding. */
SMELT_INLINE const uint8_t *smelt_int8_line(const smelt_int8_depthwise *d, int64_t n, int64_t y) {
  const int64_t *s = d->l.s;
  if (y < 0 || y >= s[SMELT_LS_H]) return NULL;
  return (const uint8_t *)d->l.task->b[SMELT_LB_X] + (n * s[SMELT_LS_H] + y) * s[SMELT_LS_W] * s[SMELT_LS_C];
}

#if defined(SMELT_INT8_VNNI) && SMELT_VL == 64
typedef uint8_t smelt_int8_64 __attribute__((vector_size(64), may_alias));

SMELT_INLINE smelt_int8_v smelt_int8_load_masked(const uint8_t *at, uint64_t mask) {
  smelt_int8_v out;
  __asm__("vmovdqu8 %1, %0%{%2%}%{z%}" : "=v"(out) : "m"(*(const char(*)[64])at), "Yk"(mask));
  return out;
}

/* Four lines of one pixel (or three), channel by channel. */
SMELT_INLINE void smelt_int8_interleave(const int four, const uint8_t *const *lines, uint64_t mask, smelt_int8_v flip, smelt_int8_v *to) {
  smelt_int8_v x[4];
  SMELT_INT8_UNROLL for (int i = 0; i < 3 + four; i++) x[i] = smelt_int8_load_masked(lines[i], mask) ^ flip;
  if (!four) x[3] = (smelt_int8_v){0};
  const smelt_int8_v low = SMELT_INT8_TWO("vpunpcklbw", x[0], x[1]), high = SMELT_INT8_TWO("vpunpckhbw", x[0], x[1]);
  const smelt_int8_v low2 = SMELT_INT8_TWO("vpunpcklbw", x[2], x[3]), high2 = SMELT_INT8_TWO("vpunpckhbw", x[2], x[3]);
  to[0] = SMELT_INT8_TWO("vpunpcklwd", low, low2), to[1] = SMELT_INT8_TWO("vpunpckhwd", low, low2);
  to[2] = SMELT_INT8_TWO("vpunpcklwd", high, high2), to[3] = SMELT_INT8_TWO("vpunpckhwd", high, high2);
}

/* Columns of four lines (or three), of which `from` .. `till` - 1 are of the image. */
SMELT_INLINE void smelt_int8_interleave_line(const int four, const smelt_int8_depthwise *d, const uint8_t *const *lines, const int64_t *steps,
                                             uint64_t mask, smelt_int8_v *to) {
  const int64_t *s = d->l.s, left = s[SMELT_LS_LEFT], apart = d->fours * 4;
  const int64_t from = smelt_min(left, d->wide), till = smelt_max(from, smelt_min(d->wide, left + s[SMELT_LS_W]));
  const smelt_int8_v flip = (s[SMELT_LS_X_SIGNED] ? (int32_t)0x80808080 : 0) - (smelt_int8_v){0};
  const uint8_t *const padding[4] = {d->zeros, d->zeros, d->zeros, d->zeros};
  const uint8_t *a = lines[0], *b = lines[1], *c = lines[2], *e = lines[3];
  const int64_t a_step = steps[0], b_step = steps[1], c_step = steps[2], e_step = steps[3];
  for (int64_t x = 0; x < from; x++) smelt_int8_interleave(four, padding, mask, flip, to + x * apart);
  for (int64_t x = from; x < till; x++, a += a_step, b += b_step, c += c_step, e += e_step)
    smelt_int8_interleave(four, (const uint8_t *const[4]){a, b, c, e}, mask, flip, to + x * apart);
  for (int64_t x = till; x < d->wide; x++) smelt_int8_interleave(four, padding, mask, flip, to + x * apart);
}

/* The lines that windows of line `oh` see, four at a time, of the channels of one block: [column][four lines][4 vectors]. */
SMELT_INLINE void smelt_int8_columns(const smelt_int8_depthwise *d, int64_t n, int64_t oh, int64_t channel, uint64_t mask, smelt_int8_v *to) {
  const int64_t *s = d->l.s, first = oh * s[SMELT_LS_SH] - s[SMELT_LS_TOP];
  for (int64_t f = 0; f < d->fours; f++) {
    const uint8_t *lines[4];
    int64_t steps[4];
    for (int64_t i = 0; i < 4; i++) {
      const uint8_t *line = f * 4 + i < s[SMELT_LS_KH] ? smelt_int8_line(d, n, first + (f * 4 + i) * s[SMELT_LS_DH]) : NULL;
      lines[i] = line ? line + channel : d->zeros, steps[i] = line ? s[SMELT_LS_C] : 0;
    }
    if (f * 4 + 3 < s[SMELT_LS_KH]) smelt_int8_interleave_line(1, d, lines, steps, mask, to + f * 4);
    else smelt_int8_interleave_line(0, d, lines, steps, mask, to + f * 4);
  }
}

/* 64 sums, in the order of the vectors, to bytes in the order of the channels. */
SMELT_INLINE void smelt_int8_store_block(const smelt_int8_stage *s, const int is_signed, const int plain, const smelt_int8_v *sums,
                                         const smelt_int8_column *columns, uint64_t mask, uint8_t *to) {
  smelt_int8_v x[4];
  SMELT_INT8_UNROLL for (int q = 0; q < 4; q++) {
    smelt_int8_f scaled = smelt_rounded(__builtin_convertvector(sums[q], smelt_int8_f) * columns[q].scale);
    if (!plain) scaled += columns[q].offset;
    x[q] = smelt_int8_quantized(scaled, &s->range) + s->range.zero;
  }
  const smelt_int8_v low = SMELT_INT8_TWO("vpackssdw", x[0], x[1]), high = SMELT_INT8_TWO("vpackssdw", x[2], x[3]);
  const smelt_int8_v out = is_signed ? SMELT_INT8_TWO("vpacksswb", low, high) : SMELT_INT8_TWO("vpackuswb", low, high);
  __asm__ volatile("vmovdqu8 %1, %0%{%2%}" : "=m"(*(char(*)[64])to) : "v"(out), "Yk"(mask));
}

/* A line of windows of one block. KW and FOURS are constants where the caller's are: then weights stay in registers. */
SMELT_INLINE void smelt_int8_windows(const smelt_int8_depthwise *d, const int64_t KW, const int64_t FOURS, const int is_signed,
                                     const int plain, const char *panels, const smelt_int8_v *columns, int64_t j, uint64_t mask,
                                     uint8_t *to) {
  const int64_t *s = d->l.s, step = s[SMELT_LS_SW] * FOURS * 4, apart = s[SMELT_LS_DW] * FOURS * 4, bytes = s[SMELT_LS_C];
  const smelt_int8_stage stage = d->l.stage;
  const char *const of[4] = {panels, panels + d->stride, panels + 2 * d->stride, panels + 3 * d->stride};
  smelt_int8_column needs[4];
  SMELT_INT8_UNROLL for (int q = 0; q < 4; q++) needs[q] = smelt_int8_column_at(&stage, j + 16 * q);
  for (int64_t ow = s[SMELT_LS_OW]; ow > 0; ow--, columns += step, to += bytes) {
    smelt_int8_v sums[4];
    SMELT_INT8_UNROLL for (int q = 0; q < 4; q++) sums[q] = needs[q].added;
    for (int64_t f = 0; f < FOURS; f++)
      SMELT_INT8_UNROLL for (int64_t k = 0; k < KW; k++)
        SMELT_INT8_UNROLL for (int q = 0; q < 4; q++) {
          const smelt_int8_v four = *(const smelt_int8_vu *)(of[q] + (f * KW + k) * SMELT_INT8_STEP);
          __asm__(SMELT_INT8_DOT : "+v"(sums[q]) : "v"(columns[k * apart + f * 4 + q]), "v"(four));
        }
    smelt_int8_store_block(&stage, is_signed, plain, sums, needs, mask, to);
  }
}

__attribute__((target(SMELT_INT8_VNNI))) static void smelt_int8_depthwise_body(void *context, int64_t index) {
  const smelt_int8_depthwise *d = context;
  const int64_t *s = d->l.s, from = d->lines * index / d->tasks, to = d->lines * (index + 1) / d->tasks, channels = s[SMELT_LS_C];
  smelt_int8_v *columns = (smelt_int8_v *)smelt_claim(d->l.task);
  const int is_signed = d->l.stage.kind == SMELT_Q_INT8, plain = !d->l.stage.offset;
  for (int64_t line = from; line < to; line++)
    for (int64_t c = 0; c < channels; c += SMELT_INT8_BLOCK) {
      const uint64_t mask = channels - c >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << (channels - c)) - 1;
      const char *panels = d->panels + c / 16 * d->stride + sizeof(smelt_int8_header);
      uint8_t *y = (uint8_t *)d->l.task->b[SMELT_LB_Y] + line * s[SMELT_LS_OW] * channels + c;
      smelt_int8_columns(d, line / s[SMELT_LS_OH], line % s[SMELT_LS_OH], c, mask, columns);
      if (s[SMELT_LS_KW] == 3 && d->fours == 1 && plain && !is_signed) smelt_int8_windows(d, 3, 1, 0, 1, panels, columns, c, mask, y);
      else if (is_signed) smelt_int8_windows(d, s[SMELT_LS_KW], d->fours, 1, plain, panels, columns, c, mask, y);
      else smelt_int8_windows(d, s[SMELT_LS_KW], d->fours, 0, plain, panels, columns, c, mask, y);
    }
  smelt_release(d->l.task, (const char *)columns);
}
#endif

/* Weights as int32, less nothing: [tap][channel], in whole panels. */
static void smelt_int8_unpack(const smelt_int8_depthwise *d, int32_t *to) {
  const int64_t *s = d->l.s, padded = d->l.padded;
  for (int64_t p = 0; p < padded / 16; p++)
    for (int64_t i = 0; i < 16; i++)
      for (int64_t kh = 0; kh < s[SMELT_LS_KH]; kh++)
        for (int64_t kw = 0; kw < s[SMELT_LS_KW]; kw++) {
          const int8_t *at = (const int8_t *)d->panels + p * d->stride + sizeof(smelt_int8_header);
          to[(kh * s[SMELT_LS_KW] + kw) * padded + smelt_int8_lane(p, i)] = at[((kh / 4 * s[SMELT_LS_KW] + kw) * 16 + i) * 4 + kh % 4];
        }
}

/* Sums of (a - zero point) * b of 16 channels, and of a - zero point. */
SMELT_INLINE void smelt_int8_pixel(const smelt_int8_depthwise *d, int64_t n, int64_t oh, int64_t ow, int64_t channel, int64_t wide, int32_t *sums) {
  const int64_t *s = d->l.s;
  const int is_signed = (int)s[SMELT_LS_X_SIGNED];
  uint8_t part[SMELT_INT8_PANEL] = {0};
  smelt_int8_v total[SMELT_INT8_VPP], of_a[SMELT_INT8_VPP];
  SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) total[v] = of_a[v] = (smelt_int8_v){0};
  for (int64_t kh = 0; kh < s[SMELT_LS_KH]; kh++) {
    const uint8_t *line = smelt_int8_line(d, n, oh * s[SMELT_LS_SH] - s[SMELT_LS_TOP] + kh * s[SMELT_LS_DH]);
    for (int64_t kw = 0; line && kw < s[SMELT_LS_KW]; kw++) {
      const int64_t x = ow * s[SMELT_LS_SW] - s[SMELT_LS_LEFT] + kw * s[SMELT_LS_DW];
      if (x < 0 || x >= s[SMELT_LS_W]) continue;
      const uint8_t *a = line + x * s[SMELT_LS_C] + channel;
      const int32_t *w = d->weights + (kh * s[SMELT_LS_KW] + kw) * d->l.padded + channel;
      if (wide < SMELT_INT8_PANEL) {
        for (int64_t i = 0; i < wide; i++) part[i] = a[i];
        a = part;
      }
      SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) {
        const smelt_int8_v centred = smelt_int8_widened(a + v * SMELT_INT8_LANES, is_signed) - d->l.x_zero;
        total[v] += centred * *(const smelt_int8_vu *)(w + v * SMELT_INT8_LANES), of_a[v] += centred;
      }
    }
  }
  SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) {
    if (d->l.stage.zeros) total[v] -= of_a[v] * *(const smelt_int8_vu *)(d->l.stage.zeros + channel + v * SMELT_INT8_LANES);
    *(smelt_int8_vu *)(sums + v * SMELT_INT8_LANES) = total[v];
  }
}

/* A line of the result, 16 channels at a time. */
static void smelt_int8_plain_body(void *context, int64_t index) {
  const smelt_int8_depthwise *d = context;
  const int64_t *s = d->l.s, from = d->lines * index / d->tasks, to = d->lines * (index + 1) / d->tasks, channels = s[SMELT_LS_C];
  smelt_int8_stage stage = d->l.stage;
  stage.zeros = NULL; /* subtracted already */
  int32_t sums[SMELT_INT8_PANEL] __attribute__((aligned(64)));
  smelt_int8_place at = {.rows = 1, .panels = 1, .columns = channels, .stride = channels};
  for (int64_t line = from; line < to; line++)
    for (int64_t ow = 0; ow < s[SMELT_LS_OW]; ow++)
      for (int64_t c = 0; c < channels; c += SMELT_INT8_PANEL) {
        smelt_int8_pixel(d, line / s[SMELT_LS_OH], line % s[SMELT_LS_OH], ow, c, smelt_min(SMELT_INT8_PANEL, channels - c), sums);
        at.row = line * s[SMELT_LS_OW] + ow, at.first = c;
        smelt_int8_store(&stage, &at, sums, NULL, d->l.task->b[SMELT_LB_Y]);
      }
}

/* What each column needs, from the order of the channels to that of the vectors; and the other way round the sums of the panels. */
static __attribute__((unused)) void smelt_int8_permute(smelt_int8_depthwise *d) {
  int32_t *arrays[3] = {(int32_t *)d->l.stage.added, (int32_t *)d->l.stage.scale, (int32_t *)d->l.stage.offset};
  for (int64_t a = 0; a < 3; a++)
    for (int64_t block = 0; arrays[a] && block < d->l.padded; block += SMELT_INT8_BLOCK) {
      int32_t plain[SMELT_INT8_BLOCK];
      __builtin_memcpy(plain, arrays[a] + block, sizeof plain);
      for (int64_t i = 0; i < SMELT_INT8_BLOCK; i++) arrays[a][block + i] = plain[smelt_int8_lane(i / 16, i % 16)];
    }
}

/* The zero point of x, for the sums of bytes: panels have their sums in the order of the vectors. */
static __attribute__((unused)) void smelt_int8_subtract_zero(smelt_int8_depthwise *d) {
  const int32_t x_zero = d->l.x_zero + (d->l.s[SMELT_LS_X_SIGNED] ? 128 : 0);
  int32_t *added = (int32_t *)d->l.stage.added;
  for (int64_t i = 0; i < d->l.padded; i++) {
    const smelt_int8_header *header = (const smelt_int8_header *)(d->panels + i / 16 * d->stride);
    added[i] = (int32_t)((uint32_t)added[i] - (uint32_t)x_zero * (uint32_t)header->sums[i % 16]);
  }
}

int32_t SMELT_NAME(smelt_int8_depthwise)(smelt_task *t) {
  const int64_t *s = t->s;
  smelt_int8_depthwise d = {.l = smelt_int8_layer_of(t), .panels = t->b[SMELT_LB_W], .stride = s[SMELT_LS_STEP]};
  d.lines = s[SMELT_LS_BATCH] * s[SMELT_LS_OH], d.fours = (s[SMELT_LS_KH] + 3) / 4;
  if (d.lines <= 0 || s[SMELT_LS_OW] <= 0 || s[SMELT_LS_C] <= 0) return SMELT_OK;
  d.l.padded = (s[SMELT_LS_C] + SMELT_INT8_BLOCK - 1) / SMELT_INT8_BLOCK * SMELT_INT8_BLOCK, d.l.panels = d.l.padded / 16;
  smelt_int8_columns_of(&d.l, d.panels, d.stride, 0);
  __builtin_memset(d.l.scratch, d.l.x_zero, SMELT_INT8_BLOCK);
  d.zeros = (const uint8_t *)d.l.scratch, d.l.scratch += SMELT_INT8_BLOCK;
  const int64_t wanted = t->env->processors > 1 ? 4 * t->env->processors : 1;
  d.tasks = smelt_min(d.lines, wanted), d.wide = (s[SMELT_LS_OW] - 1) * s[SMELT_LS_SW] + (s[SMELT_LS_KW] - 1) * s[SMELT_LS_DW] + 1;
  smelt_body body = smelt_int8_plain_body;
#if defined(SMELT_INT8_VNNI) && SMELT_VL == 64
  if (smelt_int8_in_place() && d.l.stage.kind >= SMELT_Q_UINT8 && !d.l.stage.zeros && !d.l.stage.residual) {
    body = smelt_int8_depthwise_body;
    smelt_int8_permute(&d), smelt_int8_subtract_zero(&d);
    if (smelt_reserve(t, d.tasks, d.wide * d.fours * 256)) return t->env->code;
  }
#endif
  if (body == smelt_int8_plain_body) {
    d.weights = (const int32_t *)d.l.scratch;
    smelt_int8_unpack(&d, (int32_t *)d.l.scratch);
  }
  if (d.tasks == 1) body(&d, 0);
  else t->env->parallel(t->env, d.tasks, body, &d);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
