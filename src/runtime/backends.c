/*
 * backends.c -- the table of backends, made from backends.def
 */
#include "runtime/backends.h"

#include <string.h>

#include "tandem/program.h"

#define BACKEND(name) extern const td_backend td_backend_##name;
#include "runtime/backends.def"
#undef BACKEND

static const td_backend *const all[] = {
#define BACKEND(name) &td_backend_##name,
#include "runtime/backends.def"
#undef BACKEND
};

extern const td_backend td_backend_gpu;

#define N_BACKENDS ((int)(sizeof all / sizeof all[0]))
_Static_assert(sizeof all / sizeof all[0] <= TD_BACKENDS_MAX, "room for every backend");

const td_backend *td_backend_at(int i)
{
    return i >= 0 && i < N_BACKENDS ? all[i] : NULL;
}

const td_backend *td_backend_of_gpus(void)
{
    return &td_backend_gpu;
}

bool td_backend_is_ref(const td_backend *b)
{
    return strcmp(b->name, "ref") == 0;
}

const char *td_backend_name_at(int i, const char **description)
{
    const td_backend *b = td_backend_at(i);
    if (b && description)
        *description = b->description;
    return b ? b->name : NULL;
}

bool td_kernel_accepts(const td_kernel *kernel, const td_node *n, td_text *why)
{
    if (kernel->accepts(n) == TD_OK)
        return true;
    if (why)
        td_text_add(why, "%s%s: %s", why->len ? "; " : "", kernel->name, td_error_message());
    return false;
}

const td_kernel *td_backend_select(const td_backend *b, const td_node *n, td_text *why)
{
    for (int k = 0; k < b->n_kernels; k++)
        if (b->kernels[k]->op == n->op && td_kernel_accepts(b->kernels[k], n, why))
            return b->kernels[k];
    return NULL;
}

const td_kernel *td_direct_select(const td_node *n, td_text *why)
{
    const td_kernel *k = NULL;
    for (int b = 0; !k && b < N_BACKENDS; b++)
        k = td_backend_is_ref(all[b]) ? NULL : td_backend_select(all[b], n, why);
    return k;
}

bool td_direct_preferred_layout(const td_node *n, td_node_layouts *out)
{
    for (int b = 0; b < N_BACKENDS; b++)
        if (all[b]->preferred_layout && all[b]->preferred_layout(n, out))
            return true;
    return false;
}

bool td_direct_candidate_layout(const td_node *n, int k, td_node_layouts *out)
{
    for (int b = 0; b < N_BACKENDS; b++)
        if (all[b]->preferred_layout && all[b]->preferred_layout(n, out) && k-- == 0)
            return true;
    for (int b = 0; b < N_BACKENDS; b++)
        for (int i = 0; all[b]->candidate_layout && all[b]->candidate_layout(n, i, out); i++)
            if (k-- == 0)
                return true;
    return false;
}
