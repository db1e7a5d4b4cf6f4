/*
 * base/machine.h -- properties of the processor and the memory, and this process's use of memory
 *
 * In a container, the limits of its control group apply.
 */
#ifndef TD_BASE_MACHINE_H
#define TD_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/** Nanoseconds since this process was started, from /proc; 0: unknown. */
int64_t td_since_start_ns(void);

int td_cpu_count(void); /* usable processors: by affinity and cgroup quota */

/** Physical cores with usable processors, at most the cgroup quota: the hardware threads of a core
    count once.  Reads the topology: takes milliseconds. */
int td_core_count(void);

/** The sizes of the last-level caches of usable processors, in bytes; 0: not known.  Reads the
    topology: takes milliseconds. */
int64_t td_cache_bytes(void);

/** The same of their L2 caches. */
int64_t td_core_cache_bytes(void);

/** The cores for each of `n_sharing` processes with this affinity, if `n_all` processes with any
    affinity share the cgroup quota; at least 1. */
int td_core_share(int n_sharing, int n_all);

const char *td_cpu_name(void); /* "AMD EPYC ..." or "unknown" */

enum { TD_BF16_RATE_PAIRS = 2, TD_BF16_RATE_MATRICES = 16 };

/** Products of bfloat16 in the time of one of float32: with AVX512-BF16, with AMX; else 1. */
int td_cpu_bf16_rate(void);

int64_t td_memory_total_bytes(void);

/** Bytes that this process can use in all: those it uses now and those available on the machine, at
    most the limit of its control groups. */
int64_t td_memory_available_bytes(void);
int64_t td_memory_peak_bytes(void); /* this process's peak resident set */
int64_t td_memory_now_bytes(void);

/** Return freed memory that the C library retains to the system; takes milliseconds. */
void td_memory_trim(void);

/** Zeroed pages from the system, for large buffers.  Counts as one allocation for
    td_alloc_fail_at. */
void *td_pages_alloc(size_t bytes) TD_CHECKED;
void td_pages_free(void *p, size_t bytes);

#endif
