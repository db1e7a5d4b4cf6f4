/*
 * gpu_plugin.c -- finds, loads and opens the GPU plug-in; the memory of the GPU
 */
#include "device/gpu_plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/plugin.h"
#include "device/device_memory.h"
#include "transport/rank_env.h"

static const char *const cuda = "libtandem_cuda.so";
static const td_gpu_plugin *plugin; /* under the lock, until it is set */
static bool is_described;           /* nothing is open */
static td_gpu_info opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int64_t n_allocated, n_peak; /* bytes of the GPU, and the most at once */

static td_status no_library(const char *path)
{
    /* a library that is there, but lacks another one or has undefined symbols, needs no building */
    const char *advice = access(path, F_OK) == 0 ? "" : ": build it with 'make cuda'";
    return td_error(TD_ENOTFOUND, "device cuda: its plug-in cannot be loaded (%s)%s",
                    td_plugin_error(), advice);
}

static td_status load(const td_gpu_plugin **out, char path[TD_PLUGIN_PATH_BYTES])
{
    void *library = td_plugin_open(getenv("TANDEM_GPU_PLUGIN"), cuda, path);
    if (!library)
        return no_library(path);
    const td_gpu_plugin *p = td_plugin_symbol(library, TD_GPU_PLUGIN_SYMBOL);
    if (!p)
        return td_error(TD_ENOTFOUND,
                        "device cuda: '%s' is no GPU plug-in of this version: no symbol %s", path,
                        TD_GPU_PLUGIN_SYMBOL);
    if (p->version != TD_GPU_PLUGIN_VERSION)
        return td_error(TD_ENOTFOUND,
                        "device cuda: '%s' has version %d of the plug-in's interface, wanted %d: "
                        "build it again with 'make cuda'",
                        path, p->version, TD_GPU_PLUGIN_VERSION);
    *out = p;
    return TD_OK;
}

/* this rank's among those of its machine; a job that joins no ranks may run where none can */
static int own_index(void)
{
    td_rank_place place;
    if (td_ranks_here(&place) == TD_OK)
        return place.local_rank;
    td_error_clear();
    return 0;
}

static td_status load_and_open(void)
{
    char path[TD_PLUGIN_PATH_BYTES];
    const td_gpu_plugin *p;
    TD_TRY(load(&p, path));
    const char *message = p->open(own_index(), &opened);
    if (message)
        return td_error(TD_ENOTFOUND, "device cuda: %s", message);
    plugin = p;
    is_described = false;
    return TD_OK;
}

td_status td_gpu_open(const td_gpu_plugin **out)
{
    (void)pthread_mutex_lock(&lock);
    td_status st = plugin && !is_described ? TD_OK : load_and_open();
    (void)pthread_mutex_unlock(&lock);
    *out = st == TD_OK ? plugin : NULL;
    return st;
}

const td_gpu_info *td_gpu_opened(void)
{
    return &opened;
}

td_status td_gpu_look(td_gpu_survey *out, char *path)
{
    const td_gpu_plugin *p;
    *out = (td_gpu_survey){ 0 };
    (void)pthread_mutex_lock(&lock);
    td_status st = load(&p, path);
    if (st == TD_OK)
        p->survey(out);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

/* --- a GPU that is not here ------------------------------------------------------------------- */

/* what cuDNN 9 fuses for an H200 (tests/golden/cuda_plans.txt) */
static const char *plan_no_conv(const td_gpu_conv_plan *a)
{
    if (!a->has_statistics && !a->has_scale_relu)
        return NULL;
    if (a->groups > 1)
        return "convolutions of groups are not fused";
    if (a->has_statistics && (a->dtype != TD_DT_F16 || a->c % 8 != 0))
        return "sums are computed in f16 only, of a multiple of 8 channels";
    if (a->direction == TD_GPU_FILTER_GRADIENT && (a->dtype != TD_DT_F16 || a->wide_vectors))
        return "filter gradients are fused in f16 only, with scale and shift in f16";
    return NULL;
}

static const char *free_no_conv(const td_gpu_conv_free *a)
{
    (void)a;
    return NULL;
}

static const char *plan_no_gemm(const td_gpu_gemm_plan *a)
{
    (void)a;
    return NULL;
}

static const char *free_no_gemm(const td_gpu_gemm_free *a)
{
    (void)a;
    return NULL;
}

static const td_gpu_plugin no_plugin = { .conv_plan = plan_no_conv,
                                         .conv_free = free_no_conv,
                                         .gemm_plan = plan_no_gemm,
                                         .gemm_free = free_no_gemm };

static td_status load_and_describe(const char *json)
{
    char path[TD_PLUGIN_PATH_BYTES];
    const td_gpu_plugin *p = &no_plugin;
    if (plugin && !is_described)
        return td_error(TD_EUSAGE, "device cuda is open: it cannot stand for another GPU");
    if (json)
        TD_TRY(load(&p, path));
    const char *message = json ? p->describe(json) : NULL;
    if (message)
        return td_error(TD_ENOTFOUND, "device cuda: %s", message);
    plugin = p;
    is_described = true;
    return TD_OK;
}

td_status td_gpu_describe(const char *json)
{
    (void)pthread_mutex_lock(&lock);
    td_status st = load_and_describe(json);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

td_status td_gpu_properties(char *json, size_t room)
{
    (void)pthread_mutex_lock(&lock);
    const char *message = plugin->properties(json, room);
    (void)pthread_mutex_unlock(&lock);
    return message ? td_error(TD_EDEVICE, "device cuda: %s", message) : TD_OK;
}

const td_gpu_plugin *td_gpu(void)
{
    return plugin;
}

td_status td_gpu_status(const char *message)
{
    return message ? td_error(TD_EDEVICE, "%s", message) : TD_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

td_status td_gpu_free_bytes(int64_t *out)
{
    size_t n_free = 0, n_total = 0;
    TD_TRY(td_gpu_status(plugin->memory(&n_free, &n_total)));
    *out = (int64_t)n_free;
    return TD_OK;
}

td_status td_gpu_memory_used(td_gpu_memory_use *out)
{
    size_t n_free = 0, n_total = 0;
    TD_TRY(td_gpu_status(plugin->memory(&n_free, &n_total)));
    *out = (td_gpu_memory_use){ .now = atomic_load(&n_allocated),
                                .peak = atomic_load(&n_peak),
                                .total = (int64_t)n_total };
    const int64_t other = out->total - (int64_t)n_free - out->now;
    out->other = other > 0 ? other : 0;
    return TD_OK;
}

void td_gpu_memory_count(int64_t bytes)
{
    const int64_t now = atomic_fetch_add(&n_allocated, bytes) + bytes;
    int64_t peak = atomic_load(&n_peak);
    while (peak < now && !atomic_compare_exchange_weak(&n_peak, &peak, now))
        ;
}

static void *gpu_alloc(size_t n)
{
    void *p = NULL;
    const char *message = plugin->alloc(n, &p);
    if (message) {
        (void)td_error(TD_ENOMEM, "%s", message);
        return NULL;
    }
    td_gpu_memory_count((int64_t)n);
    return p;
}

static void gpu_free(void *p, size_t n)
{
    if (p)
        td_gpu_memory_count(-(int64_t)n);
    plugin->free(p);
}

static td_status gpu_copy_in(void *to, const void *from_host, size_t n)
{
    return td_gpu_status(plugin->copy_in(to, from_host, n));
}

static td_status gpu_copy_out(void *to_host, const void *from, size_t n)
{
    return td_gpu_status(plugin->copy_out(to_host, from, n));
}

static td_status gpu_fill(void *p, int byte, size_t n)
{
    return td_gpu_status(plugin->fill(p, byte, n));
}

static td_status gpu_sync(void)
{
    return td_gpu_status(plugin->sync());
}

static void *gpu_host_alloc(size_t n)
{
    void *p = NULL;
    const char *message = plugin->host_alloc(n, &p);
    if (message)
        (void)td_error(TD_ENOMEM, "%s", message);
    return message ? NULL : p;
}

static void gpu_host_free(void *p, size_t n)
{
    (void)n;
    plugin->host_free(p);
}

static td_status gpu_queue_in(void *to, const void *host, size_t n)
{
    return td_gpu_status(plugin->queue_in(to, host, n));
}

static td_status gpu_queue_out(void *host, const void *from, size_t n)
{
    return td_gpu_status(plugin->queue_out(host, from, n));
}

static td_status gpu_wait_ahead(int slot)
{
    return td_gpu_status(plugin->wait_ahead(slot));
}

static td_status gpu_send_ahead(int slot, void *to, const void *host, size_t n)
{
    return td_gpu_status(plugin->send_ahead(slot, to, host, n));
}

static td_status gpu_take_ahead(int slot, void *to, const void *from, size_t n)
{
    return td_gpu_status(plugin->take_ahead(slot, to, from, n));
}

static td_status gpu_begin_capture(void)
{
    return td_gpu_status(plugin->begin_capture());
}

static td_status gpu_end_capture(void **graph)
{
    return td_gpu_status(plugin->end_capture(graph));
}

static void gpu_end_capture_failed(void)
{
    (void)plugin->end_capture(NULL);
}

static td_status gpu_run_captured(void *graph)
{
    return td_gpu_status(plugin->run_captured(graph));
}

static void gpu_free_captured(void *graph)
{
    plugin->free_captured(graph);
}

static void nothing(void)
{
}

_Static_assert((int)TD_GPU_AHEAD == (int)TD_DEVICE_AHEAD, "as many slots");

const td_device_memory td_gpu_memory = { .name = "cuda",
                                         .alloc = gpu_alloc,
                                         .free = gpu_free,
                                         .copy_in = gpu_copy_in,
                                         .copy_out = gpu_copy_out,
                                         .fill = gpu_fill,
                                         .sync = gpu_sync,
                                         .host_alloc = gpu_host_alloc,
                                         .host_free = gpu_host_free,
                                         .queue_in = gpu_queue_in,
                                         .queue_out = gpu_queue_out,
                                         .wait_ahead = gpu_wait_ahead,
                                         .send_ahead = gpu_send_ahead,
                                         .take_ahead = gpu_take_ahead,
                                         .begin_capture = gpu_begin_capture,
                                         .end_capture = gpu_end_capture,
                                         .end_capture_failed = gpu_end_capture_failed,
                                         .run_captured = gpu_run_captured,
                                         .free_captured = gpu_free_captured,
                                         .begin_kernels = nothing,
                                         .end_kernels = nothing };
