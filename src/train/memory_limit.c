/*
 * memory_limit.c -- what is left for the step when a process has a limit, and what to say if that
 * is too little
 *
 *     limit = step + validation + input + checkpoint + sums over ranks + runtime
 *                                                      as in largest_batch.c, but for the ranks
 *
 * Here the process itself is measured in place: a step of one picture is compiled, run and freed;
 * what the process holds then are libraries, kernels and whatever the job has loaded.
 */
#include "train/memory_limit.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/os.h"
#include "ir/graph.h"
#include "rt/all_reduce.h"
#include "rt/device.h"
#include "train/benchmark.h"
#include "train/network.h"
#include "train/synthetic_step.h"

/* what kernels for more pictures keep for themselves, and the ends of huge pages */
enum { ALLOWANCE = 8 << 20 };

void td_log_recomputed(const td_program *p)
{
    const td_memory_report m = td_program_memory(p);
    int64_t macs = -m.recomputed_macs;
    for (int i = 0; i < td_program_node_count(p); i++)
        macs += td_program_node(p, i).macs;
    if (m.n_recomputed)
        td_log(TD_LOG_INFO, "memory",
               "recomputing %d results, %.2f GFLOP (%.1f %%) more a step: %.1f MB instead of "
               "%.1f MB",
               m.n_recomputed, 2e-9 * (double)m.recomputed_macs,
               100.0 * (double)m.recomputed_macs / (double)(macs ? macs : 1),
               (double)(m.param_bytes + m.activation_bytes) / 1e6, (double)m.unlimited_bytes / 1e6);
}

/* --- beside the step -------------------------------------------------------------------------- */

static int64_t picture_bytes(const td_memory_share *m)
{
    const int64_t n = td_synthetic_bytes(m->model, 1);
    const int64_t judged = m->judged ? td_synthetic_bytes(m->judged, 1) : 0;
    return judged > n ? judged : n;
}

static td_status run_once(const td_memory_share *m, td_program *p)
{
    td_synthetic inputs;
    td_status st = TD_OK;
    TD_TRY(td_synthetic_make(m->model, 1, &inputs));
    TD_OUT(td_program_init(p, 1));
    TD_OUT(td_synthetic_bind(&inputs, p));
    TD_OUT(td_benchmark_bind_scalars(p, m->amp));
    st = td_program_run(p);
out:
    td_synthetic_release(&inputs);
    return st;
}

/* what a step of one picture holds beside its plan; on a device of its own, so that no kernel is
   timed for it */
static td_status measure_process(const td_memory_share *m, int64_t *bytes)
{
    td_amp_opts amp = *m->amp;
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_status st = TD_OK;
    amp.is_silent = true;
    TD_OUT(td_benchmark_step_graph(m->model, 1, &amp, &g));
    TD_OUT(td_device_open(m->device, &dev));
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

/* ranks compile the same step only if they have as much left for it: as the one with least has */
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

static td_status plan_judge(const td_memory_share *m, int batch, int64_t *bytes)
{
    td_amp_opts amp = *m->amp;
    td_graph *g;
    td_program *p;
    amp.is_silent = true;
    TD_TRY(td_judging_graph(m->judged ? m->judged : m->model, batch, 0, true, &g));
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

/* everything that grows with the batch, and the checkpoint */
static td_status plan_rest(const td_memory_share *m, const td_graph *g, int batch, int64_t *bytes)
{
    int64_t judge = 0;
    if (m->judges)
        TD_TRY(plan_judge(m, batch, &judge));
    *bytes = judge + batch * picture_bytes(m) * m->n_batches + (m->saves ? saved_bytes(g) : 0) +
             td_collective_bytes(g, m->dev->comm);
    return TD_OK;
}

/* --- when it does not fit --------------------------------------------------------------------- */

/* the groups of the run are counted already */
static td_status step_graph(const td_memory_share *m, int batch, const td_amp_opts *amp,
                            td_graph **out)
{
    if (!m->sgd)
        return td_benchmark_step_graph(m->model, batch, amp, out);
    td_sgd_opts sgd = *m->sgd;
    sgd.groups = NULL;
    return td_training_graph(m->model, batch, &sgd, out);
}

/* does a step of `batch` pictures fit? */
static td_status try_batch(const td_memory_share *m, int batch, int64_t process, bool *fits)
{
    td_amp_opts amp = *m->amp;
    td_graph *g = NULL;
    td_program *p = NULL;
    int64_t rest, least = 0;
    td_status st = TD_OK;
    amp.is_silent = true;
    *fits = false;
    TD_OUT(step_graph(m, batch, &amp, &g));
    TD_OUT(plan_rest(m, g, batch, &rest));
    if (m->limit <= process + rest)
        goto out;
    st = td_compile(g, m->dev,
                    &(td_compile_opts){ .amp = &amp,
                                        .skip = m->skip_passes,
                                        .memory_limit = m->limit - process - rest,
                                        .least_bytes = &least },
                    &p);
    *fits = st == TD_OK;
    if (least)
        st = TD_OK;
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

/* the largest batch below m->batch that fits, 0: none */
static td_status find_batch(const td_memory_share *m, int64_t process, int *batch)
{
    int fails = m->batch;
    for (*batch = 0; fails - *batch > 1;) {
        const int next = *batch + (fails - *batch) / 2;
        bool fits;
        TD_TRY(try_batch(m, next, process, &fits));
        if (fits)
            *batch = next;
        else
            fails = next;
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "a signal came");
    }
    return TD_OK;
}

static td_status too_little(const td_memory_share *m, int64_t step, int64_t rest, int64_t process)
{
    int batch;
    TD_TRY(find_batch(m, process, &batch));
    const double mb = 1e-6;
    if (batch == 0)
        return td_error(TD_ENOMEM,
                        "--memory-limit: %.1f MB do not suffice for a batch of %d, which takes at "
                        "least %.1f MB for the step and %.1f MB beside it, nor for any smaller one",
                        mb * (double)m->limit, m->batch, mb * (double)step,
                        mb * (double)(rest + process));
    return td_error(TD_ENOMEM,
                    "--memory-limit: %.1f MB do not suffice for a batch of %d, which takes at "
                    "least %.1f MB for the step and %.1f MB beside it; a batch of %d fits",
                    mb * (double)m->limit, m->batch, mb * (double)step,
                    mb * (double)(rest + process), batch);
}

/* --- all of it -------------------------------------------------------------------------------- */

td_status td_compile_within(const td_graph *g, const td_memory_share *m, td_compile_opts *c,
                            td_program **out)
{
    int64_t process = 0, rest = 0, least = 0;
    *out = NULL;
    if (!m->limit)
        return td_compile(g, m->dev, c, out);
    TD_TRY(measure_process(m, &process));
    TD_TRY(share_largest(m->dev->comm, &process));
    TD_TRY(plan_rest(m, g, m->batch, &rest));
    c->memory_limit = m->limit - process - rest > 0 ? m->limit - process - rest : 1;
    c->least_bytes = &least;
    td_log(TD_LOG_DEBUG, "memory", "%.1f MB for the process, %.1f MB beside the step: %.1f MB left",
           (double)process / 1e6, (double)rest / 1e6, (double)c->memory_limit / 1e6);
    const td_status st = td_compile(g, m->dev, c, out);
    c->least_bytes = NULL;
    if (st != TD_OK && least)
        return too_little(m, least, rest, process);
    if (st == TD_OK)
        td_log_recomputed(*out);
    return st;
}
