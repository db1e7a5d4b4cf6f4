/*
 * device.c -- opening devices, asking their backends
 */
#include "rt/device.h"

#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/arena.h"
#include "base/os.h"

#define BACKEND(name) extern const td_backend td_backend_##name;
#include "rt/backends.def"
#undef BACKEND

static const td_backend *const all[] = {
#define BACKEND(name) &td_backend_##name,
#include "rt/backends.def"
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

const td_kernel *td_device_select(const td_device *dev, const td_node *n, td_text *why)
{
    for (int b = 0; b < dev->n_backends; b++)
        for (int k = 0; k < dev->backends[b]->n_kernels; k++) {
            const td_kernel *kernel = dev->backends[b]->kernels[k];
            if (kernel->op != n->op)
                continue;
            if (kernel->accepts(n) == TD_OK)
                return kernel;
            if (why)
                td_text_add(why, "%s%s: %s", why->len ? "; " : "", kernel->name,
                            td_error_message());
        }
    return NULL;
}

static bool supports(void *ctx, const td_node *n)
{
    return td_device_select(ctx, n, NULL) != NULL;
}

static bool wish(void *ctx, const td_node *n, td_layout_wish *out)
{
    const td_device *dev = ctx;
    for (int b = 0; b < dev->n_backends; b++)
        if (dev->backends[b]->wish && dev->backends[b]->wish(n, out))
            return true;
    return false;
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
    for (int i = 0; i < N_BACKENDS; i++)
        if (is_cpu || strcmp(all[i]->name, "ref") == 0)
            dev->backends[dev->n_backends++] = all[i];
    dev->target = (td_target){ .ctx = dev, .supports = supports, .wish = wish };
    *out = dev;
    return TD_OK;
}

void td_device_close(td_device *dev)
{
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
