/*
 * recipes/stored_options.h -- options stored in a checkpoint, and those that a resumed run reads
 *
 * A checkpoint may come from anybody, so it only sets how a training continues: it never names a
 * file or folder to read or write.  (td_train_stored_options, in tandem/train.h, returns the
 * options that a resumed run reads.)
 */
#ifndef TD_RECIPES_STORED_OPTIONS_H
#define TD_RECIPES_STORED_OPTIONS_H

#include "base/text.h"
#include "io/safetensors.h"
#include "options/field.h"
#include "tandem/train.h"

/** All resolved options as one flat JSON object, appended to `out`.  TD_ENOMEM. */
TD_CHECKED td_status td_train_options_json(const td_train_opts *opts, td_text *out);

/** May a checkpoint set the option of this row of td_train_groups? */
bool td_option_is_stored(const td_field *f);

/**
 * Log one warning with the paths that were set for the run of checkpoint `t`, read from `path`, and
 * that `opts` leaves at their defaults.  TD_EFORMAT, TD_ENOMEM: its options cannot be read.
 */
TD_CHECKED td_status td_stored_paths_warn(const td_tensors *t, const char *path,
                                          const td_train_opts *opts);

#endif
