/*
 * tandem/device.h -- where programs run: devices, compute threads, measured kernels
 */
#ifndef TD_DEVICE_H
#define TD_DEVICE_H

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_device td_device;

/**
 * "cpu": the fastest kernels there are, the reference ones last.  "cuda": an NVIDIA GPU, by the
 * plug-in libtandem_cuda.so.  "auto": cuda if a GPU can be used, else cpu; logs which, and why.
 * "ref": only the plain C reference kernels, which know float64 too.
 *
 * TD_EUSAGE: there is no such device; the message lists them.  TD_ENOTFOUND: "cuda" cannot be
 * used; the message says whether the plug-in, the driver, a GPU, cuDNN or cuBLASLt is missing or
 * too old.
 */
TD_API TD_CHECKED td_status td_device_open(const char *name, td_device **out);
TD_API void td_device_close(td_device *dev);

/**
 * Whether kernels and layouts are chosen by measuring.  Results of OFF and QUICK have the same bits
 * unless FULL was used before with the same cache; those of FULL may be rounded differently.
 */
typedef enum {
    TD_TUNE_OFF,    /* the libraries' own order */
    TD_TUNE_CACHED, /* what was measured on this machine before */
    TD_TUNE_QUICK,  /* and kernels of the costliest nodes are timed when a graph is compiled: on
                       device cpu with one rank, for at most 2 s in all and 3 % of the planned runs
                       (td_compile_opts); of kernels that give the same bits the fastest is used */
    TD_TUNE_FULL,   /* and all that is missing is measured */
} td_tune_mode;

/**
 * How programs compiled on `dev` from now on get their kernels; TD_TUNE_OFF until then.  What is
 * measured is kept in `cache`, a file; NULL: $XDG_CACHE_HOME/tandem/tune-HASH.txt, one for each
 * processor, number of threads (set that before) and library.  A file that cannot be used or
 * written is warned about.  TD_ENOMEM.
 */
TD_API TD_CHECKED td_status td_device_tune(td_device *dev, td_tune_mode mode, const char *cache);

/** How 3x3 convolutions of stride 1 or 2 are computed. */
typedef enum {
    TD_WINOGRAD_AUTO, /* in float32 by Winograd's algorithm where that needs fewer operations */
    TD_WINOGRAD_OFF,  /* directly */
} td_winograd_mode;

/** For programs compiled on `dev` from now on; TD_WINOGRAD_AUTO until then. */
TD_API void td_device_winograd(td_device *dev, td_winograd_mode mode);

/**
 * Programs compiled on `dev` from now on have no kernels whose sums differ from run to run: cuDNN's
 * convolutions that leave the sums for batch norms, in half precision on a GPU.
 */
TD_API void td_device_reproducible(td_device *dev);

/**
 * Set the number of compute threads of this process; 0: one for each physical core that it may use,
 * at most its cgroup quota.  Threads are bound to cores if there are 8 cores or more, each has one
 * thread, and no environment variable begins with OMP_.
 */
TD_API void td_set_threads(int n);
TD_API int td_threads(void);

/** Where a job runs its programs, and how they are compiled: a member of every job's options. */
typedef struct {
    const char *name;       /* "cpu", "cuda", "auto" or "ref": see td_device_open */
    int threads;            /* compute threads; 0: one per core, of several ranks a share */
    td_tune_mode tune;      /* as td_device_tune */
    const char *tune_cache; /* likewise; NULL: the default place */
    td_winograd_mode winograd;

    /* as td_compile_opts; jobs without an option for one leave it NULL */
    const char *skip_passes; /* passes to leave out, "fuse,layout" */
    const char *dump_after;  /* passes whose result is dumped, or "all" */
    const char *dump_dir;    /* a folder for the dumps, a file a pass; NULL: into the log */
} td_device_opts;

#ifdef __cplusplus
}
#endif
#endif
