/*
 * base/isa.c -- the processor's instruction sets, limited by TANDEM_MAX_ISA
 */
#include "base/isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

static const char *const names[TD_N_ISA] = { "generic", "avx2", "avx512", "avx512_bf16",
                                             "amx_bf16" };

#if defined(__x86_64__)
/* not every compiler's __builtin_cpu_supports knows "f16c" and "amx-bf16" */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* does the kernel save the state of tiles?  Only asked where AVX2 has been found */
static bool saves_tiles(void)
{
    enum { TILE_CONFIG = 1 << 17, TILE_DATA = 1 << 18 };
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_CONFIG) && (low & TILE_DATA);
}

/* tiles, and products of both bfloat16 and 8-bit integers, which all such processors have */
static bool has_amx(void)
{
    enum { FEATURES = 7, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    const unsigned all = AMX_BF16 | AMX_TILE | AMX_INT8;
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (d & all) == all && saves_tiles();
}

static td_isa of_processor(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2") || !has_f16c())
        return TD_ISA_GENERIC;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return TD_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512bf16"))
        return TD_ISA_AVX512;
    return has_amx() ? TD_ISA_AMX_BF16 : TD_ISA_AVX512_BF16;
}

bool td_isa_has_vnni(void)
{
    return td_isa_has(TD_ISA_AVX512) && __builtin_cpu_supports("avx512vnni");
}

/* Linux saves the state of tiles, 8 KB a thread, only for processes that have asked */
static bool may_use_tiles(void)
{
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

bool td_isa_has_tiles(void)
{
    static _Atomic int known = -1;
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    if (has < 0) {
        has = td_isa_has(TD_ISA_AMX_BF16) && may_use_tiles();
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has;
}
#else
static td_isa of_processor(void)
{
    return TD_ISA_GENERIC;
}

bool td_isa_has_vnni(void)
{
    return false;
}

bool td_isa_has_tiles(void)
{
    return false;
}
#endif

/* the member of td_isa with this name; -1: none */
static int find(const char *name)
{
    for (int i = 0; i < TD_N_ISA; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static const char *limit(void)
{
    const char *v = getenv("TANDEM_MAX_ISA");
    return v && *v ? v : NULL;
}

/* CPUID is slow on a virtual machine, so the answer is kept; the variable is read once, so that all
   kernels of a process agree */
td_isa td_isa_best(void)
{
    static _Atomic int known = -1;
    int best = atomic_load_explicit(&known, memory_order_relaxed);
    if (best < 0) {
        const char *name = limit();
        const int most = name ? find(name) : -1;
        best = (int)of_processor();
        best = most >= 0 && most < best ? most : best;
        atomic_store_explicit(&known, best, memory_order_relaxed);
    }
    return (td_isa)best;
}

bool td_isa_is_limited(void)
{
    return td_isa_best() < of_processor();
}

bool td_isa_has(td_isa isa)
{
    return isa <= td_isa_best();
}

int td_isa_loops(void)
{
#if defined(__x86_64__)
    return td_isa_has(TD_ISA_AVX512) ? 0 : td_isa_has(TD_ISA_AVX2) ? 1 : 2;
#else
    return 0;
#endif
}

const char *td_isa_name(td_isa isa)
{
    return names[isa];
}

td_status td_isa_check(void)
{
    const char *name = limit();
    return !name || find(name) >= 0
               ? TD_OK
               : td_error(TD_EUSAGE,
                          "TANDEM_MAX_ISA is '%s', wanted generic, avx2, avx512, avx512_bf16 or "
                          "amx_bf16",
                          name);
}
