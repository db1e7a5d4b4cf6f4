/*
 * inspect/inspect.h -- one function for each topic of `tandem inspect`
 */
#ifndef TD_INSPECT_INSPECT_H
#define TD_INSPECT_INSPECT_H

#include "base/text.h"
#include "io/safetensors.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"

/* The request; every function appends text, or one JSON object if opts->json is set. */
typedef struct {
    const td_inspect_opts *opts;
    const char *path;
    const td_tensors *weights; /* the file that defines `opts->model`, or NULL */
} td_inspection;

/** Build the forward graph, or with opts->training the whole step before any pass. */
td_status td_inspect_build(const td_inspection *q, td_graph **out) TD_CHECKED;

td_status td_inspect_model(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_graph(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_kernels(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_memory(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_quantization(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_amp(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_amp_stats(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_checkpoint(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_dataset(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_ops(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_gpu(const td_inspection *q, td_text *out) TD_CHECKED;
td_status td_inspect_backends(const td_inspection *q, td_text *out) TD_CHECKED;

#endif
