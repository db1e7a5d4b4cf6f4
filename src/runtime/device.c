/*
 * device.c -- opens devices, and answers the passes' queries about them
 */
#include "runtime/device.h"

#include <string.h>

#include "base/arena.h"
#include "runtime/backends.h"
#include "runtime/emulate_half.h"
#include "runtime/kernel_choice.h"

static bool supports(void *ctx, const td_node *n)
{
    return td_device_select(ctx, n, NULL) != NULL;
}

static bool preferred_layout(void *ctx, const td_node *n, td_node_layouts *out)
{
    const td_device *dev = ctx;
    const int k = dev->tuner ? td_tune_layout(dev->tuner, n) : 0;
    if (k && td_direct_candidate_layout(n, k, out))
        return true;
    return dev->emulates &&
           (td_direct_preferred_layout(n, out) || td_emulate_half_preferred_layout(n, out));
}

td_status td_device_open(const char *name, td_device **out)
{
    *out = NULL;
    bool is_cpu = !name || strcmp(name, "cpu") == 0;
    if (!is_cpu && strcmp(name, "ref") != 0)
        return td_error(TD_EUSAGE, "unknown device '%s', wanted cpu or ref", name);
    const td_device_memory *memory;
    TD_TRY(td_device_memory_choose(&memory));
    td_device *dev = TD_NEW(td_device);
    if (!dev)
        return TD_ENOMEM;
    dev->memory = memory;
    dev->name = is_cpu ? "cpu" : "ref";
    dev->emulates = is_cpu;
    const td_backend *b;
    for (int i = 0; (b = td_backend_at(i)); i++)
        if (is_cpu || td_backend_is_ref(b))
            dev->backends[dev->n_backends++] = b;
    dev->target =
        (td_target){ .ctx = dev, .supports = supports, .preferred_layout = preferred_layout };
    *out = dev;
    return TD_OK;
}

td_status td_device_tune(td_device *dev, td_tune_mode mode, const char *cache)
{
    td_tuner *t = NULL;
    if (mode != TD_TUNE_OFF && dev->emulates)
        TD_TRY(td_tuner_new(dev, mode, cache, &t));
    td_tuner_free(dev->tuner);
    dev->tuner = t;
    return TD_OK;
}

void td_device_join(td_device *dev, td_comm *c)
{
    dev->comm = c;
}

void td_device_close(td_device *dev)
{
    if (dev)
        td_tuner_free(dev->tuner);
    td_free(dev);
}
