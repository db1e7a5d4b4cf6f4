/*
 * base/isa.h -- the instruction sets that this process may use
 *
 * The environment variable TANDEM_MAX_ISA limits them to one of the names of td_isa_name, as if the
 * processor did not have the others: to measure or to test what runs on smaller processors.
 */
#ifndef TD_BASE_ISA_H
#define TD_BASE_ISA_H

#include <stdbool.h>

#include "tandem/status.h"

/* each includes those before it; all but the first are x86's */
typedef enum {
    TD_ISA_GENERIC,
    TD_ISA_AVX2,        /* with FMA, F16C and BMI2 */
    TD_ISA_AVX512,      /* F, BW, DQ and VL */
    TD_ISA_AVX512_BF16, /* products of pairs of bfloat16 */
    TD_ISA_AMX_BF16,    /* products of matrices of bfloat16 */
    TD_N_ISA
} td_isa;

/** The largest that the processor has and TANDEM_MAX_ISA allows; the processor's own where the
    variable is not set, or is none of the names.  Thread-safe; asks once. */
td_isa td_isa_best(void);

/** Does TANDEM_MAX_ISA limit them below what the processor has? */
bool td_isa_is_limited(void);

/** May this be used? */
bool td_isa_has(td_isa isa);

/** The place of the best loops of a file that compiles them for AVX-512, AVX2 and plain C, in this
    order; 0 where there are only the last. */
int td_isa_loops(void);

/** May vpdpbusd with AVX-512 be used (sums of products of 8-bit integers)? */
bool td_isa_has_vnni(void);

/** May the process use the tiles of AMX?  The first call asks the kernel for them. */
bool td_isa_has_tiles(void);

/** "generic", "avx2", "avx512", "avx512_bf16", "amx_bf16". */
const char *td_isa_name(td_isa isa);

/** TD_EUSAGE if TANDEM_MAX_ISA is set to none of the names. */
TD_CHECKED td_status td_isa_check(void);

#endif
