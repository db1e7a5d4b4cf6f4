/*
 * largest_batch.c -- finds the largest batch within a memory limit
 *
 * The memory of `tandem train` is computed from plans; no large batch is run:
 *
 *     step         parameters, momentum buffers, activations, scratch: plan of the training step
 *     validation   the plan of the evaluation network with the same batch size
 *     input        both loaders' rings, prefetch + 1 batches each, and one batch of the evaluator
 *     checkpoint   copies of all parameters while a checkpoint is written
 *     runtime      the process, libraries and kernels: measured with a batch of 1
 *
 * Not counted: images that workers are decoding.  The sum is almost linear in the batch, so the
 * search interpolates between two plans until it has a batch that fits and the next larger one does
 * not.  Each precision is searched in a separate process.
 */
#include "benchmark/benchmark.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/child.h"
#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/signals.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "runtime/device.h"

enum { BATCH_MAX = 1 << 20, N_PRECISIONS = 3, N_PARTS = 5 };

static const char *const precisions[N_PRECISIONS] = { "fp32", "bf16", "fp16" };

static const char *const part_names[N_PARTS] = { "step", "validation", "input", "checkpoint",
                                                 "runtime" };
enum { STEP, VALIDATION, INPUT, CHECKPOINT, RUNTIME };

typedef struct {
    int64_t bytes[N_PARTS];
} parts;

typedef struct {
    const td_benchmark_opts *o;
    td_model_opts model; /* resolved */
    td_amp_opts amp;     /* resolved */
    td_device *dev;
    int64_t limit, parent_bytes; /* parent_bytes: memory before the fork */
    int64_t runtime_bytes;
    int n_plans;
} search;

static int64_t total(const parts *p)
{
    int64_t sum = 0;
    for (int i = 0; i < N_PARTS; i++)
        sum += p->bytes[i];
    return sum;
}

/* --- plans ------------------------------------------------------------------------------------ */

static td_status compile_step(search *s, int batch, td_program **out)
{
    td_graph *g;
    const td_compile_opts c = { .amp = &s->amp, .skip = s->o->device.skip_passes };
    *out = NULL;
    TD_TRY(td_step_graph(&s->model, batch, &s->amp, 1, NULL, &g));
    td_status st = td_compile(g, s->dev, &c, out);
    td_graph_free(g);
    return st;
}

static td_status compile_evaluator(search *s, int batch, td_program **out)
{
    td_graph *g;
    const td_compile_opts c = { .amp = &s->amp, .skip = s->o->device.skip_passes };
    *out = NULL;
    TD_TRY(td_evaluation_graph(&s->model, batch, 0, NULL, &g));
    td_status st = td_compile(g, s->dev, &c, out);
    td_graph_free(g);
    return st;
}

/* The size of a checkpoint. */
static int64_t saved_bytes(const td_program *p)
{
    int64_t sum = 0;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const td_type t = td_program_param_type(p, i);
        sum += td_type_count(&t) * (int64_t)td_dtype_bytes(t.dtype);
    }
    return sum;
}

/*
 * Plan all parts for a batch.  A compiled program's memory is reserved, but not touched, so
 * planning needs little.
 */
static td_status plan(search *s, int batch, parts *out)
{
    td_program *p;
    TD_TRY_MSG(compile_step(s, batch, &p), "batch %d", batch);
    td_memory_report m = td_program_memory(p);
    out->bytes[STEP] = m.param_bytes + m.activation_bytes;
    out->bytes[CHECKPOINT] = saved_bytes(p);
    td_program_free(p);
    TD_TRY_MSG(compile_evaluator(s, batch, &p), "batch %d", batch);
    m = td_program_memory(p);
    td_program_free(p);
    out->bytes[VALIDATION] = m.param_bytes + m.activation_bytes;
    out->bytes[INPUT] = td_synthetic_bytes(&s->model, batch) * (2 * (s->o->input.prefetch + 1) + 1);
    out->bytes[RUNTIME] = s->runtime_bytes;
    s->n_plans++;
    td_log(TD_LOG_DEBUG, "benchmark", "batch %d: %.1f MB", batch, (double)total(out) / 1e6);
    return td_signal_caught() ? td_error(TD_ESTOPPED, "interrupted by a signal") : TD_OK;
}

/* --- the process ------------------------------------------------------------------------------ */

static td_status run_once(search *s, td_program *p, const td_synthetic *inputs)
{
    TD_TRY(td_program_init(p, 1));
    TD_TRY(td_synthetic_bind(inputs, p));
    TD_TRY(td_step_bind_scalars(p, &s->amp));
    return td_program_run(p);
}

/*
 * The memory of a process outside the plan: the parent's before the fork plus that added by a step
 * in the child.  The child's own size does not include pages of libraries that only the parent has
 * used.
 */
static td_status measure_runtime(search *s)
{
    const int64_t start = td_memory_now_bytes();
    td_status st = TD_OK;
    td_program *p = NULL;
    td_synthetic inputs;
    TD_TRY(td_synthetic_make(&s->model, 1, false, &inputs));
    TD_OUT(compile_step(s, 1, &p));
    const int64_t before = td_memory_now_bytes();
    TD_OUT(run_once(s, p, &inputs));
    const td_memory_report m = td_program_memory(p);
    const int64_t after = td_memory_now_bytes() - m.param_bytes - m.activation_bytes;
    s->runtime_bytes = s->parent_bytes + (after > before ? after : before) - start;
out:
    td_program_free(p);
    td_synthetic_release(&inputs);
    return st;
}

/* --- the search ------------------------------------------------------------------------------- */

/* A batch between one that fits and one that does not, by linear interpolation to the limit. */
static int guess(int64_t limit, int fits, int64_t fits_bytes, int fails, int64_t fails_bytes)
{
    const double share = (double)(limit - fits_bytes) / (double)(fails_bytes - fits_bytes);
    int64_t next = fits + (int64_t)(share * (double)(fails - fits));
    if (next <= fits)
        return fits + 1;
    return next >= fails ? fails - 1 : (int)next;
}

/* Grow `*fits` until a batch, `*fails`, does not fit; BATCH_MAX + 1: all fit. */
static td_status grow(search *s, int *fits, parts *best, int *fails, int64_t *fails_bytes)
{
    parts p;
    for (*fails = BATCH_MAX + 1; *fits < BATCH_MAX;) {
        /* assume that all but the runtime is proportional to the batch; go 2 % beyond */
        const double each = (double)(total(best) - s->runtime_bytes) / *fits;
        double next = (double)(s->limit - s->runtime_bytes) / each * 1.02 + 1;
        next = next < *fits + 1 ? *fits + 1 : next > 8.0 * *fits ? 8.0 * *fits : next;
        const int batch = next > BATCH_MAX ? BATCH_MAX : (int)next;
        TD_TRY(plan(s, batch, &p));
        if (total(&p) > s->limit) {
            *fails = batch;
            *fails_bytes = total(&p);
            return TD_OK;
        }
        *fits = batch;
        *best = p;
    }
    return TD_OK;
}

/* Find the largest batch; *batch 0: not even one image fits, *out is what it needs. */
static td_status find(search *s, int *batch, parts *out)
{
    int fails;
    int64_t fails_bytes = 0;
    parts p;
    *batch = 0;
    TD_TRY(plan(s, 1, out));
    if (total(out) > s->limit)
        return TD_OK;
    *batch = 1;
    TD_TRY(grow(s, batch, out, &fails, &fails_bytes));
    for (bool in_middle = false; fails - *batch > 1; in_middle = !in_middle) {
        /* alternate with bisection, in case memory is not linear */
        const int next = in_middle ? *batch + (fails - *batch) / 2
                                   : guess(s->limit, *batch, total(out), fails, fails_bytes);
        TD_TRY(plan(s, next, &p));
        if (total(&p) <= s->limit) {
            *batch = next;
            *out = p;
        } else {
            fails = next;
            fails_bytes = total(&p);
        }
    }
    return TD_OK;
}

/* --- one precision, in a child ---------------------------------------------------------------- */

static void add_result(const search *s, int batch, const parts *p, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "precision", td_amp_precision_name(&s->amp));
    td_json_add(out, "largest_batch", batch);
    td_json_add(out, "bytes", (double)total(p));
    for (int i = 0; i < N_PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_bytes", part_names[i]);
        td_json_add(out, name, (double)p->bytes[i]);
    }
    td_json_add(out, "bytes_of_batch", batch ? batch : 1);
    td_json_add(out, "plans_made", s->n_plans);
    td_text_add(out, "}");
}

static td_status search_one(void *ctx, td_text *out)
{
    search *s = ctx;
    td_status st = TD_OK;
    parts p;
    int batch;
    TD_OUT(td_device_open(s->o->device.name, &s->dev));
    td_device_winograd(s->dev, s->o->device.winograd);
    if (s->dev->memory == &td_gpu_memory)
        TD_OUT(td_error(TD_EUSAGE, "--largest-batch plans the memory of a process, not of a GPU: "
                                   "--device cuda cannot be combined with it"));
    TD_OUT(td_amp_resolve(&s->amp, s->dev));
    TD_OUT(measure_runtime(s));
    s->amp.is_silent = true; /* further plans would log the same */
    TD_OUT(find(s, &batch, &p));
    add_result(s, batch, &p, out);
out:
    td_device_close(s->dev);
    return st;
}

/* --- all precisions --------------------------------------------------------------------------- */

static td_status row_text(const char *json, td_text *out)
{
    td_status st = TD_OK;
    td_json *doc;
    const char *precision;
    int64_t batch, bytes;
    TD_TRY(td_json_parse(json, strlen(json), "search", &doc));
    TD_OUT(td_json_text(doc, "precision", &precision));
    TD_OUT(td_json_int(doc, "largest_batch", &batch));
    TD_OUT(td_json_int(doc, "bytes", &bytes));
    if (batch)
        td_text_add(out, "%-10s %8lld %10.1f", precision, (long long)batch, (double)bytes / 1e6);
    else
        td_text_add(out, "%-10s %8s %10.1f", precision, "none", (double)bytes / 1e6);
    for (int i = 0; i < N_PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_bytes", part_names[i]);
        TD_OUT(td_json_int(doc, name, &bytes));
        td_text_add(out, " %10.1f", (double)bytes / 1e6);
    }
    td_text_add(out, batch ? "\n" : "   (one image)\n");
out:
    td_json_free(doc);
    return st;
}

static td_status show_text(const search *s, const td_text *found, int n, td_text *out)
{
    td_text_add(out,
                "largest batches that train within %.1f MB; memory in MB as planned\n"
                "\n",
                (double)s->limit / 1e6);
    td_text_add(out, "%-10s %8s %10s", "precision", "batch", "all");
    for (int i = 0; i < N_PARTS; i++)
        td_text_add(out, " %10s", part_names[i]);
    td_text_add(out, "\n");
    for (int i = 0; i < n; i++)
        TD_TRY(row_text(td_text_get(&found[i]), out));
    td_text_add(
        out,
        "\n"
        "step: parameters, velocities, activations, scratch.  validation: the same for the\n"
        "validation network.  input: %d batches ahead, both loaders.  checkpoint: copies while one "
        "is written.\n"
        "runtime: the process itself, measured.\n",
        s->o->input.prefetch);
    return td_text_status(out);
}

static td_status show_json(const search *s, const td_text *found, int n, td_text *out)
{
    td_text_add(out, "{\"memory_limit_bytes\": %lld, \"image_size\": %d, \"largest_batch\": [",
                (long long)s->limit, s->model.image_size);
    for (int i = 0; i < n; i++)
        td_text_add(out, "%s%s", i ? ", " : "", td_text_get(&found[i]));
    td_text_add(out, "]}");
    return td_text_status(out);
}

static td_status complete(search *s)
{
    s->model = s->o->model;
    s->limit = s->o->memory_limit ? s->o->memory_limit : td_memory_total_bytes();
    TD_TRY(td_model_resolve(&s->model));
    if (!s->model.num_classes)
        s->model.num_classes = td_model_default_classes(&s->model, 1000);
    return TD_OK;
}

td_status td_benchmark_largest_batch(const td_benchmark_opts *o, td_text *out)
{
    const bool is_one = o->amp.precision != TD_PRECISION_DEFAULT || o->amp.amp ||
                        o->amp.level != TD_AMP_LEVEL_DEFAULT;
    td_status st = TD_OK;
    td_text found[N_PRECISIONS] = { { 0 } };
    search s = { .o = o };
    int n = 0;
    TD_TRY(complete(&s));
    for (; n < (is_one ? 1 : N_PRECISIONS); n++) {
        s.amp = o->amp;
        s.parent_bytes = td_memory_now_bytes();
        if (!is_one)
            s.amp.precision = (td_precision)(TD_PRECISION_FP32 + n);
        td_log(TD_LOG_INFO, "benchmark", "the largest batch: %s",
               is_one ? "one precision" : precisions[n]);
        TD_OUT(td_child_run(search_one, &s, &found[n]));
    }
    st = o->as_table ? show_text(&s, found, n, out) : show_json(&s, found, n, out);
out:
    for (int i = 0; i < N_PRECISIONS; i++)
        td_text_release(&found[i]);
    return st;
}
