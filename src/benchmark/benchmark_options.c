/*
 * benchmark_options.c -- the options of `tandem benchmark`
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/amp.h"
#include "tandem/benchmark.h"
#include "tandem/input.h"
#include "tandem/model.h"

static const char *const modes[] = { "training",  "inference", "data", "op",
                                     "allreduce", "scaling",   NULL };
static const char *const iter_units[] = { "batch", NULL };

/* clang-format off */
static const td_field benchmark_fields[] = {
    TD_ENUM   (td_benchmark_opts, mode, TD_BENCHMARK_TRAINING, modes, "what to measure"),
    TD_INT_AS (td_benchmark_opts, batch_size, "batch_size", "b", 32, 1, 1 << 20, NULL,
               "batch size"),
    TD_TEXT   (td_benchmark_opts, batch_sizes, NULL, "LIST",
               "measure several batch sizes, for example '1,2,4,8', and print a table"),
    TD_TEXT   (td_benchmark_opts, nproc, NULL, "LIST",
               "numbers of training ranks to measure, for example '1,2,4'; threads per rank are "
               "equal in all rows"),
    TD_TEXT   (td_benchmark_opts, precisions, NULL, "LIST",
               "precisions to measure, from fp32, bf16 and fp16; adds the speed-up over fp32"),
    TD_INT_AS (td_benchmark_opts, iters, "iters", "num-iter|benchmark-iters", 20, 1, 1000000,
               NULL,
               "number of measured iterations"),
    TD_INT_AS (td_benchmark_opts, warmup, "warmup", "warmup-steps|warmup-iters", 3, 0, 1000000,
               NULL,
               "number of warm-up iterations"),
    TD_ENUM   (td_benchmark_opts, iter_unit, TD_BENCHMARK_BATCHES, iter_units,
               "unit of --iters and --warmup"),
    TD_ACCEPTED("percentiles", "LIST", "percentiles 90, 95 and 99 are always reported"),
    TD_TEXT_AS(td_benchmark_opts, weights, "weights",
               "w|pretrained-weights|pretrained-from-file|resume", NULL, "FILE",
               "inference: weight file; default: random weights"),
    TD_TEXT   (td_benchmark_opts, checkpoint_dir, NULL, "FOLDER",
               "inference: use the checkpoint in the workspace of a training"),
    TD_BOOL   (td_benchmark_opts, walkthrough, false,
               "compare fp32, mixed precision, mixed precision with fusion, and that at twice "
               "the batch size"),
    TD_BOOL   (td_benchmark_opts, largest_batch, false,
               "find the largest training batch size within --memory-limit for each precision"),
    TD_TEXT   (td_benchmark_opts, ranks, NULL, "LIST",
               "scaling: numbers of ranks to predict; default: powers of two up to 1024"),
    TD_INT    (td_benchmark_opts, ranks_per_machine, 1, 1, 4096,
               "scaling: ranks of each machine; with several ranks: as they are placed"),
    TD_TEXT   (td_benchmark_opts, bandwidth, NULL, "LIST",
               "scaling: bandwidths of a machine's link to predict for, in Gbit/s; default: as "
               "measured between the ranks, or 25,200"),
    TD_REAL   (td_benchmark_opts, latency, 0, 0, 1e7,
               "scaling: latency of a message in microseconds; 0: as measured between the ranks, "
               "or 20"),
    TD_REAL   (td_benchmark_opts, compute_speedup, 1, 1e-3, 1e6,
               "scaling: predict for processors that are so many times as fast"),
    TD_LONG   (td_benchmark_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "memory limit of the process in bytes, '4G' = '4GB' (10^9) or '4GiB' (2^30); 0: "
               "no limit, or the memory of the machine"),
    TD_TEXT   (td_benchmark_opts, lines, NULL, "FILE",
               "op mode: file of problem lines, each an op and its shapes, for example "
               "'conv2d x=8x64x56x56 w=64x64x3x3 pad=1'"),
    TD_TEXT   (td_benchmark_opts, filter, NULL, "PATTERN",
               "op mode: measure only ops whose names match, for example 'conv*'"),
    TD_BOOL   (td_benchmark_opts, bound, true, "also measure bound_images_per_s"),
    TD_BOOL   (td_benchmark_opts, kernels, false,
               "include the time of every kernel in the result"),
    TD_INT    (td_benchmark_opts, prof, -1, -1, 1000000,
               "measure N iterations and print a profile; -1: measure --num-iter iterations "
               "without a profile"),
    TD_TEXT   (td_benchmark_opts, trace, NULL, "FILE",
               "write a trace of the kernels of the last iterations, JSON for Perfetto or "
               "chrome://tracing"),
    TD_DEVICE_ROWS(td_benchmark_opts),
    TD_ALLREDUCE_ROWS(td_benchmark_opts),
    TD_SKIP_ROW(td_benchmark_opts),
    TD_LOG_ROW(td_benchmark_opts),
    TD_TITLE_SECONDARY("Report"),
    TD_TEXT_AS(td_benchmark_opts, workspace, "workspace", "results_dir|model_dir|save", NULL,
               "FOLDER",
               "folder of --raport-file; without --raport-file: write benchmark.json to it"),
    TD_TEXT_AS(td_benchmark_opts, report.file, "raport_file", "log_filename|json_summary", NULL,
               "FILE",
               "report of the measured iterations in JSON lines; spelled as in the reference "
               "programs"),
    TD_INT_AS (td_benchmark_opts, print_freq, "print_freq", "p|display_every|log_interval", 10, 1,
               1000000000, NULL,
               "iterations between report records"),
    TD_ENUM_AS(td_benchmark_opts, report.log_format, "log_format", NULL, TD_LOG_FORMAT_PLAIN,
               td_log_format_names,
               "dll: also print the records as lines in the format of the reference programs"),
    TD_BOOL_AS(td_benchmark_opts, report.is_compat, "raport_compat", NULL, false,
               "compute rates as the reference programs do: means of rates"),
    TD_ENUM_AS(td_benchmark_opts, report.naming, "raport_names", NULL, TD_REPORT_NAMING_PYTORCH,
               td_report_naming_names,
               "metric names in the report; tf: adds train_throughput, eval_latency_avg and so "
               "on"),
    TD_TITLE_SECONDARY_RENAMED("Options of the reference programs",
                               "names_of_the_reference_programs"),
    TD_PIPELINE_ROWS(td_benchmark_opts),
    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("synthetic_data_size", "image-size"),
    TD_ALIAS  ("benchmark_iterations", "iters"),
    TD_ALIAS  ("benchmark_warmup", "warmup"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ACCEPTED("allow_xla", NULL, "every graph is compiled and fused"),
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
