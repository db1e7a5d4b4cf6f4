/*
 * quantize_options.c -- the options of `tandem quantize`
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/quantize.h"

static const char *const methods[] = { "mse", "percentile", "max", NULL };

/* clang-format off */
static const td_field quantize_fields[] = {
    TD_TEXT_AS(td_quantize_opts, output, "output", "o", NULL, "FILE",
               "output file (.safetensors); required"),
    TD_BOOL   (td_quantize_opts, overwrite, false, "replace the output file if it exists"),
    TD_BOOL_AS(td_quantize_opts, use_ema, "use-ema", "ema", false,
               "quantize the averaged (EMA) weights of the file"),
    TD_LONG   (td_quantize_opts, calibration_images, 512, 1, 1000000,
               "number of images to observe, evenly spaced in the data set"),
    TD_BOOL   (td_quantize_opts, calibrate_on_val, false,
               "observe the validation split instead of the training split"),
    TD_ENUM   (td_quantize_opts, method, TD_RANGE_MSE, methods,
               "range of an activation; mse: the least mean squared error; percentile: that of "
               "--percentile; max: the largest value"),
    TD_REAL   (td_quantize_opts, percentile, 99.99, 50, 100,
               "with --method percentile: the percentage of magnitudes within the range"),
    TD_TEXT   (td_quantize_opts, keep_wide, NULL, "NAMES",
               "keep these layers in float32: names or patterns such as 'layer4.*', separated by "
               "commas"),
    TD_TEXT   (td_quantize_opts, quantize_also, NULL, "NAMES",
               "quantize these layers too, which stay in float32 by default: the first "
               "convolution, linear layers; names or patterns as for --keep-wide, which wins"),
    TD_INT_AS (td_quantize_opts, batch_size, "batch_size", "b", 16, 1, 4096, NULL,
               "images that are observed together"),
    TD_DEVICE_ROWS(td_quantize_opts),
    TD_LOG_ROW(td_quantize_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_quantize_fields(void)
{
    return quantize_fields;
}

void td_quantize_defaults(td_quantize_opts *opts)
{
    *opts = (td_quantize_opts){ 0 };
    td_model_defaults(&opts->model);
    td_fields_default(td_input_fields(), &opts->input);
    td_fields_default(quantize_fields, opts);
}
