/*
 * tandem/recipes.h -- presets, and TensorFlow's configuration of a detector
 */
#ifndef TD_RECIPES_H
#define TD_RECIPES_H

#include "tandem/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Set the options of the preset selected by opts->launch, opts->model.model and opts->amp; does
 * nothing if none is selected. `groups` are td_train_groups(opts). TD_EUSAGE: no such preset (the
 * message lists what exists); TD_EFORMAT, TD_ELIMIT: the table, with the line.
 *
 * Options of td_train_fields that the preset sets do not count as given (tandem/options.h).  A
 * program that changes one of them afterwards calls td_options_mark: td_train_resolve may replace
 * steps that a detector's preset counts where `epochs` is set.
 */
struct td_arena;
TD_API TD_CHECKED td_status td_train_preset(td_train_opts *opts,
                                            const struct td_field_group *groups,
                                            struct td_arena *arena);

/**
 * Set the options of the network and the data from a detector's pipeline.config, for jobs that do
 * not train; `overrides` NULL: none. Strings are allocated in the arena. TD_EUSAGE, TD_EFORMAT,
 * TD_ELIMIT, TD_EIO: an error in the file or one of its fields.
 */
TD_API TD_CHECKED td_status td_pipeline_options(const char *path, const char *overrides,
                                                td_model_opts *model, td_input_opts *input,
                                                td_boxes_opts *boxes, struct td_arena *arena);

/**
 * An evaluation, prediction or inference benchmark without --resume and --pretrained-weights uses
 * the checkpoint in the folder of --model-dir, or with --mode evaluate of --workspace, if there is
 * one: sets opts->resume, allocated in the arena. TD_ENOTFOUND: --model-dir has no checkpoint.
 */
TD_API TD_CHECKED td_status td_train_find_checkpoint(td_train_opts *opts, struct td_arena *arena);

/** The list of presets as readable text (td_text_free); `cfg_file` NULL: the built-in ones. */
TD_API TD_CHECKED td_status td_train_presets(const char *cfg_file, char **text);

/** The names of presets for completion, separated by spaces (td_text_free). */
TD_API TD_CHECKED td_status td_train_preset_names(char **text);

/** The built-in table, as a template for a --cfg_file. */
TD_API const char *td_train_preset_yaml(void);

#ifdef __cplusplus
}
#endif
#endif
