/*
 * cli/evaluation.h -- functions shared by train, evaluate and benchmark
 */
#ifndef TD_CLI_EVALUATION_H
#define TD_CLI_EVALUATION_H

#include "cli/verb.h"
#include "tandem/detection.h"
#include "tandem/evaluate.h"
#include "tandem/input.h"
#include "tandem/model.h"

/** Set input->data from DATA; TD_EUSAGE when a data set is required and none is named. */
td_status td_cli_data(td_input_opts *input, const td_call *call) TD_CHECKED;

/** The structs of one verb that --pipeline-config-path sets. */
typedef struct {
    td_model_opts *model;
    td_input_opts *input;
    td_boxes_opts *boxes;
} td_cli_network;

/** For td_verb.preset; `path` NULL: nothing.  TD_EUSAGE: overrides without a file. */
td_status td_cli_pipeline(const char *path, const char *overrides, const td_cli_network *to,
                          td_arena *arena) TD_CHECKED;

/** Evaluate and append the result. */
td_status td_cli_evaluate(const td_evaluate_opts *opts, const td_call *call) TD_CHECKED;

/** Members "top1" and "top5" (by k) of a JSON object. */
void td_cli_add_accuracy(td_text *out, double top1, double topk, int k);

/** Members "ema_top1", "ema_topk" and "ema_loss": percent, percent and mean of the averages. */
void td_cli_add_averages(td_text *out, double top1, double topk, double loss);

/** Members PREFIX + "AP", "AP50" ... of a JSON object. */
void td_cli_add_boxes(td_text *out, const char *prefix, const double *boxes);

#endif
