/* An 8-bit convolution over an NHWC image, or a product of rows, with its epilogue, as a unit of its own.
 *
 * Input:     a task as int8_layer.h says. A tap is the channels (of a group) of one pixel; of images with few channels it is a whole
 *            line of the kernel (SMELT_LS_LINES), read from a padded copy. Panels have the taps one after the other, each in whole
 *            groups of four bytes.
 * Output:    [batch, OH, OW, groups * columns].
 * Invariant: sums are exact modulo 2^32 on every CPU, and results do not depend on threads. With VNNI rows are read in place, by
 *            pointers to their taps; without, a tile's rows are packed first. Padding is a row of zero points.
 */
#ifndef SMELT_INT8_CONV_UNIT_H
#define SMELT_INT8_CONV_UNIT_H

#include <smelt/int8/int8_direct.h>
#include <smelt/int8/int8_layer.h>
#include <smelt/int8/int8_rows.h>

enum {
  SMELT_INT8_B_BYTES = 20 << 10,  /* of panels that all rows of a task meet before the next: they stay in L1 */
  SMELT_INT8_OFFSETS = 64,        /* of taps, which are known before any row */
  SMELT_INT8_POINTERS = 2048,     /* of its taps */
  SMELT_INT8_TASK_PANELS = 8      /* of a task that shares its rows with others, at least */
};

typedef struct {
  smelt_int8_layer l;
  const uint8_t *x;      /* or its padded copy */
  const uint8_t *zeros;  /* a tap of padding */
  const char *panels;
  int64_t pixel, line, image; /* bytes from one to the next */
  int64_t taps, tap, groups, stride; /* taps of a row, bytes of a tap, groups of four in it; bytes of a panel */
  int64_t rows, block, blocks, across;
  int form, bytes, in_place; /* of rows that are packed */
} smelt_int8_conv;

/* A line of an image in NCHW, pixel by pixel. */
static void smelt_int8_join(const uint8_t *from, int64_t plane, int64_t channels, int64_t pixels, uint8_t *to) {
  if (channels == 3) {
    const uint8_t *a = from, *b = from + plane, *c = b + plane;
    for (int64_t i = 0; i < pixels; i++) to[3 * i] = a[i], to[3 * i + 1] = b[i], to[3 * i + 2] = c[i];
    return;
  }
  for (int64_t c = 0; c < channels; c++)
    for (int64_t i = 0; i < pixels; i++) to[i * channels + c] = from[c * plane + i];
}

/* A line of the padded copy. */
static void smelt_int8_pad_body(void *context, int64_t index) {
  const smelt_int8_conv *c = context;
  const int64_t *s = c->l.s, height = c->image / c->line, y = index % height - s[SMELT_LS_TOP], bytes = s[SMELT_LS_C];
  const int64_t left = smelt_min(s[SMELT_LS_LEFT] * bytes, c->line);
  const int64_t inside = smelt_max(0, smelt_min(s[SMELT_LS_W] * bytes, c->line - left));
  uint8_t *to = (uint8_t *)c->x + index * c->line;
  if (y < 0 || y >= s[SMELT_LS_H]) {
    __builtin_memset(to, c->l.x_zero, (size_t)c->line);
    return;
  }
  const int64_t plane = s[SMELT_LS_H] * s[SMELT_LS_W];
  const uint8_t *image = (const uint8_t *)c->l.task->b[SMELT_LB_X] + index / height * plane * bytes;
  __builtin_memset(to, c->l.x_zero, (size_t)left);
  if (s[SMELT_LS_NCHW]) smelt_int8_join(image + y * s[SMELT_LS_W], plane, bytes, inside / bytes, to + left);
  else __builtin_memcpy(to + left, image + y * s[SMELT_LS_W] * bytes, (size_t)inside);
  __builtin_memset(to + left + inside, c->l.x_zero, (size_t)(c->line - left - inside));
}

/* Pointers to the taps of rows first .. first + rows - 1: [tap][row]. */
static void smelt_int8_point(const smelt_int8_conv *c, int64_t first, int64_t rows, int64_t group, const uint8_t **to) {
  const int64_t *s = c->l.s, plane = s[SMELT_LS_OH] * s[SMELT_LS_OW], lines = s[SMELT_LS_LINES];
  const int64_t wide = lines ? 1 : s[SMELT_LS_KW], sh = s[SMELT_LS_SH], sw = s[SMELT_LS_SW], dh = s[SMELT_LS_DH], dw = s[SMELT_LS_DW];
  const int64_t top = lines ? 0 : s[SMELT_LS_TOP], left = lines ? 0 : s[SMELT_LS_LEFT];
  const uint64_t height = lines ? INT64_MAX : (uint64_t)s[SMELT_LS_H], width = lines ? INT64_MAX : (uint64_t)s[SMELT_LS_W];
  if (c->taps == 1 && !lines && plane == s[SMELT_LS_H] * s[SMELT_LS_W] && sh == 1 && sw == 1 && !top && !left) {
    for (int64_t r = 0; r < rows; r++) to[r] = c->x + (first + r) * c->pixel + group * c->tap; /* every pixel is a row */
    return;
  }
  int64_t offsets[SMELT_INT8_OFFSETS];
  const int few = c->taps <= SMELT_INT8_OFFSETS;
  for (int64_t kh = 0, t = 0; few && kh < s[SMELT_LS_KH]; kh++)
    for (int64_t kw = 0; kw < wide; kw++, t++) offsets[t] = kh * dh * c->line + kw * dw * c->pixel;
  const int64_t taller = (s[SMELT_LS_KH] - 1) * dh, wider = (wide - 1) * dw;
  int64_t n = first / plane, oh = first % plane / s[SMELT_LS_OW], ow = first % s[SMELT_LS_OW];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t y0 = oh * sh - top, x0 = ow * sw - left;
    const uint8_t *corner = c->x + n * c->image + group * c->tap + y0 * c->line + x0 * c->pixel;
    if (few && y0 >= 0 && x0 >= 0 && (uint64_t)(y0 + taller) < height && (uint64_t)(x0 + wider) < width)
      for (int64_t t = 0; t < c->taps; t++) to[t * rows + r] = corner + offsets[t];
    else
      for (int64_t kh = 0, t = 0; kh < s[SMELT_LS_KH]; kh++)
        for (int64_t kw = 0; kw < wide; kw++, t++) {
          const int inside = (uint64_t)(y0 + kh * dh) < height && (uint64_t)(x0 + kw * dw) < width;
          to[t * rows + r] = inside ? corner + kh * dh * c->line + kw * dw * c->pixel : c->zeros;
        }
    if (++ow == s[SMELT_LS_OW]) {
      ow = 0;
      if (++oh == s[SMELT_LS_OH]) oh = 0, n++;
    }
  }
}

/* Sums of a - zero point of each row. */
static void smelt_int8_sum_rows(const smelt_int8_conv *c, const uint8_t *const *pointers, int64_t rows, int32_t *sums) {
  const int64_t bytes = c->tap;
  for (int64_t r = 0; r < rows; r++) {
    int32_t sum = 0;
    for (int64_t t = 0; t < c->taps; t++) {
      const uint8_t *a = pointers[t * rows + r];
      if (c->l.s[SMELT_LS_X_SIGNED])
        for (int64_t i = 0; i < bytes; i++) sum += (int8_t)a[i];
      else
        for (int64_t i = 0; i < bytes; i++) sum += a[i];
    }
    sums[r] = sum - (int32_t)(c->l.x_zero * c->taps * bytes);
  }
}

/* A tile's rows, packed; their sums too. */
static void smelt_int8_pack_taps(const smelt_int8_conv *c, const uint8_t *const *pointers, int64_t block, int64_t tall, char *to,
                                 int32_t *sums) {
  const int is_signed = (int)c->l.s[SMELT_LS_X_SIGNED];
  smelt_int8_source from = {.flip = is_signed ? 128 : 0, .form = c->form, .is_signed = is_signed};
  from.zero = c->l.x_zero + (c->form == SMELT_INT8_WIDE ? 0 : from.flip);
  for (int64_t r = 0; r < tall; r++) {
    sums[r] = 0;
    for (int64_t t = 0; t < c->taps; t++)
      sums[r] += smelt_int8_pack_row(&from, pointers[t * block + r], (uint8_t)c->l.x_zero, c->tap, tall,
                                     to + (t * c->groups * tall + r) * c->bytes);
  }
}

/* Rows of tile i of `tiles` that share `rows` rows evenly. */
SMELT_INLINE int64_t smelt_int8_tile_start(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }

typedef struct {
  const smelt_int8_conv *c;
  const uint8_t *const *pointers;
  const char *packed;      /* rows of all tiles, where they are packed */
  const int32_t *row_sums; /* NULL: not needed */
  int64_t first, rows, tiles, group;
} smelt_int8_rows_of_task;

/* Some panels of one tile; `ahead` is a panel that comes soon, or NULL. */
static void smelt_int8_conv_tile(const smelt_int8_rows_of_task *w, int64_t start, int64_t tall, int64_t panel, int64_t panels,
                                 const char *ahead) {
  const smelt_int8_conv *c = w->c;
  (void)ahead; /* without VNNI */
  int32_t sums[SMELT_INT8_SUMS * SMELT_INT8_LANES] __attribute__((aligned(64)));
  const int64_t fit = SMELT_INT8_PANELS(tall), groups = c->taps * c->groups;
  smelt_int8_place at = {.row = w->first + start, .rows = tall, .columns = c->l.s[SMELT_LS_COLUMNS], .group = w->group};
  at.stride = at.columns * c->l.s[SMELT_LS_GROUPS];
  for (int64_t done = 0; done < panels; done += at.panels) {
    const char *b = c->panels + (w->group * c->l.panels + panel + done) * c->stride;
    at.panels = panels - done >= fit ? fit : 1, at.first = (panel + done) * SMELT_INT8_PANEL;
#ifdef SMELT_INT8_VNNI
    if (c->in_place) {
      const smelt_int8_direct_tiles tiles = c->l.s[SMELT_LS_X_SIGNED] ? smelt_int8_flipped : smelt_int8_direct;
      const smelt_int8_ahead next = {ahead ? ahead : b, ahead ? SMELT_INT8_STEP : 0};
      tiles[tall - 1][at.panels > 1](w->pointers + start, w->rows, c->taps, c->groups, b, c->stride, &next, sums);
    } else
#endif
      (c->form == SMELT_INT8_PAIRS ? smelt_int8_pairs_ : smelt_int8_wide)[tall - 1][at.panels > 1](
          w->packed + start * groups * c->bytes, b, c->stride, groups, sums);
    smelt_int8_store(&c->l.stage, &at, sums, w->row_sums ? w->row_sums + start : NULL, c->l.task->b[SMELT_LB_Y]);
  }
}

static void smelt_int8_conv_body(void *context, int64_t index) {
  const smelt_int8_conv *c = context;
  const int64_t across = index % c->across, block = index / c->across % c->blocks;
  smelt_int8_rows_of_task w = {.c = c, .group = index / c->across / c->blocks};
  w.first = c->rows * block / c->blocks, w.rows = c->rows * (block + 1) / c->blocks - w.first;
  w.tiles = (w.rows + SMELT_INT8_ROWS - 1) / SMELT_INT8_ROWS;
  const int64_t from = across * c->l.panels / c->across, to = (across + 1) * c->l.panels / c->across;
  char *memory = smelt_claim(c->l.task);
  int32_t *row_sums = (int32_t *)memory;
  const uint8_t **pointers = (const uint8_t **)(row_sums + (c->block + 15) / 16 * 16);
  char *packed = (char *)(pointers + (c->block * c->taps + 7) / 8 * 8);
  smelt_int8_point(c, w.first, w.rows, w.group, pointers);
  if (!c->in_place)
    for (int64_t i = 0; i < w.tiles; i++) {
      const int64_t start = smelt_int8_tile_start(w.rows, w.tiles, i), tall = smelt_int8_tile_start(w.rows, w.tiles, i + 1) - start;
      smelt_int8_pack_taps(c, pointers + start, w.rows, tall, packed + start * c->taps * c->groups * c->bytes, row_sums + start);
    }
  else if (c->l.stage.zeros) smelt_int8_sum_rows(c, pointers, w.rows, row_sums);
  w.pointers = pointers, w.packed = packed, w.row_sums = c->l.stage.zeros ? row_sums : NULL;
  const int64_t fit = SMELT_INT8_PANELS(smelt_int8_tile_start(w.rows, w.tiles, 1));
  const int64_t step = smelt_max(1, SMELT_INT8_B_BYTES / (c->stride * fit)) * fit;
  for (int64_t panel = from; panel < to; panel += step)
    for (int64_t i = 0; i < w.tiles; i++) {
      const int64_t start = smelt_int8_tile_start(w.rows, w.tiles, i), next = panel + step + i;
      const char *ahead = step == fit && i < step && next < to ? c->panels + (w.group * c->l.panels + next) * c->stride : NULL;
      smelt_int8_conv_tile(&w, start, smelt_int8_tile_start(w.rows, w.tiles, i + 1) - start, panel, smelt_min(step, to - panel), ahead);
    }
  smelt_release(c->l.task, memory);
}

/* The copy of an image with its padding, from which lines of the kernel are read as one tap each. */
static void smelt_int8_pad(smelt_int8_conv *c) {
  const int64_t *s = c->l.s, height = (s[SMELT_LS_OH] - 1) * s[SMELT_LS_SH] + (s[SMELT_LS_KH] - 1) * s[SMELT_LS_DH] + 1;
  c->line = ((s[SMELT_LS_OW] - 1) * s[SMELT_LS_SW] + s[SMELT_LS_KW]) * s[SMELT_LS_C], c->image = height * c->line;
  c->x = (const uint8_t *)c->l.scratch;
  c->taps = s[SMELT_LS_KH], c->tap = s[SMELT_LS_KW] * s[SMELT_LS_C];
  const smelt_task *t = c->l.task;
  t->env->parallel(t->env, s[SMELT_LS_BATCH] * height, smelt_int8_pad_body, c);
}

/* How rows reach the tiles: in place, or packed in the form that is exact for these panels. */
static void smelt_int8_conv_form(smelt_int8_conv *c) {
  c->in_place = smelt_int8_in_place(), c->form = SMELT_INT8_QUADS, c->bytes = 0;
  if (c->in_place) return;
  int small = SMELT_VEX;
  for (int64_t i = 0; small && i < c->l.panels * c->l.s[SMELT_LS_GROUPS]; i++)
    small = ((const smelt_int8_header *)(c->panels + i * c->stride))->small_pairs;
  c->form = small ? SMELT_INT8_PAIRS : SMELT_INT8_WIDE, c->bytes = smelt_int8_group_bytes(c->form);
}

/* Blocks of rows whose pixels (or packed rows) stay in L2 beside a few panels; where there are fewer than tasks are wanted, smaller ones, then tasks share a block's rows. */
static void smelt_int8_conv_cut(smelt_int8_conv *c, int64_t processors) {
  const int64_t bytes = c->in_place ? c->pixel * c->l.s[SMELT_LS_SH] * c->l.s[SMELT_LS_SW] : c->taps * c->groups * c->bytes;
  const int64_t wanted = processors > 1 ? 4 * processors : 1, tall = SMELT_INT8_ROWS;
  int64_t most = smelt_min(smelt_sizes.near_rows / 2 / smelt_max(1, bytes), SMELT_INT8_POINTERS / c->taps);
  most = smelt_max(tall, most / tall * tall);
  c->blocks = (c->rows + most - 1) / most;
  if (c->blocks * c->l.s[SMELT_LS_GROUPS] < wanted) c->blocks = smelt_max(c->blocks, smelt_min(wanted, c->rows / (4 * tall)));
  c->block = (c->rows + c->blocks - 1) / c->blocks;
  const int64_t tasks = c->blocks * c->l.s[SMELT_LS_GROUPS];
  c->across = smelt_max(1, smelt_min((wanted + tasks - 1) / tasks, c->l.panels / SMELT_INT8_TASK_PANELS));
}

int32_t SMELT_NAME(smelt_int8_conv)(smelt_task *t) {
  const int64_t *s = t->s;
  smelt_int8_conv c = {.l = smelt_int8_layer_of(t), .x = t->b[SMELT_LB_X], .panels = t->b[SMELT_LB_W], .stride = s[SMELT_LS_STEP]};
  c.rows = s[SMELT_LS_BATCH] * s[SMELT_LS_OH] * s[SMELT_LS_OW];
  if (c.rows <= 0 || s[SMELT_LS_COLUMNS] <= 0) return SMELT_OK;
  smelt_int8_conv_form(&c);
  smelt_int8_columns_of(&c.l, c.panels, c.stride, c.form != SMELT_INT8_WIDE);
  c.pixel = s[SMELT_LS_C], c.line = s[SMELT_LS_W] * c.pixel, c.image = s[SMELT_LS_H] * c.line;
  c.taps = s[SMELT_LS_KH] * s[SMELT_LS_KW], c.tap = c.pixel / s[SMELT_LS_GROUPS];
  __builtin_memset(c.l.scratch, c.l.x_zero, (size_t)c.tap + 64);
  c.zeros = (const uint8_t *)c.l.scratch, c.l.scratch += (c.tap + 64 + 63) & ~(int64_t)63;
  if (s[SMELT_LS_LINES]) smelt_int8_pad(&c);
  c.groups = smelt_int8_groups(c.tap);
  smelt_int8_conv_cut(&c, t->env->processors);
  const int64_t pointers = (c.block * c.taps + 7) / 8 * 64, bytes = (c.block + 15) / 16 * 64 + pointers + c.block * c.taps * c.groups * c.bytes;
  const int64_t tasks = s[SMELT_LS_GROUPS] * c.blocks * c.across;
  if (smelt_reserve(t, tasks, (bytes + 63) & ~(int64_t)63)) return t->env->code;
  if (tasks == 1) smelt_int8_conv_body(&c, 0);
  else t->env->parallel(t->env, tasks, smelt_int8_conv_body, &c);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
