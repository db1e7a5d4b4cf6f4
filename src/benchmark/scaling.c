/*
 * scaling.c -- `tandem benchmark --mode scaling`: predicts the speed of training on many ranks
 *
 *     compute-only steps ------> events and their times --\
 *     sums over these ranks ---> latency, bandwidth -------+--> step times for any number of ranks
 *     steps over these ranks -------------------------------> compared with their prediction
 *
 * With one rank there is nothing to fit and to compare; the link's figures are options.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/stats.h"
#include "benchmark/benchmark.h"
#include "benchmark/number_list.h"
#include "benchmark/scaling_model.h"
#include "comm/join.h"
#include "comm/reduction.h"
#include "inference/inputs.h"
#include "model/arch.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "optim/synthetic_step.h"
#include "pass/amp.h"
#include "runtime/all_reduce.h"
#include "runtime/device.h"
#include "runtime/program_view.h"
#include "tandem/benchmark.h"

enum { RANKS_MAX = 1 << 20, FIT_SUMS = 20, ADDED_FLOATS = 1 << 22, ADD_ROUNDS = 5 };

static const char *const default_ranks = "1,2,4,8,16,32,64,128,256,512,1024";
static const char *const default_bandwidths = "25,200";

#define DEFAULT_LATENCY_US 20
#define MESSAGE_S          1e-6
#define GBIT               (1e9 / 8) /* bytes */

typedef struct {
    td_benchmark_opts o; /* a copy, in which `model` is resolved */
    td_number_list ranks, bandwidths;
    td_comm *comm; /* NULL: one rank */
    td_device *dev;
    td_program *program;
    const td_norm *norm; /* NULL: the images of `data` are floats */
    td_synthetic data;
    float inverse;
    double *compute, *steps;  /* [iters] seconds of the slowest rank, without and with sums */
    double compute_s, step_s; /* their medians; step_s 0: one rank */
    double *of_ranks;         /* [ranks] */
    double *node_s;           /* [nodes] */
    td_step_event *events;
    int n_events;
    double *floats, *finished;
    td_step_schedule step;
    td_cluster here;
    td_link link;  /* between machines */
    td_link local; /* between the ranks of a machine */
} scaling;

static void release(scaling *s)
{
    td_synthetic_release(&s->data);
    td_program_free(s->program);
    td_device_close(s->dev);
    td_free(s->compute);
    td_free(s->steps);
    td_free(s->of_ranks);
    td_free(s->node_s);
    td_free(s->events);
    td_free(s->floats);
    td_free(s->finished);
}

/* --- steps ------------------------------------------------------------------------------------ */

/* the step of several ranks, also on one */
static td_status compile(scaling *s)
{
    const int n_ranks = s->comm ? td_comm_size(s->comm) : 2;
    const td_compile_opts c = { .amp = &s->o.amp, .skip = s->o.device.skip_passes };
    td_graph *g = NULL;
    TD_TRY(td_rank_sums_join("scaling", s->dev, s->comm));
    s->here.by_gpus = s->dev->adds_over_ranks;
    TD_TRY(td_step_graph(&s->o.model, s->o.batch_size, &s->o.amp, n_ranks, s->norm, &g));
    td_status st = td_compile(g, s->dev, &c, &s->program);
    td_graph_free(g);
    TD_TRY(st);
    TD_TRY(td_program_init(s->program, 1));
    TD_TRY(td_step_bind_scalars(s->program, &s->o.amp));
    s->inverse = 1 / (float)n_ranks / td_step_scale(&s->o.amp);
    TD_TRY(td_program_bind(s->program, TD_INPUT_INVERSE, &s->inverse));
    return td_synthetic_bind(&s->data, s->program);
}

/* Run one step, started by all ranks together; the time of the slowest rank. */
static td_status time_step(scaling *s, bool with_sums, double *slowest_s)
{
    TD_TRY(td_benchmark_check_signals(s->comm));
    td_program_skip_sums(s->program, !with_sums);
    const int64_t begin_ns = td_now_ns();
    TD_TRY(td_program_run(s->program));
    const double own = (double)(td_now_ns() - begin_ns) * 1e-9;
    TD_TRY(td_comm_gather(s->comm, &own, sizeof own, s->of_ranks));
    *slowest_s = td_quantile(s->of_ranks, td_comm_size(s->comm), 1);
    return TD_OK;
}

/* Collect the times of the nodes of the step that has just run. */
static void collect_nodes(scaling *s)
{
    for (int i = 0; i < td_program_node_count(s->program); i++) {
        const td_span span = td_program_span(s->program, i);
        s->node_s[i] += (double)(span.end_ns - span.begin_ns) * 1e-9;
    }
}

/* A GPU is waited for after each node of a profiled step, so its steps are timed without that. */
static td_status measure_nodes_alone(scaling *s)
{
    double unused;
    td_program_profile(s->program, true);
    for (int i = 0; i < s->o.iters; i++) {
        TD_TRY(time_step(s, false, &unused));
        collect_nodes(s);
    }
    td_program_profile(s->program, false);
    return TD_OK;
}

/* Run steps without and with sums in turns; a busy machine slows both. */
static td_status measure_steps(scaling *s)
{
    double without_s, with_s;
    if (s->here.by_gpus)
        TD_TRY(measure_nodes_alone(s));
    for (int i = -s->o.warmup; i < s->o.iters; i++) {
        if (i == 0 && !s->here.by_gpus)
            td_program_profile(s->program, true);
        TD_TRY(time_step(s, false, &without_s));
        if (i >= 0) {
            s->compute[i] = without_s;
            if (!s->here.by_gpus)
                collect_nodes(s);
        }
        if (!s->comm)
            continue;
        TD_TRY(time_step(s, true, &with_s));
        if (i >= 0)
            s->steps[i] = with_s;
    }
    s->compute_s = td_median(s->compute, s->o.iters);
    s->step_s = s->comm ? td_median(s->steps, s->o.iters) : 0;
    return TD_OK;
}

/* --- the schedule of a step ------------------------------------------------------------------- */

static const td_all_reduce_attr *half_of(const td_node *n, td_event_kind *kind)
{
    *kind = n->op == &td_op_all_reduce_begin ? TD_EVENT_BEGIN
            : n->op == &td_op_all_reduce_end ? TD_EVENT_WAIT
                                             : TD_EVENT_COMPUTE;
    return *kind == TD_EVENT_COMPUTE ? NULL : n->attr;
}

static td_status read_buckets(scaling *s)
{
    int64_t *floats;
    int n;
    TD_TRY(td_collective_buckets(td_program_view_of(s->program).graph, &floats, &n));
    s->floats = td_alloc((size_t)n + 1, sizeof *s->floats);
    s->finished = td_alloc((size_t)n + 1, sizeof *s->finished);
    for (int b = 0; s->floats && b < n; b++)
        s->floats[b] = (double)floats[b];
    td_free(floats);
    if (!s->floats || !s->finished)
        return TD_ENOMEM;
    s->step = (td_step_schedule){ .n_buckets = n, .floats = s->floats, .finished = s->finished };
    return TD_OK;
}

static void add_event(scaling *s, td_event_kind kind, int bucket, double seconds)
{
    td_step_event *last = s->n_events ? &s->events[s->n_events - 1] : NULL;
    if (kind <= TD_EVENT_COPY && last && last->kind == kind)
        last->seconds += seconds;
    else
        s->events[s->n_events++] = (td_step_event){ kind, bucket, seconds };
}

/* The events of the measured steps, their times scaled to the median of the slowest rank. */
static void read_events(scaling *s)
{
    const td_graph *g = td_program_view_of(s->program).graph;
    double total_s = 0;
    td_event_kind kind;
    for (int i = 0; i < g->n_nodes; i++)
        total_s += s->node_s[i];
    const double scale = total_s > 0 ? s->compute_s / total_s / s->o.compute_speedup : 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const double seconds = s->node_s[i] * scale;
        const td_all_reduce_attr *a = half_of(n, &kind);
        if (!a) {
            add_event(s, TD_EVENT_COMPUTE, -1, seconds);
        } else if (kind == TD_EVENT_WAIT) {
            add_event(s, TD_EVENT_WAIT, a->bucket, 0);
            add_event(s, TD_EVENT_COPY, -1, seconds);
        } else {
            add_event(s, TD_EVENT_COPY, -1, seconds);
            if (a->is_last)
                add_event(s, TD_EVENT_BEGIN, a->bucket, 0);
        }
    }
}

static td_status read_schedule(scaling *s)
{
    const td_graph *g = td_program_view_of(s->program).graph;
    TD_TRY(TD_ALLOC(s->events, 2 * (size_t)g->n_nodes + 1));
    read_events(s);
    s->step.events = s->events;
    s->step.n_events = s->n_events;
    return TD_OK;
}

/* --- the link --------------------------------------------------------------------------------- */

/* Bytes that this rank adds per second. */
static td_status measure_adding(double *bytes_per_s)
{
    const int64_t n = ADDED_FLOATS;
    td_reduction *r;
    const float *sum;
    double best = INFINITY;
    TD_TRY(td_reduction_new(NULL, 1, &n, true, &r));
    td_status st = TD_OK;
    for (int i = 0; i <= ADD_ROUNDS && st == TD_OK; i++) {
        const int64_t begin_ns = td_now_ns();
        td_reduction_begin(r, 0);
        st = td_reduction_wait(r, 0, &sum);
        const double seconds = (double)(td_now_ns() - begin_ns) * 1e-9;
        best = i > 0 && seconds < best ? seconds : best; /* the first touches the memory */
    }
    *bytes_per_s = (double)n * sizeof(float) / best;
    td_reduction_free(r);
    return st;
}

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Rank 0's mean time of the sum of `n` numbers over these ranks, and processor time per byte.  One
 * sum follows the other, as in a step.
 */
static td_status time_sums(const scaling *s, int64_t n, double *seconds, double *cpu_s_per_byte)
{
    td_comm *c = s->comm;
    td_rank_sum *sum;
    int64_t together = 0, begin_ns = 0;
    double cpu_s = 0;
    td_status st = TD_OK;
    TD_TRY(td_rank_sum_new(c, s->dev, n, &sum));
    for (int i = -1; i < FIT_SUMS; i++) { /* the first touches the memory */
        if (i == 0) {
            TD_OUT(td_rank_sum_finish(sum));
            TD_OUT(td_comm_sum_i64(c, &together, 1)); /* all ranks start together */
            begin_ns = td_now_ns();
            cpu_s = processor_s();
        }
        TD_OUT(td_rank_sum_run(sum));
    }
    TD_OUT(td_rank_sum_finish(sum));
    *seconds = (double)(td_now_ns() - begin_ns) * 1e-9 / FIT_SUMS;
    *cpu_s_per_byte = (processor_s() - cpu_s) / FIT_SUMS / ((double)n * sizeof(float));
    TD_OUT(td_comm_broadcast(c, seconds, sizeof *seconds));
    st = td_comm_broadcast(c, cpu_s_per_byte, sizeof *cpu_s_per_byte);
out:
    td_rank_sum_free(sum);
    return st;
}

/* Do sums take processors from the computation?  If its threads use all of them. */
static bool is_sharing(const scaling *s)
{
    const td_comm *c = s->comm;
    return !s->here.by_gpus &&
           td_threads() >= td_core_share(td_comm_local_size(c), td_comm_local_size(c));
}

static bool is_one_machine(const td_cluster *c)
{
    return c->n_ranks <= c->per_machine;
}

/* Fit the link between these ranks to sums of a step's sizes. */
static td_status measure_link(scaling *s)
{
    static const int parts[] = { 256, 16, 4, 1 }; /* a sum is this part of the largest bucket */
    enum { N = sizeof parts / sizeof *parts };
    td_link *l = is_one_machine(&s->here) ? &s->local : &s->link;
    double floats[N], seconds[N], cpu = 0, largest = 0;
    for (int i = 0; i < s->step.n_buckets; i++)
        largest = s->floats[i] > largest ? s->floats[i] : largest;
    for (int i = 0; i < N; i++) {
        const int64_t n = (int64_t)largest / parts[i] + 1;
        floats[i] = (double)n;
        TD_TRY(time_sums(s, n, &seconds[i], &cpu));
    }
    l->cpu_s_per_byte = is_sharing(s) ? cpu : 0; /* as in the largest sum */
    td_link_fit(&s->here, N, floats, seconds, l);
    if (l == &s->local)
        s->link.cpu_s_per_byte = l->cpu_s_per_byte; /* as far as it is known */
    else if (s->here.by_gpus)
        s->local = s->link; /* which it is not slower than */
    return TD_OK;
}

/* What is known without a measurement.  How fast GPUs add is a part of their measured bandwidth. */
static td_status guess_links(scaling *s)
{
    double added_per_s = INFINITY;
    if (!s->here.by_gpus)
        TD_TRY(measure_adding(&added_per_s));
    s->local = (td_link){ .latency_s = DEFAULT_LATENCY_US * 1e-6,
                          .message_s = MESSAGE_S,
                          .bytes_per_s = added_per_s,
                          .added_per_s = added_per_s };
    s->link = s->local;
    return TD_OK;
}

/* --- the result ------------------------------------------------------------------------------- */

static td_cluster cluster_of(const scaling *s, int n_ranks)
{
    td_cluster c = s->here;
    c.n_ranks = n_ranks;
    return c;
}

static void add_row(const scaling *s, int n_ranks, const td_link *l, td_text *out)
{
    const td_cluster c = cluster_of(s, n_ranks), one = cluster_of(s, 1);
    const td_step_time t = td_step_predict(&s->step, &c, is_one_machine(&c) ? &s->local : l);
    const double alone_s = td_step_predict(&s->step, &one, l).seconds;
    const int machines = (c.n_ranks + c.per_machine - 1) / c.per_machine;
    td_text_add(out, "{\"ranks\": %d, \"machines\": %d", c.n_ranks, machines);
    td_json_add(out, "step_ms", t.seconds * 1e3);
    td_json_add(out, "waiting_ms", t.waiting_s * 1e3);
    td_json_add(out, "images_per_s", s->o.batch_size * c.n_ranks / t.seconds);
    td_json_add(out, "efficiency", alone_s / t.seconds);
    td_text_add(out, "}");
}

static void add_link(const td_link *l, td_text *out)
{
    td_text_add(out, "\"latency_us\": %.4g, \"gbit_per_s\": ", l->latency_s * 1e6);
    td_text_add(out, isfinite(l->bytes_per_s) ? "%.4g" : "null", l->bytes_per_s / GBIT);
}

static void add_predictions(const scaling *s, const td_link *l, td_text *out)
{
    td_text_add(out, "{");
    add_link(l, out);
    td_text_add(out, ", \"rows\": [");
    for (int i = 0; i < s->ranks.n; i++) {
        td_text_add(out, i ? ", " : "");
        add_row(s, (int)s->ranks.item[i], l, out);
    }
    td_text_add(out, "]}");
}

/* The links of the options; without any, the measured one. */
static void add_links(const scaling *s, td_text *out)
{
    const bool is_measured = s->comm && !is_one_machine(&s->here);
    td_link l = s->link;
    if (s->o.latency > 0)
        l.latency_s = s->o.latency * 1e-6;
    td_text_add(out, ", \"links\": [");
    if (is_measured && !s->o.bandwidth) {
        add_predictions(s, &l, out);
    } else {
        for (int i = 0; i < s->bandwidths.n; i++) {
            l.bytes_per_s = s->bandwidths.item[i] * GBIT;
            td_text_add(out, i ? ", " : "");
            add_predictions(s, &l, out);
        }
    }
    td_text_add(out, "]");
}

static void add_measured(const scaling *s, td_text *out)
{
    const td_link *l = is_one_machine(&s->here) ? &s->local : &s->link;
    const double predicted_s = td_step_predict(&s->step, &s->here, l).seconds;
    td_text_add(out, ", \"measured\": {\"ranks\": %d, \"machines\": %d, ", s->here.n_ranks,
                s->here.n_ranks / s->here.per_machine);
    add_link(l, out);
    td_json_add(out, "step_ms", s->step_s * 1e3);
    td_json_add(out, "predicted_ms", predicted_s * 1e3);
    td_json_add(out, "error", predicted_s / s->step_s - 1);
    td_rank_sums_describe(s->dev, out);
    td_text_add(out, "}");
}

static void add_result(const scaling *s, td_text *out)
{
    double floats = 0;
    for (int i = 0; i < s->step.n_buckets; i++)
        floats += s->floats[i];
    td_text_add(out, "{\"mode\": \"scaling\", \"arch\": \"");
    td_text_add_json(out, s->o.model.model ? s->o.model.model : s->o.model.arch);
    td_text_add(out, "\", \"precision\": \"%s\", \"batch_size\": %d, \"image_size\": %d",
                td_amp_precision_name(&s->o.amp), s->o.batch_size, s->o.model.image_size);
    td_text_add(out, ", \"threads\": %d, \"iters\": %d, \"warmup\": %d, \"ranks_per_machine\": %d",
                td_threads(), s->o.iters, s->o.warmup, s->here.per_machine);
    td_json_add(out, "compute_ms", s->compute_s * 1e3);
    td_json_add(out, "compute_speedup", s->o.compute_speedup);
    td_json_add(out, "gradient_bytes", floats * (double)sizeof(float));
    td_json_add(out, "buckets", s->step.n_buckets);
    if (s->comm)
        add_measured(s, out);
    add_links(s, out);
    td_text_add(out, "}");
}

/* --- the mode --------------------------------------------------------------------------------- */

static td_status read_lists(scaling *s)
{
    const td_benchmark_opts *o = &s->o;
    TD_TRY(td_list_read_counts("ranks", o->ranks ? o->ranks : default_ranks, RANKS_MAX, &s->ranks));
    return td_list_read_numbers("bandwidth", o->bandwidth ? o->bandwidth : default_bandwidths, 1e6,
                                &s->bandwidths);
}

/* Check that the ranks are spread evenly, which the model assumes. */
static td_status place_ranks(scaling *s)
{
    td_comm_machines m = { 1, 1, 0 };
    if (s->comm)
        m = td_comm_machines_of(s->comm);
    if (m.n == 0)
        return td_error(TD_EUSAGE, "--mode scaling requires machines with the same number of "
                                   "ranks, numbered one machine after the other");
    s->here = (td_cluster){ .n_ranks = td_comm_size(s->comm),
                            .per_machine = s->comm ? m.n_ranks : s->o.ranks_per_machine,
                            .allreduce = s->o.allreduce };
    for (int i = 0; i < s->ranks.n; i++) {
        const int n = (int)s->ranks.item[i];
        if (n > s->here.per_machine && n % s->here.per_machine)
            return td_error(TD_EUSAGE, "--ranks: %d is not a multiple of %d, the ranks per machine",
                            n, s->here.per_machine);
    }
    return TD_OK;
}

static td_status run(scaling *s, td_text *out)
{
    TD_TRY(td_benchmark_join(&s->o, &s->comm));
    TD_TRY(read_lists(s));
    TD_TRY(place_ranks(s));
    TD_TRY(TD_ALLOC(s->compute, (size_t)s->o.iters));
    TD_TRY(TD_ALLOC(s->steps, (size_t)s->o.iters));
    TD_TRY(TD_ALLOC(s->of_ranks, (size_t)td_comm_size(s->comm)));
    TD_TRY(td_model_resolve(&s->o.model));
    TD_TRY(td_device_open(s->o.device.name, &s->dev));
    td_device_winograd(s->dev, s->o.device.winograd);
    TD_TRY(td_input_norm(s->dev, &s->o.input, &s->o.model, &s->norm));
    TD_TRY(td_synthetic_make(&s->o.model, s->o.batch_size, s->norm != NULL, &s->data));
    TD_TRY(td_amp_resolve(&s->o.amp, s->dev));
    TD_TRY(td_device_tune(s->dev, s->o.device.tune, s->o.device.tune_cache));
    TD_TRY(compile(s));
    TD_TRY(TD_ALLOC(s->node_s, (size_t)td_program_node_count(s->program)));
    TD_TRY(read_buckets(s));
    TD_TRY(guess_links(s));
    if (s->comm)
        TD_TRY(measure_link(s));
    TD_TRY(measure_steps(s));
    TD_TRY(read_schedule(s));
    if (td_comm_rank(s->comm) == 0)
        add_result(s, out);
    else
        td_text_add(out, "%s", ""); /* only rank 0 prints */
    return td_text_status(out);
}

td_status td_benchmark_scaling(const td_benchmark_opts *o, td_text *out)
{
    scaling s = { .o = *o };
    const td_status st = run(&s, out);
    td_device_leave(s.dev, st);
    release(&s);
    td_leave(s.comm, st);
    return st;
}
