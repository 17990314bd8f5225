/* The machine that a library runs on: caches, processors, and the block sizes that follow from them.
 *
 * Input:     the CPU's own identification (x86-64) or sysfs, the scheduler's affinity, and SMELT_MACHINE in the environment
 *            (l2=524288,threads=16), which replaces what was found.
 * Output:    smelt_sizes, filled by smelt_machine_load() before any region runs; smelt_this_machine.
 * Invariant: results do not depend on any of it. What was not loaded has the values of a machine with 32 KB of L1, 1 MB of L2 and
 *            two threads.
 */
#ifndef SMELT_MACHINE_H
#define SMELT_MACHINE_H

#include <smelt/base/features.h>
#include <stddef.h>
#include <stdint.h>

#define SMELT_MOST_THREADS 128

typedef struct {
  int64_t l1_bytes, l2_bytes, l3_bytes; /* of one core, or shared */
  int64_t processors, threads;          /* that may be used; that work is cut for */
} smelt_machine;

#define SMELT_MACHINE_FIELDS "l1, l2, l3, processors, threads"

typedef struct {
#define SMELT_SIZE(name, formula, what) int64_t name;
#include <smelt/base/machine_sizes.h>
#undef SMELT_SIZE
} smelt_machine_sizes;

/* One for the whole library: the linker keeps one of the definitions. */
SMELT_SHARED_DATA smelt_machine smelt_this_machine = {32768, 1048576, 33554432, 2, 2};

#define l1_bytes 32768
#define l2_bytes 1048576
#define threads 2
#define smelt_max(a, b) ((a) > (b) ? (a) : (b))
#define smelt_min(a, b) ((a) < (b) ? (a) : (b))
SMELT_SHARED_DATA smelt_machine_sizes smelt_sizes = {
#define SMELT_SIZE(name, formula, what) .name = formula,
#include <smelt/base/machine_sizes.h>
#undef SMELT_SIZE
};
#undef l1_bytes
#undef l2_bytes
#undef threads
#undef smelt_max
#undef smelt_min

#endif
