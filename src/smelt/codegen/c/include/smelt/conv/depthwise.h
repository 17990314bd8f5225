/* Depthwise convolution: lanes are channels.
 *
 * Input:     smelt_window, an NHWC image; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: lanes are channels; every element is one chain over the taps that lie in the image, in rising order, so its
 *            bits do not depend on how windows and channels are grouped. Padding takes no part. Filters of three
 *            taps side by side are those of depthwise_three.h; larger ones are depthwise_lines.h and depthwise_patch.h.
 */
#ifndef SMELT_DEPTHWISE_H
#define SMELT_DEPTHWISE_H

#include <smelt/conv/depthwise_three.h>

/* The taps of a window as a list: floats from its first tap to each, and the row of the panels that weighs it. */
enum { SMELT_LISTED_TAPS = 128 };
typedef struct {
  const float *base;
  int64_t count;
  int64_t from[SMELT_LISTED_TAPS], row[SMELT_LISTED_TAPS];
} smelt_tap_list;

/* A window must have at most SMELT_LISTED_TAPS taps. */
SMELT_INLINE void smelt_list_taps(const smelt_window *w, const smelt_taps *t, smelt_tap_list *list) {
  const int64_t step = w->dilation[2] * w->pixel;
  list->count = 0;
  list->base = smelt_taps_line(w, t, t->s[0].lo, t->s[1].lo) + t->s[2].lo * step;
  for (int64_t a = t->s[0].lo; a < t->s[0].hi; a++)
    for (int64_t b = t->s[1].lo; b < t->s[1].hi; b++) {
      const int64_t line = smelt_taps_line(w, t, a, b) - list->base;
      const int64_t row = (a * w->kernel[1] + b) * w->kernel[2];
      for (int64_t e = t->s[2].lo; e < t->s[2].hi; e++) {
        list->from[list->count] = line + e * step;
        list->row[list->count++] = (row + e) * 16;
      }
    }
}

#define SMELT_LANES_OF(FROM) (live ? ld_f32_n(FROM, live) : ld_f32(FROM))
#define SMELT_TILE_WEIGHT(V) const v_f32 weight##V = ld_f32(row + (V)*SMELT_L / 16 * panel + (V)*SMELT_L % 16);
#define SMELT_TILE_STEP(R, V) acc##R##V += SMELT_LANES_OF(at + (R)*side + (V)*SMELT_L) * weight##V;
#define SMELT_TILE_STORE(R, V)                                                                                         \
  if (live) st_f32_n(to + (R)*ld + (V)*SMELT_L, acc##R##V, live);                                                      \
  else st_f32(to + (R)*ld + (V)*SMELT_L, acc##R##V);

/* Vectors of channels of windows side by side. `x` is the first tap's channel, `f` the panel's first row at that channel;
 * panels lie `panel` floats apart. `live` is the number of lanes of a partial vector, 0 for whole ones. */
#define SMELT_DEPTHWISE_TILE(NAME, TILE, VECTORS)                                                                    \
  SMELT_INLINE void NAME(const smelt_tap_box *b, const float *x, const float *f, int64_t panel, int64_t live, float *to, \
                         int64_t ld) {                                                                                 \
    TILE(SMELT_TILE_ZERO)                                                                                              \
    const int64_t side = b->side, step = b->tap_step;                                                                  \
    (void)panel, (void)side, (void)ld;                                                                                 \
    for (int64_t i = 0; i < b->sheets; i++)                                                                            \
      for (int64_t j = 0; j < b->down; j++) {                                                                          \
        const float *at = x + i * b->sheet_step + j * b->line_step, *row = f + i * b->sheet_row + j * b->line_row;     \
        for (int64_t k = b->across; k > 0; k--, at += step, row += 16) {                                               \
          VECTORS(SMELT_TILE_WEIGHT)                                                                                   \
          TILE(SMELT_TILE_STEP)                                                                                        \
        }                                                                                                              \
      }                                                                                                                \
    TILE(SMELT_TILE_STORE)                                                                                             \
  }

/* All channels of some windows side by side, by tiles of V vectors. c0 is at the start of a panel. */
#define SMELT_DEPTHWISE_ROW(NAME, TILE, VECTORS, V, NARROW)                                                          \
  SMELT_DEPTHWISE_TILE(NAME##_tile, TILE, VECTORS)                                                                   \
  SMELT_DEPTHWISE_TILE(NAME##_narrow, NARROW, SMELT_VECTORS_1)                                                       \
  static __attribute__((unused)) void NAME(const smelt_tap_box *b, int64_t panel, const float *panels, int64_t c0,     \
                                           int64_t c1, float *to, int64_t ld) {                                        \
    const float *x = b->at, *f = panels + b->first_row;                                                                \
    int64_t c = c0;                                                                                                    \
    for (; c + (V)*SMELT_L <= c1; c += (V)*SMELT_L)                                                                    \
      NAME##_tile(b, x + c, f + c / 16 * panel + c % 16, panel, 0, to + (c - c0), ld);                                 \
    for (; c + SMELT_L <= c1; c += SMELT_L)                                                                            \
      NAME##_narrow(b, x + c, f + c / 16 * panel + c % 16, panel, 0, to + (c - c0), ld);                               \
    if (c < c1) NAME##_narrow(b, x + c, f + c / 16 * panel + c % 16, panel, c1 - c, to + (c - c0), ld);                \
  }

SMELT_DEPTHWISE_ROW(smelt_depthwise_4, SMELT_TILE_4X2, SMELT_VECTORS_2, 2, SMELT_TILE_4X1)
SMELT_DEPTHWISE_ROW(smelt_depthwise_2, SMELT_TILE_2X2, SMELT_VECTORS_2, 2, SMELT_TILE_2X1)
SMELT_DEPTHWISE_ROW(smelt_depthwise_1, SMELT_TILE_1X4, SMELT_VECTORS_4, 4, SMELT_TILE_1X1)

/* Windows from p on that lie side by side in one line with all their taps along it in the image; at most `left`. */
SMELT_INLINE int64_t smelt_side_by_side(const smelt_window *w, const smelt_place *p, int64_t left) {
  const int64_t extent = (w->kernel[2] - 1) * w->dilation[2], start = p->at[2] * w->stride[2] - w->before[2];
  if (start < 0 || start + extent >= w->in[2]) return 1;
  const int64_t run = (w->in[2] - 1 - extent - start) / w->stride[2] + 1;
  return smelt_min(smelt_min(run, w->out[2] - p->at[2]), left);
}

/* A run of windows side by side, as many at a time as a tile takes. */
SMELT_INLINE void smelt_depthwise_run(smelt_tap_box b, int64_t run, int64_t panel, const float *panels, int64_t c0,
                                        int64_t c1, float *to, int64_t ld) {
  for (int64_t n; run > 0; run -= n, b.at += n * b.side, to += n * ld) {
    n = run >= 4 ? 4 : run >= 2 ? 2 : 1;
    if (n == 4) smelt_depthwise_4(&b, panel, panels, c0, c1, to, ld);
    else if (n == 2) smelt_depthwise_2(&b, panel, panels, c0, c1, to, ld);
    else smelt_depthwise_1(&b, panel, panels, c0, c1, to, ld);
  }
}

/* A block of windows, wherever its taps lie. */
static __attribute__((unused)) void smelt_depthwise_block(const smelt_window *w, const float *image, const float *panels,
                                                            int64_t first, int64_t count, int64_t c0, int64_t c1,
                                                            float *block, int64_t ld) {
  const int64_t panel = w->kernel[0] * w->kernel[1] * w->kernel[2] * 16;
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0, run; i < count; i += run) {
    const smelt_taps t = smelt_taps_of(w, image, &p);
    run = smelt_side_by_side(w, &p, count - i);
    smelt_depthwise_run(smelt_box_of(w, &t), run, panel, panels, c0, c1, block + i * ld, ld);
    p.at[2] += run - 1;
    smelt_place_next(w, &p);
  }
}

/* The same, finished where they belong; the block has room for whole panels. */
static __attribute__((unused)) void smelt_depthwise(const smelt_window *w, const float *image, const float *panels,
                                                      int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                      int64_t ld, const smelt_epilogue *epilogue) {
  if (smelt_three_taps(w)) {
    smelt_depthwise_three(w, image, panels, first, count, c0, c1, block, ld, epilogue);
    return;
  }
  smelt_depthwise_block(w, image, panels, first, count, c0, c1, block, ld);
  if (epilogue) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
