/* An 8-bit convolution over an NHWC image, or a product of rows, with its epilogue.
 *
 * Input:     a task as int8_layer.h says. A tap is the channels (of a group) of one pixel; of images with few channels it is a whole
 *            line of the kernel (SMELT_LS_LINES), read from a padded copy. Panels have the taps one after the other, each in whole
 *            groups of four bytes.
 * Output:    [batch, OH, OW, groups * columns].
 * Invariant: sums are exact modulo 2^32 on every CPU, and results do not depend on threads. With VNNI a tile whose rows lie at one
 *            distance, and see no padding, is read in place; the rows of others are copied side by side. Without, rows are packed.
 */
#ifndef SMELT_INT8_CONV_H
#define SMELT_INT8_CONV_H

#include <smelt/int8/int8_direct.h>
#include <smelt/int8/int8_layer.h>
#include <smelt/int8/int8_rows.h>
#include <smelt/int8/int8_table.h>

enum {
  SMELT_INT8_OFFSETS = 64,        /* of taps that are read in place */
  SMELT_INT8_LONG_TAP = 16,       /* groups of a tap from which on several are read in place */
  SMELT_INT8_POINTERS = 2048,     /* of the taps of rows that are packed */
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
  int form, bytes;     /* of rows that are packed */
  int in_place, plain; /* VNNI; every pixel is a row */
  int64_t offsets[SMELT_INT8_OFFSETS];
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
  int64_t n = first / plane, oh = first % plane / s[SMELT_LS_OW], ow = first % s[SMELT_LS_OW];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t y0 = oh * sh - top, x0 = ow * sw - left;
    const uint8_t *corner = c->x + n * c->image + group * c->tap + y0 * c->line + x0 * c->pixel;
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

#ifdef SMELT_INT8_VNNI
/* Bytes to `to`; what follows them. */
SMELT_INLINE uint8_t *smelt_int8_append(uint8_t *to, const uint8_t *from, int64_t bytes) {
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) __builtin_memcpy(to, from, 64);
  if (bytes & 32) __builtin_memcpy(to, from, 32), to += 32, from += 32;
  if (bytes & 16) __builtin_memcpy(to, from, 16), to += 16, from += 16;
  if (bytes & 8) __builtin_memcpy(to, from, 8), to += 8, from += 8;
  if (bytes & 4) __builtin_memcpy(to, from, 4), to += 4;
  return to; /* taps are whole groups of four bytes */
}

/* All taps of one row, side by side, each in whole groups. */
SMELT_INLINE void smelt_int8_copy_row(const smelt_int8_conv *c, const uint8_t *image, int64_t oh, int64_t ow, uint8_t *to) {
  const int64_t *s = c->l.s;
  if (s[SMELT_LS_LINES]) {
    image += oh * s[SMELT_LS_SH] * c->line + ow * s[SMELT_LS_SW] * c->pixel;
    for (int64_t t = 0; t < c->taps; t++) to = smelt_int8_append(to, image + t * s[SMELT_LS_DH] * c->line, c->groups * SMELT_INT8_GROUP);
    return;
  }
  const int64_t wide = s[SMELT_LS_KW], dw = s[SMELT_LS_DW], x0 = ow * s[SMELT_LS_SW] - s[SMELT_LS_LEFT];
  const int whole = dw == 1 && c->tap == c->pixel && x0 >= 0 && x0 + wide <= s[SMELT_LS_W];
  for (int64_t kh = 0; kh < s[SMELT_LS_KH]; kh++) {
    const int64_t y = oh * s[SMELT_LS_SH] - s[SMELT_LS_TOP] + kh * s[SMELT_LS_DH];
    const uint8_t *line = image + y * c->line;
    const int inside = y >= 0 && y < s[SMELT_LS_H];
    if (inside && whole) to = smelt_int8_append(to, line + x0 * c->pixel, wide * c->tap);
    else
      for (int64_t x = x0; x < x0 + wide * dw; x += dw)
        to = smelt_int8_append(to, inside && x >= 0 && x < s[SMELT_LS_W] ? line + x * c->pixel : c->zeros, c->tap);
  }
}

/* Rows of a tile: in place where they lie at one distance and see no padding, else copied. */
static smelt_int8_strided smelt_int8_rows_of(const smelt_int8_conv *c, int64_t first, int64_t tall, int64_t group, uint8_t *copy) {
  const int64_t *s = c->l.s, sw = s[SMELT_LS_SW];
  smelt_int8_strided out = {c->x + first * c->pixel + group * c->tap, c->offsets, c->pixel, c->taps, c->groups};
  if (c->plain) return out;
  const int64_t y = first / s[SMELT_LS_OW], ow = first - y * s[SMELT_LS_OW], n = y / s[SMELT_LS_OH];
  int64_t oh = y - n * s[SMELT_LS_OH];
  if (s[SMELT_LS_LINES] && c->taps <= SMELT_INT8_OFFSETS && ow + tall <= s[SMELT_LS_OW]) {
    out.a = c->x + n * c->image + oh * s[SMELT_LS_SH] * c->line + ow * sw * c->pixel, out.apart = sw * c->pixel;
    return out;
  }
  if (c->groups >= SMELT_INT8_LONG_TAP && c->taps <= SMELT_INT8_OFFSETS && !s[SMELT_LS_LINES] && ow + tall <= s[SMELT_LS_OW]) {
    const int64_t y0 = oh * s[SMELT_LS_SH] - s[SMELT_LS_TOP], x0 = ow * sw - s[SMELT_LS_LEFT];
    const int64_t y1 = y0 + (s[SMELT_LS_KH] - 1) * s[SMELT_LS_DH], x1 = x0 + (tall - 1) * sw + (s[SMELT_LS_KW] - 1) * s[SMELT_LS_DW];
    out.a = c->x + n * c->image + group * c->tap + y0 * c->line + x0 * c->pixel, out.apart = sw * c->pixel;
    if (y0 >= 0 && x0 >= 0 && y1 < s[SMELT_LS_H] && x1 < s[SMELT_LS_W]) return out;
  }
  out = (smelt_int8_strided){copy, c->offsets, c->taps * c->groups * SMELT_INT8_GROUP, 1, c->taps * c->groups};
  const uint8_t *image = c->x + n * c->image + group * c->tap;
  for (int64_t r = 0, x = ow; r < tall; r++) {
    smelt_int8_copy_row(c, image, oh, x, copy + r * out.apart);
    if (++x < s[SMELT_LS_OW]) continue;
    x = 0;
    if (++oh == s[SMELT_LS_OH]) oh = 0, image += c->image;
  }
  return out;
}

/* The sum of bytes, each as it is with its highest bit flipped where `flip` has it. */
SMELT_INLINE int32_t smelt_int8_sum_bytes(const uint8_t *a, int64_t count, smelt_int8_v flip) {
  const smelt_int8_v ones = 0x01010101 - (smelt_int8_v){0};
  smelt_int8_v sum = {0}, part;
  uint8_t last[SMELT_VL];
  for (int64_t i = 0; i < count; i += SMELT_VL) {
    const uint8_t *at = a + i;
    if (count - i < SMELT_VL) {
      __builtin_memset(last, (uint8_t)flip[0], SMELT_VL); /* 0 when it is flipped */
      for (int64_t k = 0; k < count - i; k++) last[k] = at[k];
      at = last;
    }
    part = *(const smelt_int8_vu *)at ^ flip;
    __asm__(SMELT_INT8_DOT : "+v"(sum) : "v"(part), "v"(ones));
  }
  int32_t all = 0;
  for (int i = 0; i < SMELT_INT8_LANES; i++) all += sum[i];
  return all;
}

/* Sums of a - zero point of each row. */
static void smelt_int8_sum_rows(const smelt_int8_conv *c, const smelt_int8_strided *rows, int64_t tall, int32_t *sums) {
  const int is_signed = (int)c->l.s[SMELT_LS_X_SIGNED];
  const smelt_int8_v flip = (is_signed ? (int32_t)0x80808080 : 0) - (smelt_int8_v){0};
  const int32_t zero = (int32_t)((c->l.x_zero + (is_signed ? 128 : 0)) * c->taps * c->tap);
  for (int64_t r = 0; r < tall; r++) {
    int32_t sum = 0;
    for (int64_t t = 0; t < c->taps; t++)
      sum += smelt_int8_sum_bytes(rows->a + r * rows->apart + (rows->taps == c->taps ? rows->offsets[t] : t * c->groups * SMELT_INT8_GROUP),
                                  c->tap, flip);
    sums[r] = sum - zero;
  }
}
#endif

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
SMELT_INLINE int64_t smelt_int8_tile_start(int64_t rows, int64_t tiles, int64_t i) {
  const uint32_t all = (uint32_t)rows, many = (uint32_t)tiles, each = all / many; /* of a task, which are few */
  return (int64_t)(each * (uint32_t)i) + smelt_min(i, (int64_t)(all - each * many));
}

typedef struct {
  const smelt_int8_conv *c;
  const smelt_int8_strided *strided; /* rows of each tile, with VNNI */
  const char *packed;      /* rows of all tiles, where they are packed */
  const int32_t *row_sums; /* NULL: not needed */
  int64_t first, rows, tiles, group;
} smelt_int8_rows_of_task;

/* Prefetches what is added to the rows behind a tile, and where they are stored: `wide` columns from `at` on. */
SMELT_INLINE void smelt_int8_prefetch_rows(const smelt_int8_conv *c, int64_t row, int64_t rows, int64_t stride, int64_t at, int64_t wide) {
  if (!c->l.stage.residual) return;
  for (int64_t r = row; r < smelt_min(row + rows, c->rows); r++)
    for (int64_t i = 0; i < wide; i += 64) __builtin_prefetch(c->l.stage.residual + r * stride + at + i, 0, 3);
}

/* Some panels of tile i, and panels that come next, or NULL: each tile prefetches so many bytes of them, as evenly as it can. */
static void smelt_int8_conv_tile(const smelt_int8_rows_of_task *w, int64_t i, int64_t panel, int64_t panels, const char *ahead, int64_t share) {
  const smelt_int8_conv *c = w->c;
  const int64_t start = smelt_int8_tile_start(w->rows, w->tiles, i), tall = smelt_int8_tile_start(w->rows, w->tiles, i + 1) - start;
  (void)ahead, (void)share; /* without VNNI */
  int32_t sums[SMELT_INT8_SUMS * SMELT_INT8_LANES] __attribute__((aligned(64)));
  const int64_t fit = SMELT_INT8_PANELS(tall), groups = c->taps * c->groups;
  smelt_int8_place at = {.row = w->first + start, .rows = tall, .columns = c->l.s[SMELT_LS_COLUMNS], .group = w->group};
  at.stride = at.columns * c->l.s[SMELT_LS_GROUPS];
  for (int64_t done = 0; done < panels; done += at.panels) {
    const char *b = c->panels + (w->group * c->l.panels + panel + done) * c->stride;
    at.panels = panels - done >= fit ? fit : 1, at.first = (panel + done) * SMELT_INT8_PANEL;
    smelt_int8_prefetch_rows(c, at.row + tall, tall, at.stride, w->group * at.columns + at.first, at.panels * SMELT_INT8_PANEL);
#ifdef SMELT_INT8_VNNI
    if (c->in_place) {
      const smelt_int8_direct_tiles tiles = c->l.s[SMELT_LS_X_SIGNED] ? smelt_int8_flipped : smelt_int8_direct;
      const smelt_int8_ahead next = {ahead ? ahead : b, ahead ? smelt_min((share + groups - 1) / groups, SMELT_INT8_STEP) : 0};
      if (ahead) ahead += share;
      tiles[tall - 1][at.panels > 1](w->strided + i, b, c->stride, &next, sums);
    } else
#endif
      smelt_int8_packed_tiles(c->form)[tall - 1][at.panels > 1](
          w->packed + start * groups * c->bytes, b, c->stride, groups, sums);
    smelt_int8_store(&c->l.stage, &at, sums, w->row_sums ? w->row_sums + start : NULL, c->l.task->b[SMELT_LB_Y]);
    smelt_int8_look_up(&c->l.stage, c->l.task->b[SMELT_LB_TABLE], &at, c->l.task->b[SMELT_LB_Y]);
  }
}

/* Bytes of a task's memory: sums of its rows, where its tiles' rows are (or pointers to their taps), and rows that are copied or packed. */
SMELT_INLINE int64_t smelt_int8_sums_bytes(const smelt_int8_conv *c) { return (c->block + 15) / 16 * 64; }
SMELT_INLINE int64_t smelt_int8_places_bytes(const smelt_int8_conv *c) {
#ifdef SMELT_INT8_VNNI
  if (c->in_place) return (c->block / SMELT_INT8_ROWS + 2) * 64;
#endif
  return (c->block * c->taps + 7) / 8 * 64;
}
SMELT_INLINE int64_t smelt_int8_rows_bytes(const smelt_int8_conv *c) {
  return c->plain ? 0 : c->block * c->taps * c->groups * c->bytes;
}

/* The rows of a task as its tiles want them. */
static void smelt_int8_rows_of_task_at(smelt_int8_rows_of_task *w, char *memory) {
  const smelt_int8_conv *c = w->c;
  int32_t *row_sums = (int32_t *)memory;
  char *places = memory + smelt_int8_sums_bytes(c), *packed = places + smelt_int8_places_bytes(c);
  w->packed = packed, w->row_sums = c->l.stage.zeros ? row_sums : NULL;
  const uint8_t **pointers = (const uint8_t **)places;
  if (!c->in_place) smelt_int8_point(c, w->first, w->rows, w->group, pointers);
  for (int64_t i = 0; i < w->tiles; i++) {
    const int64_t start = smelt_int8_tile_start(w->rows, w->tiles, i), tall = smelt_int8_tile_start(w->rows, w->tiles, i + 1) - start;
    char *to = packed + start * c->taps * c->groups * c->bytes;
#ifdef SMELT_INT8_VNNI
    if (c->in_place) {
      smelt_int8_strided *rows = (smelt_int8_strided *)places;
      rows[i] = smelt_int8_rows_of(c, w->first + start, tall, w->group, (uint8_t *)to), w->strided = rows;
      if (w->row_sums) smelt_int8_sum_rows(c, rows + i, tall, row_sums + start);
      continue;
    }
#endif
    smelt_int8_pack_taps(c, pointers + start, w->rows, tall, to, row_sums + start);
  }
}

/* A task, in memory of its own. */
static void smelt_int8_conv_block(const smelt_int8_conv *c, int64_t index, char *memory) {
  const int64_t across = index % c->across, block = index / c->across % c->blocks;
  smelt_int8_rows_of_task w = {.c = c, .group = index / c->across / c->blocks};
  w.first = c->rows * block / c->blocks, w.rows = c->rows * (block + 1) / c->blocks - w.first;
  w.tiles = (w.rows + SMELT_INT8_ROWS - 1) / SMELT_INT8_ROWS;
  const int64_t from = across * c->l.panels / c->across, to = (across + 1) * c->l.panels / c->across;
  smelt_int8_rows_of_task_at(&w, memory);
  const int64_t fit = SMELT_INT8_PANELS(smelt_int8_tile_start(w.rows, w.tiles, 1));
  const int64_t step = smelt_max(1, smelt_sizes.int8_panel_bytes / (c->stride * fit)) * fit;
  for (int64_t panel = from; panel < to; panel += step) {
    const int64_t own = smelt_min(step, to - panel), calls = (own + fit - 1) / fit, left = smelt_min(step, to - panel - own);
    const char *ahead = left > 0 ? c->panels + (w.group * c->l.panels + panel + own) * c->stride : NULL;
    const int64_t share = left * c->stride / (w.tiles * calls);
    for (int64_t i = 0; i < w.tiles; i++)
      smelt_int8_conv_tile(&w, i, panel, own, ahead ? ahead + i * calls * share : NULL, share);
  }
}

static void smelt_int8_conv_body(void *context, int64_t index) {
  const smelt_int8_conv *c = context;
  char *memory = smelt_claim(c->l.task);
  smelt_int8_conv_block(c, index, memory);
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

/* How rows reach the tiles: as they are, or packed in the form that is exact for these panels. */
static void smelt_int8_conv_form(smelt_int8_conv *c) {
  c->in_place = smelt_int8_in_place(), c->form = SMELT_INT8_QUADS, c->bytes = SMELT_INT8_GROUP;
  if (c->in_place) return;
  int small = SMELT_VEX;
  for (int64_t i = 0; small && i < c->l.panels * c->l.s[SMELT_LS_GROUPS]; i++)
    small = ((const smelt_int8_header *)(c->panels + i * c->stride))->small_pairs;
  c->form = smelt_int8_packed_form(small), c->bytes = smelt_int8_group_bytes(c->form);
}

/* Where the taps of a row are, and whether every pixel is a row. */
static void smelt_int8_conv_taps(smelt_int8_conv *c) {
  const int64_t *s = c->l.s, lines = s[SMELT_LS_LINES];
  const int64_t wide = lines ? 1 : s[SMELT_LS_KW];
  for (int64_t t = 0; t < smelt_min(c->taps, SMELT_INT8_OFFSETS); t++)
    c->offsets[t] = t / wide * s[SMELT_LS_DH] * c->line + t % wide * s[SMELT_LS_DW] * c->pixel;
  c->plain = c->in_place && c->taps == 1 && !lines && s[SMELT_LS_SH] == 1 && s[SMELT_LS_SW] == 1 && !s[SMELT_LS_TOP] &&
             !s[SMELT_LS_LEFT] && s[SMELT_LS_OH] == s[SMELT_LS_H] && s[SMELT_LS_OW] == s[SMELT_LS_W];
}

/* Blocks of rows that stay in L2 beside a few panels; where there are fewer than tasks are wanted, smaller ones, then tasks share a block's rows. */
static void smelt_int8_conv_cut(smelt_int8_conv *c, int64_t processors) {
  const int64_t bytes = c->plain ? c->pixel : c->taps * c->groups * c->bytes;
  const int64_t wanted = processors > 1 ? 4 * processors : 1, tall = SMELT_INT8_ROWS;
  int64_t most = smelt_sizes.near_rows / 2 / smelt_max(1, bytes);
  if (!c->in_place) most = smelt_min(most, SMELT_INT8_POINTERS / c->taps);
  most = smelt_max(tall, most / tall * tall);
  c->blocks = (c->rows + most - 1) / most;
  if (c->blocks * c->l.s[SMELT_LS_GROUPS] < wanted) c->blocks = smelt_max(c->blocks, smelt_min(wanted, c->rows / (4 * tall)));
  c->block = (c->rows + c->blocks - 1) / c->blocks;
  const int64_t tasks = c->blocks * c->l.s[SMELT_LS_GROUPS];
  c->across = smelt_max(1, smelt_min((wanted + tasks - 1) / tasks, c->l.panels / SMELT_INT8_TASK_PANELS));
}

/* All but the panels' form, and how rows are cut. */
static void smelt_int8_conv_sizes(smelt_int8_conv *c) {
  const int64_t *s = c->l.s;
  c->pixel = s[SMELT_LS_C], c->line = s[SMELT_LS_W] * c->pixel, c->image = s[SMELT_LS_H] * c->line;
  c->taps = s[SMELT_LS_KH] * s[SMELT_LS_KW], c->tap = c->pixel / s[SMELT_LS_GROUPS];
  __builtin_memset(c->l.scratch, c->l.x_zero, (size_t)c->tap + 64);
  c->zeros = (const uint8_t *)c->l.scratch, c->l.scratch += (c->tap + 64 + 63) & ~(int64_t)63;
}

/* Bytes of memory of a task. */
static int64_t smelt_int8_conv_bytes(const smelt_int8_conv *c) {
  return (smelt_int8_sums_bytes(c) + smelt_int8_places_bytes(c) + smelt_int8_rows_bytes(c) + 63) & ~(int64_t)63;
}

#endif
