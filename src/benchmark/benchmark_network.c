/*
 * benchmark_network.c -- measures training or inference of one network
 *
 * Warm-up runs are not counted.  The result is the median with its spread, and the bound: the batch
 * divided by the sum of the best times of the step's convolutions and matrix products, each
 * measured separately in the layout in which it runs.  No program with the same kernels can be
 * faster without doing less work.
 */
#include "benchmark/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/paths.h"
#include "base/signals.h"
#include "base/stats.h"
#include "base/text.h"
#include "benchmark/benchmark_feed.h"
#include "benchmark/benchmark_report.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "comm/join.h"
#include "device/device_memory.h"
#include "device/gpu_plugin.h"
#include "inference/detector.h"
#include "inference/inputs.h"
#include "loggers/throughput.h"
#include "model/arch.h"
#include "model/own_graph.h"
#include "optim/inference_program.h"
#include "optim/memory_limit.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "profiler/profile.h"
#include "profiler/trace.h"
#include "quantize/calibration.h"
#include "runtime/device.h"
#include "runtime/program_digest.h"
#include "tandem/benchmark.h"
#include "tandem/dataset.h"
#include "transport/rank_env.h"

typedef struct {
    td_benchmark_opts o; /* a copy, in which `model` is resolved */
    td_comm *comm;       /* NULL: one rank */
    int n_ranks;
    float inverse; /* 1 / (loss scale * ranks), since gradients are averaged */
    td_device *dev;
    td_graph *graph;
    td_program *program;
    td_profile *profile;          /* NULL without --prof */
    td_trace *trace;              /* NULL without --trace */
    td_tensors *weights;          /* NULL: fresh weights */
    td_tensors *fresh;            /* these, until the program has them; NULL: not yet made */
    td_quantization quantization; /* of --precision int8 */
    char *checkpoint;             /* path, with --checkpoint-dir */
    td_feed feed;
    td_benchmark_report report;
    td_detector_runner *runner; /* for a detector's inference: owns the program */
    double boxes_s;             /* post-processing in the measured iterations */
    double wait_s;              /* waiting for data in the measured iterations */
    double *seconds;            /* [iters], in order, including the wait for data */
    double first_step_s;
    double bound_s, chosen_s; /* of direct convolutions, and of those in the program; 0: unknown */
    int64_t peak_bytes;
    td_gpu_memory_use gpu; /* total 0: no GPU is used */
} bench;

static void release(bench *b)
{
    td_profile_free(b->profile);
    if (!b->runner)
        td_program_free(b->program);
    td_detector_runner_free(b->runner);
    td_graph_free(b->graph);
    td_device_close(b->dev);
    td_feed_release(&b->feed);
    td_tensors_free(b->weights);
    td_tensors_free(b->fresh);
    td_quantization_release(&b->quantization);
    td_free(b->checkpoint);
    td_free(b->seconds);
}

/* Are the ranges of int8 those of random images? */
static bool needs_ranges(const bench *b)
{
    return b->o.mode == TD_BENCHMARK_INFERENCE && b->o.amp.precision == TD_PRECISION_INT8 &&
           !b->o.amp.ranges;
}

static td_status open_device(bench *b)
{
    TD_TRY(td_device_open(b->o.device.name, &b->dev));
    td_device_winograd(b->dev, b->o.device.winograd);
    if (!needs_ranges(b)) /* otherwise once the network is known */
        TD_TRY(td_amp_resolve(&b->o.amp, b->dev));
    TD_TRY(td_device_join(b->dev, b->comm));
    return td_device_tune(b->dev, b->o.device.tune, b->o.device.tune_cache);
}

static td_status open_feed(bench *b)
{
    const td_feed_opts f = { .input = &b->o.input,
                             .batch = b->o.batch_size,
                             .is_training = b->o.mode == TD_BENCHMARK_TRAINING,
                             .dev = b->dev,
                             .comm = b->comm };
    b->seconds = td_alloc((size_t)b->o.iters, sizeof *b->seconds);
    return b->seconds ? td_feed_open(&f, &b->o.model, &b->feed) : TD_ENOMEM;
}

static td_status open_weights(bench *b)
{
    if (b->o.checkpoint_dir) {
        b->checkpoint = td_path_join(b->o.checkpoint_dir, TD_CHECKPOINT_NAME);
        if (!b->checkpoint)
            return TD_ENOMEM;
        b->o.weights = b->checkpoint;
    }
    td_model_onnx_weights(&b->o.model, &b->o.weights);
    if (!b->o.weights)
        return TD_OK;
    TD_TRY(td_weight_file_open_for(b->o.weights, false, &b->o.model, &b->weights));
    td_weight_metadata_apply(b->weights, td_model_is_default(&b->o.model), &b->o.model);
    TD_TRY(td_weight_metadata_check(b->weights, b->o.weights, &b->o.model));
    TD_TRY(td_weight_norm_apply(b->weights, b->o.weights, true, &b->o.model));
    if (b->o.mode == TD_BENCHMARK_TRAINING || !td_tensors_meta(b->weights, TD_QUANTIZATION_META))
        return TD_OK;
    return td_quantization_apply(b->weights, b->o.weights, &b->o.amp, &b->quantization);
}

static td_status load_weights(bench *b)
{
    const td_load_opts load = { .model = &b->o.model };
    if (b->weights)
        return td_weights_load(b->weights, b->o.weights, &load, b->program);
    if (!b->fresh)
        return td_program_init(b->program, 1);
    TD_TRY(td_weights_load(b->fresh, "initial weights", &load, b->program));
    td_tensors_free(b->fresh);
    b->fresh = NULL;
    return TD_OK;
}

/* Bind the factor that turns the sums over ranks into means. */
static td_status bind_ranks(bench *b)
{
    if (!b->comm)
        return TD_OK;
    b->inverse = 1 / (float)b->n_ranks / td_step_scale(&b->o.amp);
    return td_program_bind(b->program, TD_INPUT_INVERSE, &b->inverse);
}

/* Check that all ranks have compiled the same step. */
static td_status agree(const bench *b)
{
    td_text text = { 0 };
    if (!b->comm)
        return TD_OK;
    td_status st = td_describe_program("compiled step", b->program, &text);
    if (st == TD_OK)
        st = td_comm_agree(b->comm, "benchmark", td_text_get(&text));
    td_text_release(&text);
    return st;
}

static int64_t planned_runs(const bench *b)
{
    return (int64_t)b->o.warmup + b->o.iters;
}

/*
 * A detector's inference includes post-processing, so a detector runner owns the program.
 */
static td_status compile_detector_runner(bench *b)
{
    const td_detector_runner_opts fo = { .batch = b->o.batch_size,
                                         .norm = b->feed.norm,
                                         .amp = &b->o.amp,
                                         .skip_passes = b->o.device.skip_passes,
                                         .planned_runs = planned_runs(b) };
    TD_TRY(td_detector_runner_new(&b->o.model, b->dev, &fo, &b->runner));
    b->program = td_detector_runner_program(b->runner);
    return load_weights(b);
}

/* Without a quantized file, int8 is measured with ranges of random images. */
static td_status calibrate(bench *b)
{
    td_log(
        TD_LOG_INFO, "benchmark",
        "int8: the ranges of activations are those of random images, so speeds are valid, scores "
        "are not");
    TD_TRY(td_calibrate_random(&b->o.model, b->dev, b->weights, b->o.weights, &b->fresh,
                               &b->quantization));
    b->o.amp.ranges = &b->quantization.table;
    return td_amp_resolve(&b->o.amp, b->dev);
}

/* a trace shows every kernel, so then the batch is computed at once; the graph is for the bound */
static td_status compile_inference(bench *b, const td_compile_opts *c)
{
    const td_inference_opts o = { .model = &b->o.model,
                                  .batch = b->o.batch_size,
                                  .norm = b->feed.norm,
                                  .is_whole = b->o.trace != NULL };
    TD_TRY(td_inference_graph(o.model, o.batch, o.norm, &b->graph));
    TD_TRY(td_inference_compile(&o, b->dev, c, &b->program));
    return load_weights(b);
}

static td_status compile_training(bench *b, td_compile_opts *c)
{
    const td_process_memory share = { .limit = b->o.memory_limit,
                                      .model = &b->o.model,
                                      .amp = &b->o.amp,
                                      .dev = b->dev,
                                      .device = b->o.device.name,
                                      .skip_passes = b->o.device.skip_passes,
                                      .batch = b->o.batch_size,
                                      .n_batches = 1 };
    TD_TRY(td_step_graph(&b->o.model, b->o.batch_size, &b->o.amp, b->n_ranks, b->feed.norm,
                         &b->graph));
    TD_TRY(td_compile_within(b->graph, &share, c, &b->program));
    TD_TRY(load_weights(b));
    TD_TRY(td_step_bind_scalars(b->program, &b->o.amp));
    TD_TRY(bind_ranks(b));
    return agree(b);
}

static td_status compile(bench *b)
{
    td_compile_opts c = { .amp = &b->o.amp,
                          .skip = b->o.device.skip_passes,
                          .planned_runs = planned_runs(b) };
    if (needs_ranges(b))
        TD_TRY(calibrate(b));
    if (b->o.mode == TD_BENCHMARK_TRAINING)
        return compile_training(b, &c);
    return td_model_detector(&b->o.model) ? compile_detector_runner(b) : compile_inference(b, &c);
}

static td_status open_trace(bench *b)
{
    char model[200], what[256];
    td_model_name(&b->o.model, model, sizeof model);
    snprintf(what, sizeof what, "benchmark %s", model);
    return td_trace_open(b->o.trace, what, b->program, &b->trace);
}

static void trace_iteration(bench *b, int i, int64_t begin_ns)
{
    td_trace_step(b->trace, &(td_trace_place){ .step = i + 1,
                                               .epoch = -1,
                                               .begin_ns = begin_ns,
                                               .end_ns = td_now_ns(),
                                               .loss = (double)NAN });
}

/* Run one iteration; as in training, the next images are copied to the device meanwhile. */
static td_status run_program(bench *b)
{
    TD_TRY(td_program_start(b->program));
    TD_TRY(td_program_send_ahead(b->program, "images", td_feed_peek(&b->feed)));
    return td_program_finish(b->program);
}

static td_status run_once(bench *b)
{
    const void *images;
    TD_TRY(td_feed_next(&b->feed, b->runner ? NULL : b->program, &images));
    if (!b->runner)
        return run_program(b);
    const td_nms_opts nms = td_nms_defaults(td_detector_runner_anchors(b->runner)->kind);
    TD_TRY(td_detector_runner_run(b->runner, images, b->o.batch_size, &nms));
    b->boxes_s += td_detector_runner_boxes_s(b->runner);
    return TD_OK;
}

td_status td_benchmark_check_signals(td_comm *c)
{
    int64_t n = td_signal_caught() ? 1 : 0;
    TD_TRY(td_comm_sum_i64(c, &n, 1));
    return n ? td_error(TD_ESTOPPED, "interrupted by a signal") : TD_OK;
}

static td_status open_report(bench *b)
{
    const td_benchmark_metadata metadata = { .program = b->program,
                                             .ranks = b->n_ranks,
                                             .n_images =
                                                 b->feed.ds ? td_dataset_count(b->feed.ds) : 0,
                                             .lr = TD_STEP_LR,
                                             .scale = td_step_scale(&b->o.amp) };
    return td_comm_rank(b->comm) > 0 ? TD_OK
                                     : td_benchmark_report_open(&b->o, &metadata, &b->report);
}

/* The loss; NaN with several ranks, each of which has another loss. */
static double loss_of(const bench *b)
{
    const float *loss = b->comm || b->o.mode != TD_BENCHMARK_TRAINING
                            ? NULL
                            : td_program_output(b->program, "loss", NULL);
    return loss ? (double)*loss : (double)NAN;
}

static td_status note_iteration(bench *b, int i, double seconds)
{
    if (i < 0)
        return TD_OK;
    b->seconds[i] = seconds;
    b->wait_s += b->feed.wait_s;
    return td_benchmark_report_step(&b->report, i, seconds, b->feed.wait_s, loss_of(b));
}

static td_status measure(bench *b)
{
    TD_TRY(open_report(b));
    TD_TRY(open_trace(b));
    for (int i = -b->o.warmup; i < b->o.iters; i++) {
        if (i == 0 && b->o.prof > 0)
            TD_TRY(td_profile_new(b->program, b->o.warmup == 0, &b->profile));
        else if (i == 0 && b->o.kernels)
            td_program_profile(b->program, true);
        if (i == 0)
            b->boxes_s = 0;
        int64_t t0 = td_now_ns();
        TD_TRY(td_benchmark_check_signals(b->comm));
        TD_TRY(run_once(b));
        TD_TRY(note_iteration(b, i, (double)(td_now_ns() - t0) * 1e-9));
        td_profile_step(b->profile, -1);
        trace_iteration(b, i, t0);
        if (i == -b->o.warmup)
            b->first_step_s = (double)td_since_start_ns() * 1e-9;
        td_log(TD_LOG_DEBUG, "benchmark", "iteration %d: %.2f ms", i,
               (double)(td_now_ns() - t0) * 1e-6);
    }
    b->peak_bytes = td_memory_peak_bytes();
    if (b->dev->memory == &td_gpu_memory)
        TD_TRY(td_gpu_memory_used(&b->gpu));
    TD_TRY(td_feed_check(&b->feed));
    return td_benchmark_report_end(&b->report, b->seconds);
}

static void add_kernels(const bench *b, td_text *out)
{
    int64_t runs = td_program_run_count(b->program);
    bool first = true;
    td_text_add(out, ", \"kernels\": [");
    for (int i = 0; i < td_program_node_count(b->program); i++) {
        td_node_report r = td_program_node(b->program, i);
        if (!*r.kernel)
            continue;
        td_text_add(out,
                    "%s{\"label\": \"%s\", \"op\": \"%s\", \"kernel\": \"%s\", \"impl\": \"%s\", ",
                    first ? "" : ", ", r.label, r.op, r.kernel, r.impl);
        td_text_add(out, "\"ms\": %.4f, \"gmac\": %.4f}",
                    r.seconds * 1e3 / (double)(runs ? runs : 1), (double)r.macs * 1e-9);
        first = false;
    }
    td_text_add(out, "]");
}

static void add_memory(const bench *b, td_text *out)
{
    const td_memory_report m = td_program_memory(b->program);
    td_json_add(out, "peak_memory_bytes", (double)b->peak_bytes);
    td_json_add(out, "planned_memory_bytes", (double)(m.param_bytes + m.activation_bytes));
    td_json_add(out, "planned_parameter_bytes", (double)m.param_bytes);
    td_json_add(out, "planned_activation_bytes", (double)m.activation_bytes);
    if (b->gpu.total) {
        td_json_add(out, "planned_workspace_bytes", (double)m.scratch_bytes);
        td_json_add(out, "device_peak_memory_bytes", (double)b->gpu.peak);
        td_json_add(out, "device_memory_bytes", (double)b->gpu.now);
        td_json_add(out, "device_other_memory_bytes", (double)b->gpu.other);
        td_json_add(out, "device_total_memory_bytes", (double)b->gpu.total);
    }
    if (!m.n_recomputed)
        return;
    td_json_add(out, "unlimited_memory_bytes", (double)m.unlimited_bytes);
    td_json_add(out, "recomputed_results", m.n_recomputed);
    td_json_add(out, "recomputed_macs", (double)m.recomputed_macs);
}

/* Add a detector's results under the reference's names; `rate` images/s, `latency` s. */
static void add_detector(const bench *b, double rate, double latency, td_text *out)
{
    const int n = b->o.iters;
    double *s = b->seconds;
    if (!td_model_lacks(&b->o.model, "backbone"))
        td_json_add_text(out, "backbone", b->o.model.backbone);
    if (!b->runner) {
        td_json_add(out, "train_throughput", rate);
        return;
    }
    td_json_add(out, "boxes_ms", b->boxes_s / n * 1e3);
    td_json_add(out, "infer_throughput", rate);
    td_json_add(out, "eval_avg_latency", latency * 1e3);
    td_json_add(out, "eval_90%_latency", td_quantile(s, n, 0.9) * 1e3);
    td_json_add(out, "eval_95%_latency", td_quantile(s, n, 0.95) * 1e3);
    td_json_add(out, "eval_99%_latency", td_quantile(s, n, 0.99) * 1e3);
}

/* Add the reference's result for training a detector; computed for any network. */
static void add_last_quarter(const bench *b, double batch, td_text *out)
{
    const td_last_quarter q = td_last_quarter_of_steps(b->seconds, b->o.iters);
    td_text_add(out, ", \"last_quarter\": {");
    td_json_add(out, "images_per_s", batch * q.mean);
    td_json_add(out, "lines", q.n);
    td_json_add(out, "lines_kept", q.n_kept);
    td_json_add(out, "line_steps", td_speed_line_steps(b->o.iters));
    td_text_add(out, "}");
}

/* Add results about the data set, if any. */
static void add_data(const bench *b, td_text *out)
{
    if (!b->feed.ds)
        return;
    td_text_add(out, ", \"data\": {\"path\": \"");
    td_text_add_json(out, td_dataset_root(b->feed.ds));
    td_text_add(out, "\"");
    td_json_add(out, "images", (double)td_dataset_count(b->feed.ds));
    td_json_add(out, "wait_ms", b->wait_s / b->o.iters * 1e3);
    td_text_add(out, "}");
}

/* the graph file, the file that holds the graph beside its weights, or the architecture */
static const char *network_of(const td_benchmark_opts *o)
{
    if (o->model.model)
        return o->model.model;
    return o->model.model_text ? o->weights : o->model.arch;
}

static void add_network(bench *b, td_text *out)
{
    int n = b->o.iters;
    double batch = (double)b->o.batch_size * b->n_ranks, sum = 0;
    td_text last_quarter = { 0 };
    if (b->o.mode == TD_BENCHMARK_TRAINING) /* before `seconds` are sorted */
        add_last_quarter(b, batch, &last_quarter);
    for (int i = 0; i < n; i++)
        sum += b->seconds[i];
    double *s = b->seconds, p50 = td_median(s, n), slowest = td_quantile(s, n, 1);
    td_text_add(out, "{\"arch\": \"");
    td_text_add_json(out, network_of(&b->o));
    td_text_add(out, "\", \"mode\": \"%s\", \"precision\": \"%s\", \"batch_size\": %d",
                b->o.mode == TD_BENCHMARK_TRAINING ? "training" : "inference",
                td_amp_precision_name(&b->o.amp), b->o.batch_size);
    if (td_program_micro_batches(b->program) > 1)
        td_json_add(out, "micro_batch_size",
                    b->o.batch_size / td_program_micro_batches(b->program));
    if (td_program_lanes(b->program) > 1)
        td_json_add(out, "lanes", td_program_lanes(b->program));
    td_json_add(out, "ranks", b->n_ranks);
    td_text_add(out, ", \"image_size\": %d, \"threads\": %d, \"iters\": %d, \"warmup\": %d, ",
                b->o.model.image_size, td_threads(), n, b->o.warmup);
    td_text_add(out, "\"images_per_s\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f}, ",
                batch / p50, batch / slowest, batch / s[0]);
    td_text_add(out, "\"latency_ms\": {\"avg\": %.4f, \"p50\": %.4f, \"p90\": %.4f, ",
                sum / n * 1e3, p50 * 1e3, td_quantile(s, n, 0.9) * 1e3);
    td_text_add(out, "\"p95\": %.4f, \"p99\": %.4f, \"max\": %.4f}", td_quantile(s, n, 0.95) * 1e3,
                td_quantile(s, n, 0.99) * 1e3, slowest * 1e3);
    td_text_add_bytes(out, last_quarter.data, last_quarter.len);
    if (out->st == TD_OK)
        out->st = last_quarter.st;
    td_text_release(&last_quarter);
    if (td_model_detector(&b->o.model))
        add_detector(b, batch / p50, sum / n, out);
    add_data(b, out);
    add_memory(b, out);
    td_text_add(out, ", \"time_to_first_step_s\": %.4f, \"bound_images_per_s\": ", b->first_step_s);
    td_text_add(out, b->bound_s > 0 ? "%.4f" : "null", batch / b->bound_s);
    if (b->chosen_s > 0 && b->chosen_s != b->bound_s)
        td_json_add(out, "chosen_bound_images_per_s", batch / b->chosen_s);
    if (b->o.kernels)
        add_kernels(b, out);
    if (b->profile && !b->o.profile) {
        td_text_add(out, ", \"profile\": ");
        td_profile_json(b->profile, out);
    }
    td_text_add(out, "}");
}

/* --- the bound -------------------------------------------------------------------------------- */

static bool is_in_tiles(const td_node_report *r)
{
    return strncmp(r->op, "conv2d_winograd", strlen("conv2d_winograd")) == 0 && !r->is_setup;
}

/* does the program have this node? */
static td_status has_node(const td_program *p, const td_node_report *wanted, bool *found)
{
    const size_t length = strlen(wanted->label) + 1;
    char *label = td_alloc(length, 1); /* a copy, because the next report overwrites it */
    if (!label)
        return TD_ENOMEM;
    memcpy(label, wanted->label, length);
    *found = false;
    for (int i = 0; i < td_program_node_count(p) && !*found; i++) {
        const td_node_report r = td_program_node(p, i);
        *found =
            r.macs == wanted->macs && strcmp(r.op, wanted->op) == 0 && strcmp(r.label, label) == 0;
    }
    td_free(label);
    return TD_OK;
}

/* adds `sign` times the time of the nodes in tiles, or of direct ones that `other` does not have */
static td_status add_times(td_program *p, const td_program *other, double sign, double *seconds)
{
    for (int i = 0; i < td_program_node_count(p); i++) {
        const td_node_report r = td_program_node(p, i);
        double best;
        bool is_left_out = other ? !r.macs || r.is_setup : !is_in_tiles(&r);
        if (other && !is_left_out)
            TD_TRY(has_node(other, &r, &is_left_out));
        if (is_left_out)
            continue;
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "interrupted by a signal");
        TD_TRY(td_program_time(p, i, TD_BOUND_RUNS, &best));
        *seconds += sign * best;
    }
    return TD_OK;
}

static bool computes_in_tiles(const td_program *p)
{
    bool found = false;
    for (int i = 0; i < td_program_node_count(p); i++) {
        const td_node_report r = td_program_node(p, i);
        found = found || is_in_tiles(&r);
    }
    return found;
}

/*
 * The bound, and that of the program if it computes convolutions by Winograd's algorithm: then the
 * direct ones are timed in a second program.  A detector's inference has no graph to compile again.
 */
static td_status measure_bound(bench *b)
{
    const td_compile_opts c = { .amp = &b->o.amp, .skip = b->o.device.skip_passes };
    td_program *direct = NULL;
    td_status st = TD_OK;
    TD_TRY(td_profile_bound(b->program, b->profile, &b->chosen_s));
    b->bound_s = b->chosen_s;
    if (!computes_in_tiles(b->program))
        return TD_OK;
    b->bound_s = 0;
    if (!b->graph)
        return TD_OK;
    td_device_winograd(b->dev, TD_WINOGRAD_OFF);
    double seconds = b->chosen_s;
    TD_OUT(td_compile(b->graph, b->dev, &c, &direct));
    TD_OUT(add_times(b->program, NULL, -1, &seconds));
    TD_OUT(add_times(direct, b->program, 1, &seconds));
    b->bound_s = seconds;
out:
    td_program_free(direct);
    td_device_winograd(b->dev, b->o.device.winograd);
    return st;
}

static td_status show_profile(const bench *b)
{
    td_text text = { 0 };
    if (!b->profile || !b->o.profile)
        return TD_OK;
    td_profile_text(b->profile, &text);
    return td_text_take(&text, TD_OK, b->o.profile);
}

static td_status run_network(bench *b, td_text *out)
{
    TD_TRY(open_weights(b));
    TD_TRY(open_device(b)); /* it decides what images are */
    TD_TRY(open_feed(b));
    TD_TRY(compile(b));
    TD_TRY(measure(b));
    if (b->o.bound)
        TD_TRY(measure_bound(b));
    if (td_comm_rank(b->comm) == 0)
        add_network(b, out);
    else
        td_text_add(out, "%s", ""); /* only rank 0 prints */
    return td_text_status(out);
}

td_status td_benchmark_join(td_benchmark_opts *o, td_comm **out)
{
    TD_TRY(td_join("benchmark",
                   &(td_join_opts){ .log = o->log,
                                    .threads = o->device.threads,
                                    .allreduce = o->allreduce,
                                    .has_device = true },
                   out));
    if (!*out)
        return TD_OK;
    o->batch_size /= td_ranks_sharing();
    if (o->device.tune == TD_TUNE_FULL)
        o->device.tune = TD_TUNE_CACHED; /* use what one rank stored in the cache */
    td_set_threads(o->device.threads ? o->device.threads : td_comm_threads(*out));
    return TD_OK;
}

static td_status join_ranks(bench *b)
{
    if (b->o.mode != TD_BENCHMARK_TRAINING)
        return TD_OK;
    TD_TRY(td_benchmark_join(&b->o, &b->comm));
    b->n_ranks = td_comm_size(b->comm);
    return TD_OK;
}

td_status td_benchmark_network(const td_benchmark_opts *o, td_text *out)
{
    bench b = { .o = *o, .n_ranks = 1 };
    if (o->prof > 0)
        b.o.iters = o->prof;
    td_status st = join_ranks(&b);
    if (st == TD_OK)
        st = run_network(&b, out);
    st = td_trace_close(b.trace, st);
    st = td_benchmark_report_close(&b.report, st);
    if (st == TD_OK)
        st = show_profile(&b);
    td_device_leave(b.dev, st);
    release(&b);
    td_leave(b.comm, st);
    return st;
}
