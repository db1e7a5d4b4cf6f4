/*
 * device.c -- opens devices, and answers the passes' queries about them
 */
#include "runtime/device.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/isa.h"
#include "base/log.h"
#include "base/machine.h"
#include "device/gpu_plugin.h"
#include "device/gpu_ranks.h"
#include "ops/ops.h"
#include "options/env_switch.h"
#include "runtime/backends.h"
#include "runtime/emulate_half.h"
#include "runtime/kernel_choice.h"

static bool has_relu6(const td_node *n)
{
    return n->op == &td_op_conv2d_fused && ((const td_conv_attr *)n->attr)->relu6;
}

static bool supports(void *ctx, const td_node *n)
{
    const td_device *dev = ctx;
    return (dev->fuses_relu6 || !has_relu6(n)) && td_device_select(ctx, n, NULL) != NULL;
}

static bool preferred_layout(void *ctx, const td_node *n, td_node_layouts *out)
{
    const td_device *dev = ctx;
    const int k = dev->tuner && dev->memory->is_host ? td_tune_layout(dev->tuner, n) : 0;
    if (k && td_direct_candidate_layout(n, k, out))
        return true;
    if (dev->backends[0]->preferred_layout && !dev->emulates)
        return dev->backends[0]->preferred_layout(n, out);
    return dev->emulates &&
           (td_direct_preferred_layout(n, out) || td_emulate_half_preferred_layout(n, out));
}

static const void *multi(void *ctx, const td_node *n, int *chained)
{
    const td_kernel *k = td_device_select(ctx, n, NULL);
    *chained = k && k->multi ? k->multi->chained : -1;
    return k ? k->multi : NULL;
}

/* the backends of the processor, or the reference one alone */
static td_status open_processor(td_device *dev)
{
    const td_backend *b;
    TD_TRY(td_device_memory_choose(&dev->memory));
    for (int i = 0; (b = td_backend_at(i)); i++)
        if (dev->emulates || td_backend_is_ref(b))
            dev->backends[dev->n_backends++] = b;
    return TD_OK;
}

static void add_gpu(td_device *dev)
{
    dev->memory = &td_gpu_memory;
    dev->backends[dev->n_backends++] = td_backend_of_gpus();
    dev->target.has_tf32 = true;
    dev->target.fuses_gates = true;
    dev->target.multi = multi;
}

static td_status read_switches(td_device *dev)
{
    TD_TRY(td_env_switch("TANDEM_CUDA_GRAPH", true, &dev->captures));
    TD_TRY(td_env_switch("TANDEM_CUDA_RELU6", true, &dev->fuses_relu6));
    return td_env_switch("TANDEM_CUDA_NORMS", true, &dev->target.fuses_norms);
}

static td_status open_gpu(td_device *dev)
{
    const td_gpu_plugin *plugin;
    TD_TRY(read_switches(dev));
    TD_TRY(td_gpu_open(&plugin));
    add_gpu(dev);
    return TD_OK;
}

static td_device *new_device(const char *name)
{
    td_device *dev = TD_NEW(td_device);
    if (!dev)
        return NULL;
    dev->name = name;
    dev->fuses_relu6 = true;
    dev->target = (td_target){ .ctx = dev,
                               .supports = supports,
                               .preferred_layout = preferred_layout,
                               .bf16_rate = td_cpu_bf16_rate() };
    return dev;
}

td_status td_device_describe(const char *json, td_device **out)
{
    *out = NULL;
    TD_TRY(td_gpu_describe(json));
    td_device *dev = new_device("cuda");
    if (!dev)
        return TD_ENOMEM;
    dev->is_absent = true;
    add_gpu(dev);
    td_status st = read_switches(dev);
    if (st == TD_OK)
        *out = dev;
    else
        td_device_close(dev);
    return st;
}

/* one line about the GPU, in each process once */
static void log_gpu(bool is_auto)
{
    static atomic_flag is_logged = ATOMIC_FLAG_INIT;
    const td_gpu_info *i = td_gpu_opened();
    if (!atomic_flag_test_and_set(&is_logged))
        td_log(TD_LOG_INFO, "device", "%scuda, %s, compute capability %d.%d, %.1f GB",
               is_auto ? "auto: " : "", i->name, i->major, i->minor, 1e-9 * (double)i->bytes);
}

/* "cuda" if a GPU can be opened, else "cpu", with one line that has the reason */
static const char *choose_device(void)
{
    static atomic_flag is_logged = ATOMIC_FLAG_INIT;
    const td_gpu_plugin *plugin;
    if (td_gpu_open(&plugin) == TD_OK)
        return "cuda";
    if (!atomic_flag_test_and_set(&is_logged))
        td_log(TD_LOG_INFO, "device", "auto: cpu (%s)", td_error_message());
    return "cpu";
}

td_status td_device_open(const char *name, td_device **out)
{
    static const char *const names[] = { "cpu", "ref", "cuda" };
    enum { CPU, REF, CUDA, N };
    int kind = 0;
    *out = NULL;
    TD_TRY(td_isa_check());
    const bool is_auto = name && strcmp(name, "auto") == 0;
    if (is_auto)
        name = choose_device();
    while (name && kind < N && strcmp(name, names[kind]) != 0)
        kind++;
    if (kind == N)
        return td_error(TD_EUSAGE, "unknown device '%s', wanted cpu, cuda, auto or ref", name);
    td_device *dev = new_device(names[kind]);
    if (!dev)
        return TD_ENOMEM;
    dev->emulates = kind == CPU;
    dev->target.is_reference = kind == REF;
    td_status st = kind == CUDA ? open_gpu(dev) : open_processor(dev);
    if (st == TD_OK && kind == CUDA)
        log_gpu(is_auto);
    if (st == TD_OK)
        *out = dev;
    else
        td_device_close(dev);
    return st;
}

td_status td_device_tune(td_device *dev, td_tune_mode mode, const char *cache)
{
    td_tuner *t = NULL;
    const bool is_tuned = !dev->is_absent && (dev->emulates || !dev->memory->is_host);
    if (mode == TD_TUNE_FULL && !is_tuned)
        td_log(TD_LOG_WARN, "device", "--tune full has no effect on device %s", dev->name);
    if (mode == TD_TUNE_QUICK && dev->comm)
        mode = TD_TUNE_CACHED; /* ranks would disturb each other's timing */
    if (mode != TD_TUNE_OFF && is_tuned)
        TD_TRY(td_tuner_new(dev, mode, cache, &t));
    td_tuner_free(dev->tuner);
    dev->tuner = t;
    return TD_OK;
}

void td_device_winograd(td_device *dev, td_winograd_mode mode)
{
    dev->target.direct_only = mode == TD_WINOGRAD_OFF;
}

void td_device_reproducible(td_device *dev)
{
    dev->target.fuses_norms = false;
}

/* gradients are added on the host: by its transport? */
static void warn_if_not_fast(const td_comm *c)
{
    if (td_comm_rank(c) == 0 && td_comm_wanted_allreduce(c)->mode == TD_ALLREDUCE_FAST &&
        td_comm_allreduce(c)->mode != TD_ALLREDUCE_FAST)
        td_log(TD_LOG_WARN, "ranks",
               "--allreduce fast has no effect: only ranks started by MPI, or on GPUs, use it");
}

td_status td_device_join(td_device *dev, td_comm *c)
{
    dev->comm = c;
    if (!c)
        return TD_OK;
    TD_TRY(td_comm_agree(c, "device", dev->name)); /* `auto` may choose another one there */
    if (dev->memory == &td_gpu_memory)
        return td_gpus_join(c, dev->needs_group, &dev->adds_over_ranks);
    warn_if_not_fast(c);
    return TD_OK;
}

void td_device_leave(td_device *dev, td_status st)
{
    if (dev && dev->adds_over_ranks)
        td_gpus_leave(st == TD_OK);
    if (dev)
        dev->adds_over_ranks = false;
}

bool td_device_adds_fast(const td_device *dev)
{
    return dev->adds_over_ranks && td_comm_wanted_allreduce(dev->comm)->mode == TD_ALLREDUCE_FAST;
}

/* plans that passes have asked for and no program has taken */
static void forget_plans(void)
{
    (void)td_gpu()->conv_free(&(td_gpu_conv_free){ NULL });
}

void td_device_close(td_device *dev)
{
    td_device_leave(dev, TD_EDEVICE);
    if (dev && dev->memory == &td_gpu_memory)
        forget_plans();
    if (dev)
        td_tuner_free(dev->tuner);
    td_free(dev);
}
