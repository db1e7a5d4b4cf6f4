/*
 * gpu_plugin.c -- finds, loads and opens the GPU plug-in; the memory of the GPU
 */
#include "runtime/gpu_plugin.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/plugin.h"
#include "runtime/device_memory.h"

static const char *const cuda = "libtandem_cuda.so";
static const td_gpu_plugin *plugin; /* under the lock, until it is set */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static td_status load(const td_gpu_plugin **out)
{
    char path[TD_PLUGIN_PATH_BYTES];
    td_gpu_info info;
    void *library = td_plugin_open(getenv("TANDEM_GPU_PLUGIN"), cuda, path);
    if (!library)
        return td_error(TD_ENOTFOUND,
                        "device cuda: its plug-in cannot be loaded (%s): build it with 'make cuda'",
                        td_plugin_error());
    const td_gpu_plugin *p = td_plugin_symbol(library, TD_GPU_PLUGIN_SYMBOL);
    if (!p || p->version != TD_GPU_PLUGIN_VERSION)
        return td_error(TD_ENOTFOUND, "'%s' was built for another version of this program", path);
    const char *message = p->open(0, &info);
    if (message)
        return td_error(TD_ENOTFOUND, "device cuda: %s", message);
    *out = p;
    return TD_OK;
}

td_status td_gpu_open(const td_gpu_plugin **out)
{
    (void)pthread_mutex_lock(&lock);
    td_status st = plugin ? TD_OK : load(&plugin);
    (void)pthread_mutex_unlock(&lock);
    *out = plugin;
    return st;
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

static void *gpu_alloc(size_t n)
{
    void *p = NULL;
    const char *message = plugin->alloc(n, &p);
    if (message)
        (void)td_error(TD_ENOMEM, "%s", message);
    return p;
}

static void gpu_free(void *p, size_t n)
{
    (void)n;
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

static void nothing(void)
{
}

const td_device_memory td_gpu_memory = { .name = "cuda",
                                         .alloc = gpu_alloc,
                                         .free = gpu_free,
                                         .copy_in = gpu_copy_in,
                                         .copy_out = gpu_copy_out,
                                         .fill = gpu_fill,
                                         .sync = gpu_sync,
                                         .begin_kernels = nothing,
                                         .end_kernels = nothing };
