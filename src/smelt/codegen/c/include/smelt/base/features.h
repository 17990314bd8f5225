/* CPU features as flags: what a micro-kernel may use on the machine that runs it.
 *
 * Input:     feature_list.h. Output: a bit SMELT_CPU_<name> per feature, smelt_has(); SMELT_LEVEL_<name> per build.
 * Invariant: a feature is there only where the CPU and its operating system have it, and SMELT_LEVEL in the environment allows it
 *            (base/cpu.h, which a host calls before any region runs). Before that there are none, so that the code of the unit's
 *            own build runs.
 */
#ifndef SMELT_FEATURES_H
#define SMELT_FEATURES_H

#include <stdint.h>

#define SMELT_SHARED_DATA __attribute__((weak, visibility("hidden")))

#define SMELT_BUILD(name, level, features)
enum {
#define SMELT_FEATURE(name, with, ...) SMELT_PLACE_##name,
#include <smelt/base/feature_list.h>
#undef SMELT_FEATURE
  SMELT_FEATURES
};
enum {
#define SMELT_FEATURE(name, with, ...) SMELT_CPU_##name = 1 << SMELT_PLACE_##name,
#include <smelt/base/feature_list.h>
#undef SMELT_FEATURE
};
#undef SMELT_BUILD
enum {
#define SMELT_FEATURE(name, with, ...)
#define SMELT_BUILD(name, level, features) SMELT_LEVEL_##name = level,
#include <smelt/base/feature_list.h>
#undef SMELT_FEATURE
#undef SMELT_BUILD
};

/* One for the whole library: the linker keeps one of the definitions. */
SMELT_SHARED_DATA uint32_t smelt_features = 0;

/* Whether all of these features may be used. */
static inline __attribute__((always_inline, unused)) int smelt_has(uint32_t features) { return (smelt_features & features) == features; }

#endif
