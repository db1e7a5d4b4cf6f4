/*
 * options/rows.h -- option rows shared by several jobs, each for its own struct T
 *
 * A job's table is in the job's folder: train_options.c in recipes/, evaluate_options.c in
 * evaluation/, and so on.
 */
#ifndef TD_OPTIONS_ROWS_H
#define TD_OPTIONS_ROWS_H

#include "options/field.h"

extern const char *const td_tune_names[];          /* td_tune_mode */
extern const char *const td_winograd_names[];      /* td_winograd_mode */
extern const char *const td_interpolation_names[]; /* td_interpolation */
extern const char *const td_log_format_names[];    /* --log-format */
extern const char *const td_report_naming_names[]; /* --raport-names */
extern const char *const td_allreduce_names[];     /* td_allreduce_mode */
extern const char *const td_wire_dtype_names[];    /* td_wire_dtype */

#define TD_MANY 1e12 /* effectively no limit: images, steps, iterations */

/* clang-format off */
/* for jobs with a member `td_device_opts device` */
#define TD_DEVICE_ROWS(T) \
    TD_TEXT_AS(T, device.name, "device", NULL, "cpu", "NAME", \
               "device to compute on; cpu: the processor, with optimized kernels; cuda: an " \
               "NVIDIA GPU, by the plug-in libtandem_cuda.so; auto: cuda if a GPU can be used, " \
               "else cpu; ref: the processor, with slow reference kernels in plain C, which " \
               "also support float64"), \
    TD_INT_AS (T, device.threads, "threads", NULL, 0, 0, 4096, NULL, \
               "number of compute threads; 0: one per core"), \
    TD_ENUM_AS(T, device.tune, "tune", NULL, TD_TUNE_QUICK, td_tune_names, \
               "choose kernels and layouts by measuring them; off: no; cached: use stored " \
               "measurements; quick: and, on a processor, for at most 2 s and 3 % of the run " \
               "time kernels that give the same bits; full: measure all that is missing"), \
    TD_TEXT_AS(T, device.tune_cache, "tune_cache", NULL, NULL, "FILE", \
               "file of the stored measurements; default: in ~/.cache/tandem"), \
    TD_ENUM_AS(T, device.winograd, "winograd", NULL, TD_WINOGRAD_AUTO, td_winograd_names, \
               "3x3 convolutions of stride 1 or 2; auto: by Winograd's algorithm where it needs " \
               "fewer operations; off: directly")

/* for jobs with a member `td_allreduce_opts allreduce` */
#define TD_ALLREDUCE_ROWS(T) \
    TD_ENUM_AS(T, allreduce.mode, "allreduce", NULL, TD_ALLREDUCE_EXACT, td_allreduce_names, \
               "sums over ranks; exact: in rank order, the same bits however the ranks are " \
               "started; fast: by MPI, on GPUs by NCCL, in its own order"), \
    TD_ENUM_AS(T, allreduce.dtype, "allreduce_dtype", NULL, TD_WIRE_FLOAT32, td_wire_dtype_names, \
               "type of the numbers that --allreduce fast sends")

#define TD_SKIP_ROW(T) \
    TD_TEXT_AS(T, device.skip_passes, "skip_passes", NULL, NULL, "LIST", \
               "compiler passes to skip, for example 'fuse,layout'")

#define TD_PASS_ROWS(T) \
    TD_SKIP_ROW(T), \
    TD_TEXT_AS(T, device.dump_after, "dump_after", NULL, NULL, "LIST", \
               "log the graph after these compiler passes, or 'all'")

#define TD_WEIGHTS_ROW(T) \
    TD_TEXT_AS(T, weights, "weights", \
               "w|pretrained-weights|pretrained-from-file|resume", NULL, \
               "FILE", "weight file or checkpoint of Tandem or PyTorch")

/* for jobs with class names; `others`: the source of names if the option is absent */
#define TD_CLASSES_ROW(T, others) \
    TD_TEXT   (T, classes, NULL, "FILE", \
               "class names, one per line or as JSON, instead of " others)

/* TensorFlow's logging options: Tandem always logs to stderr */
#define TD_LOGGING_ROWS \
    TD_ACCEPTED("alsologtostderr", NULL, "the log always goes to stderr"), \
    TD_ACCEPTED("alsologtostder", NULL, "the log always goes to stderr")

/* for jobs that process images one by one */
#define TD_IMAGE_ROWS(T) \
    TD_ENUM   (T, interpolation, TD_INTERPOLATE_BILINEAR, td_interpolation_names, \
               "interpolation of the resize, with antialiasing"), \
    TD_BOOL_AS(T, stored_orientation, "ignore_orientation", NULL, false, \
               "ignore the EXIF orientation of images")

#define TD_LOG_ROW(T) \
    TD_TEXT   (T, log, NULL, "SPEC", "log level, also by module: 'info', 'warn,pass=debug'")

/* reports, for jobs with a member `td_report_opts report` */
#define TD_REPORT_ROWS(T) \
    TD_ENUM_AS(T, report.log_format, "log_format", NULL, TD_LOG_FORMAT_PLAIN, \
               td_log_format_names, \
               "format of progress lines: Tandem's or that of the reference programs"), \
    TD_BOOL_AS(T, report.is_compat, "raport_compat", NULL, false, \
               "compute rates as the reference programs do: means of rates, data time " \
               "includes logging"), \
    TD_ENUM_AS(T, report.naming, "raport_names", NULL, TD_REPORT_NAMING_PYTORCH, \
               td_report_naming_names, \
               "metric names in the report; tf: adds train_throughput, top1_accuracy and so on"), \
    TD_INT_AS (T, report.warmup, "raport_warmup", NULL, -1, -1, 1000000000, NULL, \
               "iterations to leave out of the tf timing metrics; -1: as the TensorFlow program " \
               "does")

/* TensorFlow's configuration of a detector, for jobs other than training */
#define TD_PIPELINE_ROWS(T) \
    TD_TEXT   (T, pipeline_config_path, NULL, "FILE", \
               "read the network and image size from a detector's pipeline.config"), \
    TD_TEXT   (T, hparams_overrides, NULL, "NAME=VALUE,...", \
               "override fields of the pipeline.config")
/* clang-format on */

#endif
