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

/* Metadata of a run besides its options; 0 and NULL: unknown. */
typedef struct {
    const char *job; /* "train", "evaluate" */
    const td_amp_opts *amp;
    td_program *program;
    int ranks; /* written if there are several */
    int64_t train_images, val_images, epoch_batches, begin_epoch;
} td_run_metadata;

/** One flat JSON object of several tables over their structs; a NULL table ends them. */
td_status td_settings_json(const td_field_group *groups, td_text *out) TD_CHECKED;

/**
 * Three records: the options `config_json`, "model." and the network's, "run." and the metadata;
 * the third is left out by a report that does as the reference.
 */
td_status td_report_settings(td_report *r, const char *config_json, const td_model_opts *model,
                             const td_run_metadata *metadata) TD_CHECKED;

#endif
