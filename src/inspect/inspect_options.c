/*
 * inspect_options.c -- the options of `tandem inspect`
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/amp.h"
#include "tandem/inspect.h"
#include "tandem/model.h"

/* clang-format off */
static const td_field inspect_fields[] = {
    TD_INT_AS (td_inspect_opts, batch_size, "batch_size", "b", 1, 1, 1 << 20, NULL,
               "batch size"),
    TD_BOOL   (td_inspect_opts, training, false,
               "use the training graph instead of the inference graph"),
    TD_LONG   (td_inspect_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "memory limit of the program in bytes, for example '1G'; activations are "
               "recomputed to stay below it; 0: no limit"),
    TD_DEVICE_ROWS(td_inspect_opts),
    TD_SKIP_ROW(td_inspect_opts),
    TD_TEXT   (td_inspect_opts, svg, NULL, "FILE", "amp-stats, memory: also write a chart as SVG"),
    TD_TEXT   (td_inspect_opts, describe, NULL, "FILE",
               "kernels --device cuda: plan for the GPU with these properties (JSON, as cuDNN "
               "writes them), which need not be here"),
    TD_TEXT_AS(td_inspect_opts, weights, "weights",
               "w|pretrained-weights|pretrained-from-file|resume", NULL, "FILE",
               "model, graph, amp, kernels, memory: use the network stored in this file"),
    TD_LOG_ROW(td_inspect_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_inspect_fields(void)
{
    return inspect_fields;
}

void td_inspect_defaults(td_inspect_opts *opts)
{
    *opts = (td_inspect_opts){ 0 };
    td_model_defaults(&opts->model);
    td_amp_defaults(&opts->amp);
    td_fields_default(inspect_fields, opts);
}
