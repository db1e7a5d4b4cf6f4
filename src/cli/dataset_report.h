/*
 * cli/dataset_report.h -- prints the findings of `dataset check` as JSON and as text
 */
#ifndef TD_CLI_DATASET_REPORT_H
#define TD_CLI_DATASET_REPORT_H

#include "cli/verb.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"

void td_cli_report_json(const td_dataset *ds, const td_dataset_report *r, td_text *out);
void td_cli_report_text(const td_dataset *ds, const td_dataset_report *r, td_text *out);

#endif
