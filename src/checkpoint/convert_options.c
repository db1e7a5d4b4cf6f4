/*
 * convert_options.c -- the options of `tandem convert` for weights
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/convert.h"

static const char *const tensor_names[] = { "auto", "torchvision", "reference", NULL };

/* clang-format off */
static const td_field convert_fields[] = {
    TD_BOOL   (td_convert_opts, ema, false,
               "convert the averaged (EMA) weights of the checkpoint"),
    TD_ENUM   (td_convert_opts, names, TD_CONVERT_NAMES_AUTO, tensor_names,
               "tensor names in a .pth file; auto: reference for a checkpoint, torchvision for "
               "weights"),
    TD_CLASSES_ROW(td_convert_opts, "those in IN"),
    TD_LOG_ROW(td_convert_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_convert_fields(void)
{
    return convert_fields;
}
