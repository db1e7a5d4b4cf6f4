/*
 * process.c -- sets up the process before other code runs: standard files, OpenMP's wait policy,
 * file size limits; and sets the number of compute threads
 *
 * libgomp reads GOMP_SPINCOUNT in its constructor, before main, so setting it in main is too late
 * for this process image; exec restarts the process.  5000 spins are a few microseconds: longer
 * than the gap between two kernels, shorter than another process's time slice.
 */
#include <stdlib.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/file_io.h"
#include "base/machine.h"
#include "base/signals.h"
#include "tandem/program.h"

#define MARK "TANDEM_STARTED" /* set before exec, so that there is only one */

void td_process_setup(char **argv)
{
    td_standard_files_open(); /* first, because the next open would get their descriptor numbers */
    td_signals_ignore_file_limit();
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv(MARK))
        return;
    if (setenv("GOMP_SPINCOUNT", "5000", 1) != 0 || setenv(MARK, "1", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* returns only on failure: the process continues */
}

void td_set_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n > 0 ? n : td_cpu_count());
#else
    (void)n;
#endif
}

int td_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}
