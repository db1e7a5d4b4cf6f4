/*
 * walkthrough.c -- measures the steps of NVIDIA's article on mixed precision
 *
 *     float32 at B  ->  mixed at B  ->  mixed and fused at B  ->  mixed and fused at 2 B
 *
 * with TF32, which is younger than the article, between the first two on device cuda.
 *
 * After NVIDIA, "Automatic Mixed Precision for NVIDIA Tensor Core Architecture in TensorFlow": half
 * precision alone, then with XLA, then with a larger batch in the memory saved.  Here the pass
 * `fuse` corresponds to XLA: it merges neighboring ops that use the same memory into one kernel;
 * the steps before skip it and `norms`, which does the same with convolutions on GPUs.  Layouts are
 * chosen in all steps, as in TensorFlow without XLA.
 *
 * Each step runs in a separate process, because the peak of a process's memory never decreases.
 */
#include "benchmark/benchmark.h"
#include "benchmark/benchmark_text.h"

#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/json.h"
#include "base/log.h"
#include "pass/amp.h"

enum { STEPS = 5 };

static const struct {
    const char *name, *article; /* name in the article */
    td_precision precision;     /* default: that of the mixed steps */
    bool is_fused;
    int batch_factor; /* factor of the batch size */
} steps[STEPS] = {
    { "float32", "FP32", TD_PRECISION_FP32, false, 1 },
    { "tf32", "", TD_PRECISION_TF32, false, 1 }, /* device cuda only */
    { "mixed", "AMP", TD_PRECISION_DEFAULT, false, 1 },
    { "mixed, fused", "AMP + XLA", TD_PRECISION_DEFAULT, true, 1 },
    { "mixed, fused, twice the batch", "AMP + XLA, larger batch", TD_PRECISION_DEFAULT, true, 2 },
};

typedef struct {
    char options[160];
    char precision[8];
    int batch;
    double median, min, max; /* images/s */
    double peak_bytes, planned_bytes;
    bool is_device_peak; /* peak_bytes is of the device's memory */
    td_text json;        /* the measurement, JSON */
} result;

/* --- one step --------------------------------------------------------------------------------- */

static td_status measure(void *ctx, td_text *out)
{
    return td_benchmark_network(ctx, out);
}

static bool is_gpu(const td_benchmark_opts *o)
{
    return o->device.name && strcmp(o->device.name, "cuda") == 0;
}

static bool is_measured(const td_benchmark_opts *o, int i)
{
    return steps[i].precision != TD_PRECISION_TF32 || is_gpu(o);
}

/*
 * The options of a step; `skip` holds its list of skipped passes if it differs from the caller's.
 */
static td_status options_of(const td_benchmark_opts *o, int i, char *skip, size_t room,
                            td_benchmark_opts *out)
{
    *out = *o;
    out->batch_size = o->batch_size * steps[i].batch_factor;
    out->bound = out->kernels = false;
    if (steps[i].precision != TD_PRECISION_DEFAULT)
        out->amp = (td_amp_opts){ .precision = steps[i].precision };
    else if (o->amp.precision == TD_PRECISION_DEFAULT)
        out->amp.precision = is_gpu(o) ? TD_PRECISION_FP16 : TD_PRECISION_BF16;
    if (steps[i].is_fused)
        return TD_OK;
    const char *given = o->device.skip_passes;
    int n = snprintf(skip, room, "%s%sfuse%s", given ? given : "", given ? "," : "",
                     is_gpu(o) ? ",norms" : "");
    out->device.skip_passes = skip;
    return n >= 0 && (size_t)n < room
               ? TD_OK
               : td_error(TD_EUSAGE, "--skip-passes: '%.40s...' is too long", given);
}

static td_status read_result(result *r)
{
    td_status st = TD_OK;
    td_json *doc;
    const char *precision;
    TD_TRY(td_json_parse(td_text_get(&r->json), r->json.len, "benchmark", &doc));
    const td_json *speed = td_json_get(doc, "images_per_s");
    if (!speed)
        TD_OUT(td_error(TD_EFORMAT, "benchmark: no images_per_s"));
    TD_OUT(td_json_number(speed, "median", &r->median));
    TD_OUT(td_json_number(speed, "min", &r->min));
    TD_OUT(td_json_number(speed, "max", &r->max));
    TD_OUT(td_benchmark_peak(doc, &r->peak_bytes, &r->is_device_peak));
    TD_OUT(td_json_number(doc, "planned_memory_bytes", &r->planned_bytes));
    TD_OUT(td_json_text(doc, "precision", &precision));
    snprintf(r->precision, sizeof r->precision, "%s", precision);
out:
    td_json_free(doc);
    return st;
}

static td_status run_step(const td_benchmark_opts *o, int i, result *r)
{
    char skip[256];
    td_benchmark_opts step;
    TD_TRY(options_of(o, i, skip, sizeof skip, &step));
    td_log(TD_LOG_INFO, "benchmark", "%s, batch %d", steps[i].name, step.batch_size);
    TD_TRY_MSG(td_child_run(measure, &step, &r->json), "step '%s'", steps[i].name);
    TD_TRY(read_result(r));
    r->batch = step.batch_size;
    int n = snprintf(r->options, sizeof r->options, "-b %d --precision %s", r->batch, r->precision);
    if (step.device.skip_passes && n > 0)
        snprintf(r->options + n, sizeof r->options - (size_t)n, " --skip-passes %s",
                 step.device.skip_passes);
    return TD_OK;
}

/* --- all steps -------------------------------------------------------------------------------- */

static void show_text(const td_benchmark_opts *o, const result *r, td_text *out)
{
    td_text_add(out, "%-30s %-44s %9s %9s %9s %8s %9s %10s\n", "step", "options", "images/s", "min",
                "max", "speed-up", "peak MB", "planned MB");
    for (int i = 0; i < STEPS; i++) {
        if (!is_measured(o, i))
            continue;
        td_text_add(out, "%-30s %-44s %9.2f %9.2f %9.2f %7.2fx %9.1f %10.1f\n", steps[i].name,
                    r[i].options, r[i].median, r[i].min, r[i].max, r[i].median / r[0].median,
                    r[i].peak_bytes / 1e6, r[i].planned_bytes / 1e6);
    }
    td_text_add(out,
                "\n"
                "images/s: median, slowest and fastest of %d iterations after %d of warm-up\n"
                "peak: largest %s memory of the step's process\n"
                "fused: by the pass%s, in place of XLA\n",
                o->iters, o->warmup, r[0].is_device_peak ? "GPU" : "resident",
                is_gpu(o) ? "es fuse and norms" : " fuse");
}

static void show_json(const td_benchmark_opts *o, const result *r, td_text *out)
{
    td_text_add(out, "{\"walkthrough\": [");
    for (int i = 0; i < STEPS; i++) {
        if (!is_measured(o, i))
            continue;
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "step", steps[i].name);
        td_json_add_text(out, "article", steps[i].article);
        td_json_add_text(out, "options", r[i].options);
        td_text_add(out, ", \"is_fused\": %s", steps[i].is_fused ? "true" : "false");
        td_json_add(out, "speedup", r[i].median / r[0].median);
        td_text_add(out, ", \"result\": %s}", td_text_get(&r[i].json));
    }
    td_text_add(out, "]}");
}

td_status td_benchmark_walkthrough(const td_benchmark_opts *o, td_text *out)
{
    td_status st = TD_OK;
    result r[STEPS] = { { .batch = 0 } };
    for (int i = 0; i < STEPS; i++)
        if (is_measured(o, i))
            TD_OUT(run_step(o, i, &r[i]));
    if (o->as_table)
        show_text(o, r, out);
    else
        show_json(o, r, out);
    st = td_text_status(out);
out:
    for (int i = 0; i < STEPS; i++)
        td_text_release(&r[i].json);
    return st;
}
