/* Sizes that follow from the machine: SMELT_SIZE(name, formula, what it is).
 *
 * Formulas are over l1_bytes and l2_bytes (of one core's caches, rounded down to a power of two), and threads; integers, with
 * smelt_max() and smelt_min(). machine.h computes them when a library is loaded, codegen/machine_sizes.py for the machine that code
 * is generated for. Which results a kernel gives never depends on any of them.
 */
/* GEMM with constant panels */
SMELT_SIZE(gemm_rows, l2_bytes / 65536 * 9, "rows of a left operand (MC) that pass by panels together: 768 terms of them take 0.42 of L2")
SMELT_SIZE(near_panels, l2_bytes / 4, "bytes of panels that stay in L2 while blocks of rows pass by")
SMELT_SIZE(near_rows, l2_bytes, "bytes of a left operand that stay in L2 while panels pass by")
SMELT_SIZE(group_bytes, l2_bytes / 2, "bytes of a group of panels that tasks of other rows find in L2 one after the other")
SMELT_SIZE(epilogue_floats, l2_bytes / 8, "floats of a task's block of the product that its epilogue finds in L2")
SMELT_SIZE(row_affine_bytes, l2_bytes, "bytes of panels up to which the schedule is row-affine")
SMELT_SIZE(b_streaming_bytes, 4 * l2_bytes, "bytes of panels up to which B is streamed past blocks of rows")
SMELT_SIZE(block_floats, l1_bytes / 4, "floats of a block of a batched product that its epilogue finds in L1")
SMELT_SIZE(gemm_tasks, smelt_max(48, 4 * threads), "tasks of a product that is large enough")
SMELT_SIZE(gemm_rounds, smelt_max(24, 2 * threads), "groups of panels that are enough for all threads")
SMELT_SIZE(unpacked_tasks, smelt_max(24, 2 * threads), "tasks of a product that packs its right operand itself")
SMELT_SIZE(fused_floats, l2_bytes / 4, "floats of the panels of two products that one task runs after each other")
/* attention, two products in one task */
SMELT_SIZE(b2b_floats, l1_bytes / 4, "floats of a block of scores that stays in L1")
SMELT_SIZE(b2b_most, l2_bytes / 8, "floats of a block of scores that stays in L2")
SMELT_SIZE(b2b_team, smelt_max(48, 4 * threads), "tasks that are enough for all threads")
/* convolution and pooling */
SMELT_SIZE(window_tasks, smelt_max(32, 4 * threads), "tasks that a launch aims at")
SMELT_SIZE(window_blocks, smelt_max(8, 2 * threads), "blocks of rows that are enough for all threads")
SMELT_SIZE(window_panels, l2_bytes / 16384 * 3125, "floats of panels that stay in L2 between tasks, 0.76 of it")
SMELT_SIZE(window_part, l1_bytes / 4, "floats of a part that its epilogue finds in L1")
SMELT_SIZE(window_k_block, l2_bytes / 16, "floats of panels that are read again for each part, rather than for many rows")
SMELT_SIZE(winograd_near, l2_bytes / 65536 * 28125, "floats of transformed weights that tasks share between L2 and L3, 1.7 times L2")
SMELT_SIZE(winograd_tasks, smelt_max(8, 4 * threads), "tasks that a launch aims at")
SMELT_SIZE(tile_bytes, l2_bytes / 8 * 5, "bytes of lines between the kernels of one task")
SMELT_SIZE(tile_image_bytes, l2_bytes / 4 * 3, "bytes of an image between two kernels, from which on it would leave L2")
SMELT_SIZE(least_tiles, smelt_max(6, 3 * threads), "tasks of one image that are enough for all threads")
/* 8-bit products */
SMELT_SIZE(int8_block_bytes, l2_bytes / 16 * 3, "bytes of the packed rows of a task, which stay in L2 beside a panel")
SMELT_SIZE(int8_panel_bytes, l1_bytes / 8 * 5, "bytes of panels that all rows of a task meet before the next")
/* everything else */
SMELT_SIZE(most_tasks, smelt_max(128, 4 * threads), "tasks of a loop nest")
SMELT_SIZE(cell_span_floats, l2_bytes / 128 * 5, "floats of the inputs' products of several steps, beside recurrent weights")
SMELT_SIZE(nontemporal_bytes, l2_bytes / 4, "bytes of a result that is stored by non-temporal stores")
