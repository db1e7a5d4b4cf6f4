/*
 * loggers/report_settings.h -- a report's first records: options, the network's options, the
 * machine
 */
#ifndef TD_LOGGERS_REPORT_SETTINGS_H
#define TD_LOGGERS_REPORT_SETTINGS_H

#include "loggers/run_logger.h"
#include "options/field.h"
#include "tandem/amp.h"
#include "tandem/model.h"
#include "tandem/program.h"

/* Metadata of a run other than its options; 0 and NULL: unknown. */
typedef struct {
    const char *job; /* "train", "evaluate" */
    const td_amp_opts *amp;
    td_program *program;
    int ranks; /* written if more than one */
    int64_t train_images, val_images, epoch_batches, begin_epoch;
} td_run_metadata;

/** Format several tables of options as one flat JSON object; a NULL table ends the list. */
td_status td_settings_json(const td_field_group *groups, td_text *out) TD_CHECKED;

/**
 * Write three records: the options `config_json`, the network's options (prefix "model."), the
 * metadata (prefix "run."); with is_compat, not the third.
 */
td_status td_report_settings(td_report *r, const char *config_json, const td_model_opts *model,
                             const td_run_metadata *metadata) TD_CHECKED;

#endif
