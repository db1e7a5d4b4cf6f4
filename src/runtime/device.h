/*
 * runtime/device.h -- a device: backends in order of preference, seen as a target by the passes
 */
#ifndef TD_RUNTIME_DEVICE_H
#define TD_RUNTIME_DEVICE_H

#include "comm/comm.h"
#include "runtime/autotune.h"
#include "runtime/kernel.h"
#include "tandem/program.h"

#define TD_BACKENDS_MAX 8

struct td_device {
    const char *name;
    const td_backend *backends[TD_BACKENDS_MAX]; /* best first */
    int n_backends;
    bool emulates; /* half types by float32 kernels (emulate_half.h), before `ref` is asked */
    td_target target;
    td_tuner *tuner; /* NULL: nothing measured is used */
    td_comm *comm;   /* lent; NULL: one rank */
};

/** Programs compiled on `dev` from now on run among these ranks; `c` is kept.  NULL: alone. */
void td_device_join(td_device *dev, td_comm *c);

/** All backends of this build, best first; NULL past the end. */
const td_backend *td_backend_at(int i);

/**
 * The first kernel that accepts `n`: a backend's own, then emulation by a float32 kernel, `ref` at
 * last; NULL when none does.  When `why` is not NULL it collects "dnnl_conv: groups is 1; ..." of
 * every kernel that refused before.
 */
const td_kernel *td_device_select(const td_device *dev, const td_node *n, td_text *why);

/**
 * The kernel that node `n` of a program gets: what was measured as the fastest, else the one that
 * td_device_select gives.  *out is NULL where there is none.
 */
td_status td_device_choose(const td_device *dev, const td_node *n, const td_kernel **out,
                           td_text *why) TD_CHECKED;

/*
 * Direct: what backends do with the types that a node has.  The kernel reads and writes these types
 * itself, without emulation, and `ref` is not asked.
 */

/** The first kernel of any backend but `ref` that accepts `n`; `why` as in td_device_select. */
const td_kernel *td_direct_select(const td_node *n, td_text *why);

/** The layouts that the first backend with a preference prefers; false: none has one. */
bool td_direct_wish(const td_node *n, td_layout_wish *out);

/**
 * All layouts that the backends prefer or have kernels for, k = 0, 1, ...: 0 is td_direct_wish; the
 * same layouts may come twice.  false past the end.
 */
bool td_direct_offer(const td_node *n, int k, td_layout_wish *out);

#endif
