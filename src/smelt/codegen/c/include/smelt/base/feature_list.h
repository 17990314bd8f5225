/* CPU features and builds, one line each; the same as base/features.py and base/target.py have.
 *
 * SMELT_FEATURE(name, features that it goes with, how the CPU and its operating system tell it: fields of smelt_cpu_words)
 * SMELT_BUILD(name, number in smelt_entry.by_level, features that its code needs besides those that go with them)
 *
 * Features come after those that they go with. Builds come in order of preference, the best last: of two that are not comparable
 * the later one is taken. A build without a number (-1) has no regions of its own: its micro-kernels are functions with a target
 * attribute in the units of the build that it extends, and ask smelt_has() before they run.
 */
#define SMELT_AND(name) SMELT_CPU_##name
#if defined(__aarch64__)
SMELT_FEATURE(neon, 0, .hwcap = 1ul << 1)
/* as compilers understand armv8.2-a+fp16: crc32, atomics, half precision (scalar and vector), rounding multiply */
SMELT_FEATURE(neonfp16, SMELT_AND(neon), .hwcap = 1ul << 7 | 1ul << 8 | 1ul << 9 | 1ul << 10 | 1ul << 12)
SMELT_FEATURE(dotprod, SMELT_AND(neonfp16), .hwcap = 1ul << 20)
SMELT_FEATURE(i8mm, SMELT_AND(dotprod), .hwcap2 = 1ul << 13)
SMELT_FEATURE(bf16, SMELT_AND(neonfp16), .hwcap2 = 1ul << 14)
SMELT_BUILD(armv8, 0, SMELT_AND(neon))
SMELT_BUILD(armv82, 1, SMELT_AND(neonfp16))
SMELT_BUILD(bf16, -1, SMELT_AND(bf16))
SMELT_BUILD(dotprod, -1, SMELT_AND(dotprod))
SMELT_BUILD(i8mm, -1, SMELT_AND(i8mm) | SMELT_AND(bf16))
#else
/* x86-64-v2: sse3 ssse3 cx16 sse4.1 sse4.2 popcnt; lahf */
SMELT_FEATURE(sse4, 0, .leaf1_c = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23, .ext_c = 1u << 0)
/* x86-64-v3: fma movbe osxsave avx f16c; bmi1 avx2 bmi2; lzcnt */
SMELT_FEATURE(avx2, SMELT_AND(sse4), .leaf1_c = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29,
              .leaf7_b = 1u << 3 | 1u << 5 | 1u << 8, .ext_c = 1u << 5, .saved = 0x6)
SMELT_FEATURE(avxvnni, SMELT_AND(avx2), .leaf7_1_a = 1u << 4)
/* x86-64-v4: f dq cd bw vl */
SMELT_FEATURE(avx512, SMELT_AND(avx2), .leaf7_b = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31, .saved = 0xe6)
SMELT_FEATURE(avx512vnni, SMELT_AND(avx512), .leaf7_c = 1u << 11)
SMELT_FEATURE(avx512vbmi, SMELT_AND(avx512), .leaf7_c = 1u << 1)
SMELT_FEATURE(avx512bf16, SMELT_AND(avx512), .leaf7_1_a = 1u << 5)
/* bf16, tiles, int8; the process must be allowed to use tiles, too */
SMELT_FEATURE(amx, SMELT_AND(avx512vnni) | SMELT_AND(avx512bf16), .leaf7_d = 1u << 22 | 1u << 24 | 1u << 25, .saved = 0x60000,
              .allowed = 0x60000)
SMELT_BUILD(v2, 0, SMELT_AND(sse4))
SMELT_BUILD(v3, 1, SMELT_AND(avx2))
SMELT_BUILD(avxvnni, -1, SMELT_AND(avxvnni))
SMELT_BUILD(v4, 2, SMELT_AND(avx512))
SMELT_BUILD(avx512vnni, -1, SMELT_AND(avx512vnni) | SMELT_AND(avx512bf16))
SMELT_BUILD(amx, -1, SMELT_AND(amx))
#endif
#undef SMELT_AND
