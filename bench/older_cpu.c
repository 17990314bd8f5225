/* Loaded before a program (LD_PRELOAD): the program sees this CPU without AVX-512 and what came with it.
 *
 * Input: Linux on an Intel CPU that can fault on CPUID; OLDER_CPU_INFO, a file to be read as /proc/cpuinfo. Output: every
 * CPUID instruction of the process is answered here, with the bits of the newer extensions cleared. Invariant: nothing but
 * the answers changes; a fault that is not a CPUID instruction goes on to the handler that the program has set.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, FAULT = 0, ALLOW = 1 };

typedef int set_action(int, const struct sigaction*, struct sigaction*);
static struct sigaction theirs;

static set_action* real_sigaction(void) {
  static set_action* found;
  if (!found) *(void**)&found = dlsym(RTLD_NEXT, "sigaction");
  return found;
}

/* Leaf 7: AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL in EBX; VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ in
 * ECX; 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, FP16 in EDX. Its subleaf 1: AVX-VNNI, AVX512-BF16, AMX-FP16, AVX-IFMA in EAX. */
static const uint32_t ebx7 = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
static const uint32_t ecx7 = 1u << 1 | 1u << 6 | 1u << 8 | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 14;
static const uint32_t edx7 = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;
static const uint32_t eax71 = 1u << 4 | 1u << 5 | 1u << 21 | 1u << 23;

static void set_cpuid(unsigned long mode) { syscall(SYS_arch_prctl, SET_CPUID, mode); }

static void answer(greg_t* registers) {
  const uint32_t leaf = (uint32_t)registers[REG_RAX], sub = (uint32_t)registers[REG_RCX];
  uint32_t a, b, c, d;
  set_cpuid(ALLOW);
  __cpuid_count(leaf, sub, a, b, c, d);
  set_cpuid(FAULT);
  if (leaf == 7 && sub == 0) b &= ~ebx7, c &= ~ecx7, d &= ~edx7;
  if (leaf == 7 && sub == 1) a &= ~eax71, d = 0;
  if (leaf == 0x24) a = b = c = d = 0; /* AVX10 */
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

static void on_fault(int number, siginfo_t* info, void* context) {
  ucontext_t* at = context;
  const uint8_t* code = (const uint8_t*)at->uc_mcontext.gregs[REG_RIP];
  if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
    answer(at->uc_mcontext.gregs);
  } else if (theirs.sa_flags & SA_SIGINFO && theirs.sa_sigaction) {
    theirs.sa_sigaction(number, info, context);
  } else if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
    theirs.sa_handler(number);
  } else {
    real_sigaction()(number, &theirs, NULL); /* the default: the instruction faults once more, and ends the process */
  }
}

/* The program may set a handler of its own, by either function: it is kept beside this one. */
int sigaction(int number, const struct sigaction* restrict now, struct sigaction* restrict before) {
  if (number != SIGSEGV) return real_sigaction()(number, now, before);
  if (before) *before = theirs;
  if (now) theirs = *now;
  return 0;
}

__sighandler_t signal(int number, __sighandler_t handler) {
  struct sigaction now, before;
  memset(&now, 0, sizeof now);
  now.sa_handler = handler;
  now.sa_flags = SA_RESTART;
  return sigaction(number, &now, &before) ? SIG_ERR : before.sa_handler;
}

/* What the operating system says of the CPU must agree. */
static const char* path_of(const char* path) { return strcmp(path, "/proc/cpuinfo") ? path : OLDER_CPU_INFO; }

static mode_t mode_of(int flags, va_list arguments) {
  return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(NAME)                                        \
  int NAME(const char* path, int flags, ...) {            \
    static int (*real)(const char*, int, ...);            \
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, #NAME);  \
    va_list arguments;                                    \
    va_start(arguments, flags);                           \
    const mode_t mode = mode_of(flags, arguments);        \
    va_end(arguments);                                    \
    return real(path_of(path), flags, mode);              \
  }
#define FOPEN(NAME)                                       \
  FILE* NAME(const char* path, const char* mode) {        \
    static FILE* (*real)(const char*, const char*);       \
    if (!real) *(void**)&real = dlsym(RTLD_NEXT, #NAME);  \
    return real(path_of(path), mode);                     \
  }
OPEN(open)
OPEN(open64)
FOPEN(fopen)
FOPEN(fopen64)

__attribute__((constructor)) static void begin(void) {
  struct sigaction mine;
  memset(&mine, 0, sizeof mine);
  mine.sa_sigaction = on_fault;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (real_sigaction()(SIGSEGV, &mine, &theirs) || syscall(SYS_arch_prctl, SET_CPUID, FAULT)) {
    fputs("older_cpu: this CPU or kernel does not fault on CPUID\n", stderr);
    exit(1);
  }
}
