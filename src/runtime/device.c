/*
 * device.c -- opening devices, asking their backends
 */
#include "runtime/device.h"

#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/arena.h"
#include "base/os.h"
#include "runtime/all_reduce.h"
#include "runtime/emulate_half.h"

#define BACKEND(name) extern const td_backend td_backend_##name;
#include "runtime/backends.def"
#undef BACKEND

static const td_backend *const all[] = {
#define BACKEND(name) &td_backend_##name,
#include "runtime/backends.def"
#undef BACKEND
};

#define N_BACKENDS ((int)(sizeof all / sizeof all[0]))
_Static_assert(sizeof all / sizeof all[0] <= TD_BACKENDS_MAX, "room for every backend");

const td_backend *td_backend_at(int i)
{
    return i >= 0 && i < N_BACKENDS ? all[i] : NULL;
}

const char *td_backend_name_at(int i, const char **description)
{
    const td_backend *b = td_backend_at(i);
    if (b && description)
        *description = b->description;
    return b ? b->name : NULL;
}

static bool is_ref(const td_backend *b)
{
    return strcmp(b->name, "ref") == 0;
}

static bool takes(const td_kernel *kernel, const td_node *n, td_text *why)
{
    if (kernel->accepts(n) == TD_OK)
        return true;
    if (why)
        td_text_add(why, "%s%s: %s", why->len ? "; " : "", kernel->name, td_error_message());
    return false;
}

static const td_kernel *select_from(const td_backend *b, const td_node *n, td_text *why)
{
    for (int k = 0; k < b->n_kernels; k++)
        if (b->kernels[k]->op == n->op && takes(b->kernels[k], n, why))
            return b->kernels[k];
    return NULL;
}

const td_kernel *td_direct_select(const td_node *n, td_text *why)
{
    const td_kernel *k = NULL;
    for (int b = 0; !k && b < N_BACKENDS; b++)
        k = is_ref(all[b]) ? NULL : select_from(all[b], n, why);
    return k;
}

bool td_direct_wish(const td_node *n, td_layout_wish *out)
{
    for (int b = 0; b < N_BACKENDS; b++)
        if (all[b]->wish && all[b]->wish(n, out))
            return true;
    return false;
}

bool td_direct_offer(const td_node *n, int k, td_layout_wish *out)
{
    for (int b = 0; b < N_BACKENDS; b++)
        if (all[b]->wish && all[b]->wish(n, out) && k-- == 0)
            return true;
    for (int b = 0; b < N_BACKENDS; b++)
        for (int i = 0; all[b]->offer && all[b]->offer(n, i, out); i++)
            if (k-- == 0)
                return true;
    return false;
}

static bool has_half(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_dtype d = (i < n->n_in ? n->in[i] : n->out[i - n->n_in])->type.dtype;
        if (td_dtype_is_half(d))
            return true;
    }
    return false;
}

const td_kernel *td_device_select(const td_device *dev, const td_node *n, td_text *why)
{
    const td_kernel *k = td_collective_select(n);
    for (int b = 0; !k && b < dev->n_backends; b++) {
        if (dev->emulates && is_ref(dev->backends[b]) && has_half(n) && takes(&td_widen, n, why))
            return &td_widen;
        k = select_from(dev->backends[b], n, why);
    }
    return k;
}

td_status td_device_choose(const td_device *dev, const td_node *n, const td_kernel **out,
                           td_text *why)
{
    const td_kernel *measured = NULL;
    *out = td_device_select(dev, n, why);
    if (*out && dev->tuner)
        TD_TRY(td_tune_choose(dev->tuner, n, &measured, why));
    if (measured)
        *out = measured;
    return TD_OK;
}

static bool supports(void *ctx, const td_node *n)
{
    return td_device_select(ctx, n, NULL) != NULL;
}

static bool wish(void *ctx, const td_node *n, td_layout_wish *out)
{
    const td_device *dev = ctx;
    const int k = dev->tuner ? td_tune_wish(dev->tuner, n) : 0;
    if (k && td_direct_offer(n, k, out))
        return true;
    return dev->emulates && (td_direct_wish(n, out) || td_widen_wish(n, out));
}

td_status td_device_open(const char *name, td_device **out)
{
    *out = NULL;
    bool is_cpu = !name || strcmp(name, "cpu") == 0;
    if (!is_cpu && strcmp(name, "ref") != 0)
        return td_error(TD_ENOTFOUND, "there is no device '%s'; there are cpu, ref", name);
    td_device *dev = TD_NEW(td_device);
    if (!dev)
        return TD_ENOMEM;
    dev->name = is_cpu ? "cpu" : "ref";
    dev->emulates = is_cpu;
    for (int i = 0; i < N_BACKENDS; i++)
        if (is_cpu || is_ref(all[i]))
            dev->backends[dev->n_backends++] = all[i];
    dev->target = (td_target){ .ctx = dev, .supports = supports, .wish = wish };
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
