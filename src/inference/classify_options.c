/*
 * classify_options.c -- the options of `tandem classify`
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/amp.h"
#include "tandem/inference.h"
#include "tandem/model.h"

/* clang-format off */
static const td_field classify_fields[] = {
    TD_WEIGHTS_ROW(td_classify_opts),
    TD_CLASSES_ROW(td_classify_opts, "those in the weights"),
    TD_BOOL_AS(td_classify_opts, use_ema, "use-ema", "ema", false,
               "use the averaged (EMA) weights of the file"),
    TD_IMAGE_ROWS(td_classify_opts),
    TD_INT_AS (td_classify_opts, topk, "topk", "top", 5, 1, 10, NULL,
               "number of classes to print for each image, of a multi-label network at most"),
    TD_REAL   (td_classify_opts, threshold, 0.5, 0.000001, 1,
               "multi-label: print classes of at least this probability"),
    TD_INT_AS (td_classify_opts, batch_size, "batch_size", "b", 8, 1, 4096, NULL,
               "largest batch size"),
    TD_INT_AS (td_classify_opts, workers, "workers", "j", 0, 0, 1024, NULL,
               "number of decoding threads; 0: automatic"),
    TD_BOOL   (td_classify_opts, json_lines, false,
               "print one JSON object per line and image"),
    TD_TEXT   (td_classify_opts, image, NULL, "FILE", NULL),
    TD_ACCEPTED("cpu", NULL, "Tandem always runs on the CPU"),
    TD_DEVICE_ROWS(td_classify_opts),
    TD_LOG_ROW(td_classify_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_classify_fields(void)
{
    return classify_fields;
}

void td_classify_defaults(td_classify_opts *opts)
{
    *opts = (td_classify_opts){ 0 };
    td_model_defaults(&opts->model);
    td_amp_defaults(&opts->amp);
    td_fields_default(classify_fields, opts);
}
