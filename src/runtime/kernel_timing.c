/* kernel_timing.c -- see kernel_timing.h */
#include "runtime/kernel_timing.h"

#include "base/clock.h"
#include "runtime/device.h"
#include "runtime/emulate_half.h"
#include "runtime/process.h"

enum { RUNS_MIN = 3, RUNS_MAX = 20 };

#define RUN_NS_MAX 40000000 /* limit for timing one kernel, after RUNS_MIN runs */
#define FILL_BYTE  0x3c     /* 0.0115 as float32, 0.0115 as bf16, 1.06 as fp16 */

/* --- problems --------------------------------------------------------------------------------- */

void td_problem_print(const td_node *n, td_text *out)
{
    td_text_add(out, "%s", n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        td_text_add(out, " ");
        td_type_print(&n->in[i]->type, out);
    }
    if (n->op->fields) {
        td_text_add(out, " ");
        td_fields_print(n->op->fields, n->attr, out);
    }
    for (int i = 0; i < n->n_out; i++) {
        td_text_add(out, i ? " " : " -> ");
        td_type_print(&n->out[i]->type, out);
    }
    if (td_threads_parts() > 1) /* other times than with all threads */
        td_text_add(out, " by one of %d threads", td_threads_parts());
}

bool td_node_has_macs(const td_node *n)
{
    return n->op->macs && n->op->macs(n) > 0;
}

bool td_node_is_timed(const td_node *n)
{
    if (n->op->is_leaf || n->op->is_alias || td_node_has_effect(n) || n->n_in == 0 || n->n_out == 0)
        return false;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_dtype d = (i < n->n_in ? n->in[i] : n->out[i - n->n_in])->type.dtype;
        if (!td_dtype_is_float(d) && d != TD_DT_U8)
            return false;
    }
    return td_in_type(n, 0)->rank == 4 || td_node_has_macs(n);
}

int td_timing_kernels(const td_device *dev, const td_node *n,
                      const td_kernel *out[TD_TIMING_KERNELS_MAX])
{
    int count = 0;
    for (int b = 0; b < dev->n_backends; b++) {
        const td_backend *backend = dev->backends[b];
        if (td_backend_is_ref(backend))
            continue;
        for (int k = 0; k < backend->n_kernels && count < TD_TIMING_KERNELS_MAX; k++)
            if (backend->kernels[k]->op == n->op && backend->kernels[k]->accepts(n) == TD_OK)
                out[count++] = backend->kernels[k];
    }
    if (dev->emulates && count < TD_TIMING_KERNELS_MAX && (!count || td_node_has_macs(n)) &&
        td_emulate_half.accepts(n) == TD_OK)
        out[count++] = &td_emulate_half;
    return count;
}

/* --- buffers ---------------------------------------------------------------------------------- */

void td_timing_buffers_release(td_timing_buffers *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->args[i])
            b->memory->free(b->args[i], b->bytes[i]);
    *b = (td_timing_buffers){ 0 };
}

static td_status add(const td_node *n, size_t bytes, td_timing_buffers *b)
{
    void **arg = &b->args[b->n];
    *arg = bytes ? b->memory->alloc(bytes) : NULL;
    b->bytes[b->n++] = bytes;
    if (bytes && !*arg)
        return td_error(TD_ENOMEM, "timing %s needs %.1f MB more", n->op->name,
                        (double)bytes / 1e6);
    return bytes ? b->memory->fill(*arg, FILL_BYTE, bytes) : TD_OK;
}

static td_status add_all(const td_node *n, size_t scratch_bytes, td_timing_buffers *b)
{
    for (int i = 0; i < n->n_in; i++)
        TD_TRY(add(n, (size_t)td_type_bytes(&n->in[i]->type), b));
    for (int i = 0; i < n->n_out; i++)
        TD_TRY(add(n, (size_t)td_type_bytes(&n->out[i]->type), b));
    return add(n, scratch_bytes, b);
}

td_status td_timing_buffers_init(const td_node *n, const td_device_memory *memory,
                                 size_t scratch_bytes, td_timing_buffers *out)
{
    *out = (td_timing_buffers){ .memory = memory };
    td_status st = add_all(n, scratch_bytes, out);
    if (st != TD_OK)
        td_timing_buffers_release(out);
    return st;
}

/* --- timing ----------------------------------------------------------------------------------- */

static td_status run_for_best(const td_prepared *p, void *const *args, double *best)
{
    int64_t begin = td_now_ns(), least = INT64_MAX;
    for (int i = 0; i < RUNS_MAX; i++) {
        int64_t t0 = td_now_ns();
        TD_TRY(p->kernel->run(p, args));
        TD_TRY(p->memory->sync());
        int64_t t1 = td_now_ns();
        if (i && t1 - t0 < least) /* the first run is a warm-up */
            least = t1 - t0;
        if (i >= RUNS_MIN && t1 - begin > RUN_NS_MAX)
            break;
    }
    *best = (double)least * 1e-9;
    return TD_OK;
}

td_status td_time_kernel(const td_device *dev, const td_kernel *k, const td_node *n,
                         double *seconds)
{
    td_timing_buffers b = { 0 };
    td_prepared p = { .kernel = k, .node = n, .memory = dev->memory };
    td_status st = k->prepare ? k->prepare(n, &p) : TD_OK;
    if (st != TD_OK)
        return st;
    st = td_timing_buffers_init(n, p.memory, p.scratch_bytes, &b);
    if (st == TD_OK) {
        p.memory->begin_kernels();
        st = run_for_best(&p, b.args, seconds);
        p.memory->end_kernels();
    }
    td_timing_buffers_release(&b);
    if (k->release)
        k->release(&p);
    return st;
}
