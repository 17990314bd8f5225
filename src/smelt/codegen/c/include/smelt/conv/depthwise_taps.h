/* Which taps of a window lie in the image, and how to walk over them.
 *
 * Input:     smelt_window, an NHWC image, a window's place. Output: smelt_taps, smelt_tap_box.
 * Invariant: pointers are to the first channel; what is read through them lies in the image.
 */
#ifndef SMELT_DEPTHWISE_TAPS_H
#define SMELT_DEPTHWISE_TAPS_H

#include <smelt/vec/vec.h>
#include <smelt/conv/window.h>

/* Lists of what a tile holds: X(window, vector). Spelled out, so that every accumulator is a register. */
#define SMELT_TILE_1X1(X) X(0, 0)
#define SMELT_TILE_1X2(X) X(0, 0) X(0, 1)
#define SMELT_TILE_1X4(X) SMELT_TILE_1X2(X) X(0, 2) X(0, 3)
#define SMELT_TILE_2X1(X) X(0, 0) X(1, 0)
#define SMELT_TILE_4X1(X) SMELT_TILE_2X1(X) X(2, 0) X(3, 0)
#define SMELT_TILE_6X1(X) SMELT_TILE_4X1(X) X(4, 0) X(5, 0)
#define SMELT_TILE_7X1(X) SMELT_TILE_6X1(X) X(6, 0)
#define SMELT_TILE_8X1(X) SMELT_TILE_7X1(X) X(7, 0)
#define SMELT_TILE_14X1(X) SMELT_TILE_8X1(X) X(8, 0) X(9, 0) X(10, 0) X(11, 0) X(12, 0) X(13, 0)
#define SMELT_TILE_2X2(X) SMELT_TILE_2X1(X) X(0, 1) X(1, 1)
#define SMELT_TILE_4X2(X) SMELT_TILE_2X2(X) X(2, 0) X(3, 0) X(2, 1) X(3, 1)
#define SMELT_TILE_6X2(X) SMELT_TILE_4X2(X) X(4, 0) X(5, 0) X(4, 1) X(5, 1)
#define SMELT_TILE_2X4(X) SMELT_TILE_2X2(X) X(0, 2) X(1, 2) X(0, 3) X(1, 3)
#define SMELT_TILE_4X4(X) SMELT_TILE_2X4(X) X(2, 0) X(3, 0) X(2, 1) X(3, 1) X(2, 2) X(3, 2) X(2, 3) X(3, 3)
#define SMELT_VECTORS_1(X) X(0)
#define SMELT_VECTORS_2(X) X(0) X(1)
#define SMELT_VECTORS_4(X) SMELT_VECTORS_2(X) X(2) X(3)

#define SMELT_TILE_ZERO(R, V) v_f32 acc##R##V = bc_f32(0);

/* Has a value computed where it is used, not ahead of a loop, where it would take a register or a place in memory. */
#define SMELT_NOT_AHEAD(V) __asm__("" : "+r"(V))

/* The taps of one window that lie in the image. */
typedef struct {
  smelt_span s[3];
  const float *image;
} smelt_taps;

SMELT_INLINE smelt_taps smelt_taps_of(const smelt_window *w, const float *image, const smelt_place *p) {
  smelt_taps t;
  for (int axis = 0; axis < 3; axis++)
    t.s[axis] = smelt_span_of(w, axis, p->at[axis], 0, w->in[axis]);
  t.image = image + p->image * w->in[0] * w->in[1] * w->in[2] * w->pixel;
  return t;
}

/* The line of the image that taps (a, b) see, at tap 0 of the last axis (which may lie outside of it). */
SMELT_INLINE const float *smelt_taps_line(const smelt_window *w, const smelt_taps *t, int64_t a, int64_t b) {
  const int64_t y = t->s[0].start + a * w->dilation[0], x = t->s[1].start + b * w->dilation[1];
  return t->image + ((y * w->in[1] + x) * w->in[2] + t->s[2].start) * w->pixel;
}

/* Windows side by side that see the same taps: lines of `across` taps, `down` of them in each of `sheets`. Steps are in
 * floats: of the image, and of the rows of the panels that weigh it. */
typedef struct {
  const float *at;
  int64_t sheets, down, across;
  int64_t sheet_step, line_step, tap_step, side;
  int64_t sheet_row, line_row, first_row;
} smelt_tap_box;

SMELT_INLINE smelt_tap_box smelt_box_of(const smelt_window *w, const smelt_taps *t) {
  const smelt_span *s = t->s;
  const int64_t line = w->in[2] * w->pixel, taps = w->kernel[2];
  smelt_tap_box b = {smelt_taps_line(w, t, s[0].lo, s[1].lo) + s[2].lo * w->dilation[2] * w->pixel,
                     s[0].hi - s[0].lo, s[1].hi - s[1].lo, s[2].hi - s[2].lo,
                     w->dilation[0] * w->in[1] * line, w->dilation[1] * line, w->dilation[2] * w->pixel,
                     w->stride[2] * w->pixel, w->kernel[1] * taps * 16, taps * 16,
                     ((s[0].lo * w->kernel[1] + s[1].lo) * taps + s[2].lo) * 16};
  return b;
}

#endif
