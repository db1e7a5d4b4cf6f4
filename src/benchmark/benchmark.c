/*
 * benchmark.c -- `tandem benchmark`: chooses the measurement by the options, and checks conflicts
 */
#include "benchmark/benchmark.h"

#include "base/log.h"
#include "base/paths.h"
#include "base/signals.h"
#include "benchmark/benchmark_feed.h"
#include "benchmark/benchmark_text.h"
#include "benchmark/problem.h"
#include "inference/inputs.h"
#include "optim/training_graph.h"
#include "tandem/benchmark.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"
#include "transport/rank_env.h"

/* --- the input pipeline ----------------------------------------------------------------------- */

static td_status bench_data(const td_benchmark_opts *o, td_text *out)
{
    td_status st = TD_OK;
    td_dataset *ds = NULL;
    td_data_speed s;
    td_model_opts model = o->model;
    TD_TRY(td_model_resolve_images(&model));
    td_loader_opts lo = td_loader_opts_of(&o->input, &model, o->batch_size);
    lo.is_training = true;
    lo.nice = 0;
    if (o->device.threads > 0)
        lo.workers = o->device.threads;
    td_log_backend(&o->input);
    TD_OUT(td_open_split(&o->input, "train", &model, 0, &ds));
    TD_OUT(td_data_benchmark(ds, &lo, o->iters, 0, &s));
    td_text_add(out,
                "{\"mode\": \"data\", \"threads\": %d, \"image_size\": %d, \"n_images\": %lld, ",
                s.threads, model.image_size, (long long)s.n_images);
    td_text_add(out, "\"images_per_s\": {\"median\": %.2f, \"min\": %.2f, \"max\": %.2f}}",
                s.median, s.min, s.max);
    st = td_text_status(out);
out:
    td_dataset_free(ds);
    return st;
}

/* --- options that exclude each other ---------------------------------------------------------- */

/* Do the options request a sweep? */
static bool is_sweep(const td_benchmark_opts *o)
{
    return o->batch_sizes || o->nproc || o->precisions;
}

/* Check the options if this process is one of several ranks, under `launch` or mpirun. */
static td_status check_ranks(const td_benchmark_opts *o)
{
    td_rank_place place;
    TD_TRY(td_ranks_here(&place));
    if (place.size == 1 || o->mode == TD_BENCHMARK_ALLREDUCE || o->mode == TD_BENCHMARK_SCALING)
        return TD_OK;
    if (o->nproc)
        return td_error(TD_EUSAGE, "--nproc starts its own ranks: remove 'launch'");
    if (o->mode != TD_BENCHMARK_TRAINING || is_sweep(o) || o->walkthrough || o->largest_batch)
        return td_error(TD_EUSAGE, "several ranks require --mode training, allreduce or scaling "
                                   "with one network; use --nproc for a table");
    if (o->prof > 0 || o->trace || o->memory_limit)
        return td_error(TD_EUSAGE, "--prof, --trace and --memory-limit require one rank; 'train' "
                                   "supports them for several");
    return TD_OK;
}

static td_status check_sweep(const td_benchmark_opts *o)
{
    const char *name = o->batch_sizes ? "batch-sizes" : o->nproc ? "nproc" : "precisions";
    if (!is_sweep(o))
        return TD_OK;
    if (o->prof > 0 || o->trace)
        return td_error(TD_EUSAGE, "--%s and %s exclude each other", name,
                        o->trace ? "--trace" : "--prof");
    if (o->mode > TD_BENCHMARK_INFERENCE || o->walkthrough || o->largest_batch)
        return td_error(TD_EUSAGE,
                        "--%s requires a single network with --mode training or inference", name);
    if (o->nproc && o->mode != TD_BENCHMARK_TRAINING)
        return td_error(TD_EUSAGE, "--nproc requires --mode training: inference runs on one rank");
    if (o->nproc && o->memory_limit)
        return td_error(TD_EUSAGE, "--memory-limit and --nproc exclude each other");
    if (o->precisions && (o->amp.precision || o->amp.amp || o->amp.force_float32))
        return td_error(TD_EUSAGE, "--precisions and %s exclude each other",
                        o->amp.precision ? "--precision"
                        : o->amp.amp     ? "--amp"
                                         : "--no-amp");
    return TD_OK;
}

/* Check the options for images and for results of one network. */
static td_status check_files(const td_benchmark_opts *o)
{
    const bool is_table = is_sweep(o) || o->walkthrough || o->largest_batch;
    const bool has_report =
        o->report.file || o->workspace || o->report.log_format == TD_LOG_FORMAT_DLL;
    if (o->weights && o->checkpoint_dir)
        return td_error(TD_EUSAGE, "--weights and --checkpoint-dir exclude each other");
    if ((o->weights || o->checkpoint_dir) && o->mode != TD_BENCHMARK_INFERENCE)
        return td_error(TD_EUSAGE, "--weights and --checkpoint-dir require --mode inference: "
                                   "training is measured with fresh weights");
    if (has_report && (is_table || o->mode > TD_BENCHMARK_INFERENCE))
        return td_error(TD_EUSAGE,
                        "--raport-file, --workspace and --log-format require a single network with "
                        "--mode training or inference; use --json for a table");
    if (o->mode == TD_BENCHMARK_DATA && !td_feed_has_data(&o->input) &&
        o->input.data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE, "--mode data requires DATA, a folder of images or a pack");
    if (td_feed_has_data(&o->input) && (o->largest_batch || o->mode > TD_BENCHMARK_DATA))
        return td_error(TD_EUSAGE, "%s reads no data: remove '%s'",
                        o->largest_batch                    ? "--largest-batch"
                        : o->mode == TD_BENCHMARK_OP        ? "--mode op"
                        : o->mode == TD_BENCHMARK_ALLREDUCE ? "--mode allreduce"
                                                            : "--mode scaling",
                        o->input.data);
    return TD_OK;
}

static td_status check_walkthrough(const td_benchmark_opts *o)
{
    if (!o->walkthrough)
        return TD_OK;
    if (o->amp.precision != TD_PRECISION_DEFAULT && o->amp.precision != TD_PRECISION_BF16 &&
        o->amp.precision != TD_PRECISION_FP16)
        return td_error(TD_EUSAGE, "--walkthrough requires --precision bf16 or fp16");
    if (o->batch_size > (1 << 20) / 2)
        return td_error(TD_EUSAGE, "--batch-size: twice '%d' is too large", o->batch_size);
    return TD_OK;
}

static td_status check_options(const td_benchmark_opts *o)
{
    if (o->walkthrough && o->largest_batch)
        return td_error(TD_EUSAGE, "--walkthrough and --largest-batch exclude each other");
    if ((o->walkthrough || o->largest_batch) && o->mode != TD_BENCHMARK_TRAINING)
        return td_error(TD_EUSAGE, "--%s requires --mode training",
                        o->walkthrough ? "walkthrough" : "largest-batch");
    if (o->mode >= TD_BENCHMARK_DATA && o->mode != TD_BENCHMARK_SCALING &&
        (o->amp.amp || o->amp.precision))
        return td_error(TD_EUSAGE, "%s requires --mode training, inference or scaling",
                        o->amp.precision ? "--precision" : "--amp");
    if (o->allreduce.mode != TD_ALLREDUCE_FAST && o->allreduce.dtype != TD_WIRE_FLOAT32)
        return td_error(TD_EUSAGE, "--allreduce-dtype requires --allreduce fast");
    TD_TRY(check_ranks(o));
    if (o->prof > 0 && (o->mode > TD_BENCHMARK_INFERENCE || o->walkthrough || o->largest_batch))
        return td_error(TD_EUSAGE,
                        "--prof requires a single network with --mode training or inference");
    if (o->trace && (o->mode > TD_BENCHMARK_INFERENCE || o->walkthrough || o->largest_batch))
        return td_error(TD_EUSAGE,
                        "--trace requires a single network with --mode training or inference");
    if (o->trace && o->model.model && td_path_is_same(o->trace, o->model.model))
        return td_error(TD_EUSAGE, "'%s' is used for both the trace and the network", o->trace);
    if (o->memory_limit && (o->mode != TD_BENCHMARK_TRAINING || o->walkthrough))
        return td_error(TD_EUSAGE, "--memory-limit requires a single network with --mode training");
    TD_TRY(check_files(o));
    TD_TRY(check_walkthrough(o));
    return check_sweep(o);
}

/* --- the benchmark ---------------------------------------------------------------------------- */

/* Run one measurement; appends JSON, or nothing on ranks other than 0. */
static td_status measure(const td_benchmark_opts *o, td_text *out)
{
    if (o->mode == TD_BENCHMARK_DATA)
        return bench_data(o, out);
    if (o->mode == TD_BENCHMARK_OP)
        return td_problems_benchmark(o, out);
    if (o->mode == TD_BENCHMARK_ALLREDUCE)
        return td_benchmark_allreduce(o, out);
    if (o->mode == TD_BENCHMARK_SCALING)
        return td_benchmark_scaling(o, out);
    return td_benchmark_network(o, out);
}

static td_status run(const td_benchmark_opts *o, td_text *out)
{
    td_text json = { 0 };
    td_status st = TD_OK;
    if (o->walkthrough)
        return td_benchmark_walkthrough(o, out);
    if (o->largest_batch)
        return td_benchmark_largest_batch(o, out);
    if (is_sweep(o))
        return td_benchmark_sweep(o, out);
    if (!o->as_table)
        return measure(o, out);
    TD_OUT(measure(o, &json));
    if (*td_text_get(&json))
        TD_OUT(td_benchmark_text(td_text_get(&json), out));
    else
        td_text_add(out, "%s", "");
    st = td_text_status(out);
out:
    td_text_release(&json);
    return st;
}

td_status td_benchmark(const td_benchmark_opts *opts, char **json)
{
    td_text out = { 0 };
    *json = NULL;
    if (opts->profile)
        *opts->profile = NULL;
    TD_TRY(td_log_configure(opts->log));
    TD_TRY(check_options(opts));
    td_set_threads(opts->device.threads);
    td_signals_catch();
    return td_text_take(&out, run(opts, &out), json);
}
