/*
 * memory_limit.c -- compiles a training step within the memory limit of a process, and reports if
 * it does not fit
 *
 *     limit = step + validation + input + checkpoint + sums over ranks + runtime
 *                                                      as in largest_batch.c, plus the ranks
 *
 * The process measures itself: it compiles, runs and frees a step with one image; the memory that
 * is still in use belongs to libraries, kernels and loaded data.  On device cuda the limit is for
 * the memory of the GPU: step, validation and one batch of each.
 */
#include "optim/memory_limit.h"

#include <math.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "device/gpu_ranks.h"
#include "ir/graph.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "runtime/all_reduce.h"
#include "runtime/device.h"

/* allowance for larger kernel buffers with more images, and for partly used huge pages */
enum { ALLOWANCE = 8 << 20 };

void td_log_recomputed(const td_program *p, int64_t limit, int64_t others)
{
    char rest[64] = "";
    const td_memory_report m = td_program_memory(p);
    int64_t macs = -m.recomputed_macs;
    for (int i = 0; i < td_program_node_count(p); i++)
        macs += td_program_node(p, i).macs;
    if (others)
        snprintf(rest, sizeof rest, " and the rest %.1f MB", 1e-6 * (double)others);
    if (m.n_recomputed)
        td_log(TD_LOG_INFO, "memory",
               "--memory-limit %.1f MB: the step needs %.1f MB%s; recomputing %d results, %.2f "
               "GFLOP (%.1f %%) more per step, lowers the step to %.1f MB",
               1e-6 * (double)limit, 1e-6 * (double)m.unlimited_bytes, rest, m.n_recomputed,
               2e-9 * (double)m.recomputed_macs,
               100.0 * (double)m.recomputed_macs / (double)(macs ? macs : 1),
               1e-6 * (double)(m.param_bytes + m.activation_bytes));
    else if (limit)
        td_log(TD_LOG_DEBUG, "memory", "--memory-limit %.1f MB: the step needs %.1f MB%s",
               1e-6 * (double)limit, 1e-6 * (double)(m.param_bytes + m.activation_bytes), rest);
}

void td_memory_warn(int64_t planned, int n, int64_t available)
{
    const double gb = 1e-9, needed = gb * (double)planned * n;
    char processes[48] = "";
    if (needed <= 0.9 * gb * (double)available)
        return;
    if (n > 1)
        snprintf(processes, sizeof processes, ", %d processes with %.1f GB each", n,
                 gb * (double)planned);
    td_log(TD_LOG_WARN, "memory",
           "the training needs at least %.1f GB%s, and this machine has %.1f GB available: use a "
           "smaller --batch-size (-b), or --memory-limit to recompute activations",
           needed, processes, gb * (double)available);
}

/* --- memory outside the step ------------------------------------------------------------------ */

static bool is_gpu(const td_process_memory *m)
{
    return m->dev->memory == &td_gpu_memory;
}

static int64_t image_bytes(const td_process_memory *m)
{
    const int64_t n = td_synthetic_bytes(m->model, 1);
    const int64_t evaluated = m->evaluated ? td_synthetic_bytes(m->evaluated, 1) : 0;
    return evaluated > n ? evaluated : n;
}

static td_status run_once(const td_process_memory *m, td_program *p)
{
    td_synthetic inputs;
    td_status st = TD_OK;
    TD_TRY(td_synthetic_make(m->model, 1, false, &inputs));
    TD_OUT(td_program_init(p, 1));
    TD_OUT(td_synthetic_bind(&inputs, p));
    TD_OUT(td_step_bind_scalars(p, m->amp));
    st = td_program_run(p);
out:
    td_synthetic_release(&inputs);
    return st;
}

/*
 * Bytes that the process uses while it runs a step with one image, without those planned for the
 * step.  Opens another device, on which kernels are not autotuned.
 */
static td_status measure_process(const td_process_memory *m, int64_t *bytes)
{
    td_amp_opts amp = *m->amp;
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_status st = TD_OK;
    amp.is_silent = true;
    TD_OUT(td_step_graph(m->model, 1, &amp, 1, NULL, &g));
    TD_OUT(td_device_open(m->device, &dev));
    dev->target.direct_only = m->dev->target.direct_only;
    TD_OUT(td_compile(g, dev, &(td_compile_opts){ .amp = &amp, .skip = m->skip_passes }, &p));
    TD_OUT(run_once(m, p));
    const td_memory_report r = td_program_memory(p);
    *bytes = td_memory_now_bytes() - r.param_bytes - r.activation_bytes + ALLOWANCE;
out:
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    if (st == TD_OK && *bytes < td_memory_now_bytes() + ALLOWANCE)
        *bytes = td_memory_now_bytes() + ALLOWANCE;
    return st;
}

/* All ranks use the largest value, so that they compile the same step. */
static td_status share_largest(td_comm *c, int64_t *bytes)
{
    const int64_t own = *bytes;
    int64_t *all = td_alloc((size_t)td_comm_size(c), sizeof *all);
    td_status st = all ? td_comm_gather(c, &own, sizeof own, all) : TD_ENOMEM;
    for (int r = 0; st == TD_OK && r < td_comm_size(c); r++)
        *bytes = all[r] > *bytes ? all[r] : *bytes;
    td_free(all);
    return st;
}

static td_status plan_evaluator(const td_process_memory *m, int batch, int64_t *bytes)
{
    td_amp_opts amp = *m->amp;
    td_graph *g;
    td_program *p;
    amp.is_silent = true;
    TD_TRY(td_evaluation_graph(m->evaluated ? m->evaluated : m->model, batch, 0, NULL, &g));
    td_status st =
        td_compile(g, m->dev, &(td_compile_opts){ .amp = &amp, .skip = m->skip_passes }, &p);
    td_graph_free(g);
    if (st != TD_OK)
        return st;
    const td_memory_report r = td_program_memory(p);
    *bytes = r.param_bytes + r.activation_bytes;
    td_program_free(p);
    return TD_OK;
}

static int64_t saved_bytes(const td_graph *g)
{
    int64_t sum = 0;
    for (int i = 0; i < td_graph_param_count(g); i++) {
        const td_type t = td_graph_param_type(g, i);
        sum += td_type_count(&t) * (int64_t)td_dtype_bytes(t.dtype);
    }
    return sum;
}

/* Bytes of all that grows with the batch, outside the step, and of the checkpoint. */
static td_status plan_rest(const td_process_memory *m, const td_graph *g, int batch, int64_t *bytes)
{
    int64_t evaluator = 0;
    if (m->evaluates)
        TD_TRY(plan_evaluator(m, batch, &evaluator));
    *bytes = evaluator + batch * image_bytes(m) * (is_gpu(m) ? 1 + m->evaluates : m->n_batches);
    if (!is_gpu(m))
        *bytes += (m->saves ? saved_bytes(g) : 0) + td_collective_bytes(g, m->dev->comm);
    else if (m->dev->adds_over_ranks)
        *bytes += td_gpu_sums_bytes(g, m->dev->comm);
    return TD_OK;
}

/* --- when it does not fit --------------------------------------------------------------------- */

/* Without step_opts->groups: the decay groups are already counted. */
static td_status step_graph(const td_process_memory *m, int batch, const td_amp_opts *amp,
                            td_graph **out)
{
    if (!m->step_opts)
        return td_step_graph(m->model, batch, amp, 1, NULL, out);
    td_step_opts step_opts = *m->step_opts;
    step_opts.groups = NULL;
    return td_training_graph(m->model, batch, &step_opts, out);
}

/* The least bytes of a process that trains with this batch; `limit` if they are at most that. */
static td_status least_bytes(const td_process_memory *m, int batch, int64_t process, int64_t limit,
                             int64_t *bytes)
{
    td_amp_opts amp = *m->amp;
    td_graph *g = NULL;
    td_program *p = NULL;
    int64_t rest, least = 0;
    td_status st = TD_OK;
    amp.is_silent = true;
    TD_OUT(step_graph(m, batch, &amp, &g));
    TD_OUT(plan_rest(m, g, batch, &rest));
    const int64_t left = limit - process - rest;
    st = td_compile(g, m->dev,
                    &(td_compile_opts){ .amp = &amp,
                                        .skip = m->skip_passes,
                                        .memory_limit = left > 0 ? left : 1,
                                        .least_bytes = &least },
                    &p);
    *bytes = st == TD_OK ? limit : process + rest + least;
    if (least)
        st = TD_OK;
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

/* The largest batch below m->batch that fits; 0: none. */
static td_status find_batch(const td_process_memory *m, int64_t process, int *batch)
{
    int fails = m->batch;
    for (*batch = 0; fails - *batch > 1;) {
        const int next = *batch + (fails - *batch) / 2;
        int64_t bytes;
        TD_TRY(least_bytes(m, next, process, m->limit, &bytes));
        if (bytes <= m->limit)
            *batch = next;
        else
            fails = next;
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "interrupted by a signal");
    }
    return TD_OK;
}

/* Megabytes, rounded up so that the value suffices as --memory-limit. */
static double megabytes(int64_t bytes)
{
    return ceil((double)bytes / 1e5) / 10;
}

/* "--memory-limit: 50.0 MB is too small for a batch of 4, which needs at least 358.1 MB ..." */
static void add_need(const td_process_memory *m, int64_t step, int64_t others, td_text *out)
{
    td_text_add(out,
                "--memory-limit: %.1f MB is too small for a batch of %d, which needs at least %.1f "
                "MB (%.1f MB for the step and %.1f MB for %s)",
                1e-6 * (double)m->limit, m->batch, megabytes(step + others), megabytes(step),
                megabytes(others), is_gpu(m) ? "validation and inputs" : "the rest of the process");
}

static td_status too_little(const td_process_memory *m, int64_t step, int64_t rest, int64_t process)
{
    int batch;
    int64_t one = step + rest + process;
    td_text text = { 0 };
    TD_TRY(find_batch(m, process, &batch));
    if (batch == 0 && m->batch > 1)
        TD_TRY(least_bytes(m, 1, process, 1, &one));
    add_need(m, step, rest + process, &text);
    if (batch)
        td_text_add(&text, "; a batch of %d fits: use --batch-size %d or a higher limit", batch,
                    batch);
    else
        td_text_add(&text,
                    "; the smallest batch, of 1, needs %.1f MB: use a higher limit, a smaller "
                    "--image-size or a smaller network",
                    megabytes(one));
    td_status st = td_text_status(&text);
    if (st == TD_OK)
        st = td_error(TD_ENOMEM, "%s", td_text_get(&text));
    td_text_release(&text);
    return st;
}

/* --- compiling within the limit --------------------------------------------------------------- */

td_status td_compile_within(const td_graph *g, const td_process_memory *m, td_compile_opts *c,
                            td_program **out)
{
    int64_t process = 0, rest = 0, least = 0;
    *out = NULL;
    if (!m->limit)
        return td_compile(g, m->dev, c, out);
    if (!is_gpu(m))
        TD_TRY(measure_process(m, &process));
    TD_TRY(share_largest(m->dev->comm, &process));
    TD_TRY(plan_rest(m, g, m->batch, &rest));
    c->memory_limit = m->limit - process - rest > 0 ? m->limit - process - rest : 1;
    c->least_bytes = &least;
    const td_status st = td_compile(g, m->dev, c, out);
    c->least_bytes = NULL;
    if (st != TD_OK && least)
        return too_little(m, least, rest, process);
    if (st == TD_OK)
        td_log_recomputed(*out, m->limit, process + rest);
    return st;
}
