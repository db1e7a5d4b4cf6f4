/*
 * benchmark_options.c -- the options of `tandem benchmark`
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/amp.h"
#include "tandem/benchmark.h"
#include "tandem/input.h"
#include "tandem/model.h"

static const char *const modes[] = { "training", "inference", "data", "op", "allreduce", NULL };
static const char *const iter_units[] = { "batch", NULL };

/* clang-format off */
static const td_field benchmark_fields[] = {
    TD_ENUM   (td_benchmark_opts, mode, 0, modes, "what is measured"),
    TD_INT_AS (td_benchmark_opts, batch_size, "batch_size", "b", 32, 1, 1 << 20, NULL,
               "images in a batch"),
    TD_TEXT   (td_benchmark_opts, batch_sizes, NULL, "LIST",
               "several instead, '1,2,4,8': a table with a row for each"),
    TD_TEXT   (td_benchmark_opts, nproc, NULL, "LIST",
               "numbers of ranks that train, '1,2,4', with as many threads each: the same table"),
    TD_TEXT   (td_benchmark_opts, precisions, NULL, "LIST",
               "of fp32, bf16, fp16: the same table, with the speed-up over fp32"),
    TD_INT_AS (td_benchmark_opts, iters, "iters", "num-iter|benchmark-iters", 20, 1, 1000000,
               NULL,
               "measured iterations"),
    TD_INT_AS (td_benchmark_opts, warmup, "warmup", "warmup-steps|warmup-iters", 3, 0, 1000000,
               NULL,
               "iterations before them that do not count"),
    TD_ENUM   (td_benchmark_opts, iter_unit, 0, iter_units, "what is counted there"),
    TD_ACCEPTED("percentiles", "LIST", "90, 95 and 99 are always there"),
    TD_TEXT_AS(td_benchmark_opts, weights, "weights",
               "w|pretrained-weights|pretrained-from-file|resume", NULL, "FILE",
               "inference: of this file; else fresh ones"),
    TD_TEXT   (td_benchmark_opts, checkpoint_dir, NULL, "FOLDER",
               "inference: of the checkpoint of a training in this folder"),
    TD_BOOL   (td_benchmark_opts, walkthrough, false,
               "fp32, mixed, mixed and fused, that at twice the batch: a table"),
    TD_BOOL   (td_benchmark_opts, largest_batch, false,
               "the largest batch that trains within --memory-limit, by precision"),
    TD_LONG   (td_benchmark_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "bytes that the process may hold, '4G' or '4GB' of 10^9, '4GiB' of 2^30; 0: no "
               "limit, or what the machine has"),
    TD_TEXT   (td_benchmark_opts, lines, NULL, "FILE", "op mode: problem lines"),
    TD_TEXT   (td_benchmark_opts, filter, NULL, "PATTERN",
               "op mode: only ops whose names match, 'conv*'"),
    TD_BOOL   (td_benchmark_opts, bound, true, "measure bound_images_per_s too"),
    TD_BOOL   (td_benchmark_opts, kernels, false, "time of every kernel in the result"),
    TD_INT    (td_benchmark_opts, prof, -1, -1, 1000000,
               "measured iterations, then a table of times; -1: as --num-iter says, no table"),
    TD_TEXT   (td_benchmark_opts, trace, NULL, "FILE",
               "the last iterations kernel by kernel, JSON for Perfetto or chrome://tracing"),
    TD_DEVICE_ROWS(td_benchmark_opts),
    TD_SKIP_ROW(td_benchmark_opts),
    TD_LOG_ROW(td_benchmark_opts),
    TD_TITLE_BEHIND("Report"),
    TD_TEXT_AS(td_benchmark_opts, workspace, "workspace", "results_dir|model_dir|save", NULL,
               "FOLDER",
               "where --raport-file goes; alone, benchmark.json there"),
    TD_TEXT_AS(td_benchmark_opts, raport_file, "raport_file", "log_filename|json_summary", NULL,
               "FILE",
               "JSON lines of the measured iterations"),
    TD_INT_AS (td_benchmark_opts, print_freq, "print_freq", "p|display_every|log_interval", 10, 1,
               1000000000, NULL,
               "iterations between two of its records"),
    TD_ENUM   (td_benchmark_opts, log_format, 0, td_log_format_names,
               "dll: the records as lines of the reference programs, too"),
    TD_BOOL   (td_benchmark_opts, raport_compat, false,
               "report as the reference: means of rates"),
    TD_ENUM   (td_benchmark_opts, raport_names, 0, td_report_names,
               "names in the report; tf: train_throughput, eval_latency_avg ... besides the "
               "others"),
    TD_TITLE_BEHIND("Names of the reference programs"),
    TD_PIPELINE_ROWS(td_benchmark_opts),
    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("synthetic_data_size", "image-size"),
    TD_ALIAS  ("benchmark_iterations", "iters"),
    TD_ALIAS  ("benchmark_warmup", "warmup"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ACCEPTED("allow_xla", NULL, "every graph is fused and compiled"),
    TD_LOGGING_ROWS,
    TD_END,
};
/* clang-format on */

const td_field *td_benchmark_fields(void)
{
    return benchmark_fields;
}

void td_benchmark_defaults(td_benchmark_opts *opts)
{
    *opts = (td_benchmark_opts){ 0 };
    td_model_defaults(&opts->model);
    td_fields_default(td_input_fields(), &opts->input);
    td_amp_defaults(&opts->amp);
    td_fields_default(benchmark_fields, opts);
}
