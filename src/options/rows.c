/*
 * rows.c -- value names of options shared by several jobs
 */
#include "options/rows.h"

const char *const td_tune_names[] = { "off", "cached", "quick", "full", NULL };
const char *const td_winograd_names[] = { "auto", "off", NULL };
const char *const td_interpolation_names[] = { "bilinear", "bicubic", "triangular", NULL };
const char *const td_log_format_names[] = { "plain", "dll", NULL };
const char *const td_allreduce_names[] = { "exact", "fast", NULL };
const char *const td_wire_dtype_names[] = { "float32|fp32", "bf16|bfloat16", "fp16|float16", NULL };
const char *const td_report_naming_names[] = { "pytorch", "tf", NULL };
