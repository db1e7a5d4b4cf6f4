/*
 * device/device_memory.h -- the memory of a device: parameters, activations and inputs of programs
 *
 * Host memory is that of the processor: every function may use it.  Other memory is used only by
 * kernels, between begin_kernels and end_kernels, and by the functions below.
 *
 * A device may queue kernels, copies and fills: they run in the order in which they were queued,
 * after the function that queued them has returned.  `sync` waits for them.
 *
 * Guarded memory has host addresses, but pages that cannot be accessed except by kernels and
 * copies.  TANDEM_GUARD_MEMORY=1 selects it for tests: what works with it does not use the
 * addresses of a program outside runtime/, device/ and backend/, as memory of a GPU requires.
 */
#ifndef TD_DEVICE_DEVICE_MEMORY_H
#define TD_DEVICE_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { TD_DEVICE_AHEAD = 2 }; /* slots of copies ahead */

typedef struct {
    const char *name;
    bool is_host;
    void *(*alloc)(size_t n); /* zeros, aligned to TD_HOST_ALIGN; NULL, with the message set */
    void (*free)(void *p, size_t n); /* waits, like sync */

    /* the caller may change from_host after copy_in; copy_out waits, like sync */
    td_status (*copy_in)(void *to, const void *from_host, size_t n);
    td_status (*copy_out)(void *to_host, const void *from, size_t n);
    td_status (*fill)(void *p, int byte, size_t n);

    /* Memory of the host for queued copies; NULL, with the message set. */
    void *(*host_alloc)(size_t n);
    void (*host_free)(void *p, size_t n);

    /* Queued copies: `host` is memory of host_alloc, which is used until the next sync. */
    td_status (*queue_in)(void *to, const void *host, size_t n);
    td_status (*queue_out)(void *host, const void *from, size_t n);

    /*
     * Copies on a second queue, which run while the first one computes:
     *
     *     wait_ahead(slot)   until all that was sent in this slot has arrived, so that `host` may
     *                        be changed
     *     send_ahead         follows the last take_ahead before it, of any slot
     *     take_ahead         within the device, on the first queue; follows the slot's send_ahead
     */
    td_status (*wait_ahead)(int slot);
    td_status (*send_ahead)(int slot, void *to, const void *host, size_t n);
    td_status (*take_ahead)(int slot, void *to, const void *from, size_t n);

    /*
     * Between begin_capture and end_capture nothing runs: what is queued becomes a graph, which
     * run_captured queues.  end_capture_failed: there is no graph.  NULL without `captures` of the
     * device.
     */
    td_status (*begin_capture)(void);
    td_status (*end_capture)(void **graph);
    void (*end_capture_failed)(void);
    td_status (*run_captured)(void *graph);
    void (*free_captured)(void *graph);

    /* wait until all that was queued on the first queue is done; TD_EDEVICE: a part of it failed */
    td_status (*sync)(void);

    void (*begin_kernels)(void); /* pairs may be nested, also by several threads */
    void (*end_kernels)(void);
} td_device_memory;

extern const td_device_memory td_host_memory, td_guarded_memory;
extern const td_device_memory td_gpu_memory; /* after td_gpu_open */

/** Guarded memory if TANDEM_GUARD_MEMORY is 1, host memory if it is 0 or not set; TD_EUSAGE. */
TD_CHECKED td_status td_device_memory_choose(const td_device_memory **out);

#endif
