/*
 * first_touch.c -- memory is touched first by the threads that will use it
 *
 * A page gets memory of the NUMA node whose processor touches it first.  If one thread filled all
 * parameters of a training, their pages would be on one node, and the updates of the threads of
 * other nodes would read and write there.  So this memory is touched once, when it is allocated:
 * each thread touches its share of every tensor, in the order in which kernels divide tensors
 * (OpenMP's static order).  Activations need nothing: the kernel that writes one first has divided
 * it.  Nor do parameters that do not change: every thread reads all of them.
 */
#include <unistd.h>

#include "runtime/program_parts.h"
#include "tandem/program.h"

void td_touch_share(char *p, size_t bytes, int t, int threads)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t from = bytes / (size_t)threads * (size_t)t;
    const size_t to = t + 1 < threads ? bytes / (size_t)threads * ((size_t)t + 1) : bytes;
    for (size_t i = (from + page - 1) / page * page; i < to; i += page)
        *(volatile char *)(p + i) = 0; /* new memory is zeros */
}
