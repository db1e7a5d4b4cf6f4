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
               "images in a batch"),
    TD_BOOL   (td_inspect_opts, training, false, "the training step, not inference"),
    TD_LONG   (td_inspect_opts, memory_limit, 0, 0, TD_MANY * 1000,
               "bytes for the program, '1G': results are worked out twice to stay below; 0: none"),
    TD_DEVICE_ROWS(td_inspect_opts),
    TD_SKIP_ROW(td_inspect_opts),
    TD_TEXT   (td_inspect_opts, svg, NULL, "FILE", "amp-stats, memory: also drawn, as SVG"),
    TD_TEXT_AS(td_inspect_opts, weights, "weights",
               "w|pretrained-weights|pretrained-from-file|resume", NULL, "FILE",
               "model, graph, amp, kernels, memory: of the network of this file"),
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
