/* The tiles of matrix products and convolutions as a unit of their own.
 *
 * Input:     gemm_micro.h, convolve_epilogue.h. Output: their tables of micro-kernels, which units that define
 *            SMELT_TILES_LINKED declare. Invariant: its text never depends on a model, so its object is compiled once and found
 *            in the cache.
 */
#ifndef SMELT_TILES_UNIT_H
#define SMELT_TILES_UNIT_H

#define SMELT_TILES_UNIT
#include <smelt/conv/convolve_epilogue.h>

#endif
