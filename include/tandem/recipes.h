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
 * Set what the preset says that opts->launch, opts->model.model and opts->amp name; nothing when
 * none is named.  `groups` are td_train_groups(opts).  TD_EUSAGE: no such preset (the message lists
 * what exists); TD_EFORMAT, TD_ELIMIT: the table, with the line.
 */
struct td_arena;
TD_API TD_CHECKED td_status td_train_preset(td_train_opts *opts,
                                            const struct td_field_group *groups,
                                            struct td_arena *arena);

/**
 * Set what a detector's pipeline.config says of the network and the data, for jobs that do not
 * train; `overrides` NULL: none.  Texts are the arena's.  TD_EUSAGE, TD_EFORMAT, TD_ELIMIT, TD_EIO:
 * the file, or a field of it.
 */
TD_API TD_CHECKED td_status td_pipeline_options(const char *path, const char *overrides,
                                                td_model_opts *model, td_input_opts *input,
                                                td_boxes_opts *boxes, struct td_arena *arena);

/**
 * An evaluation, prediction or inference benchmark without --resume and --pretrained-weights takes
 * the checkpoint of the folder that --model-dir names, or with --mode evaluate --workspace, if it
 * is there: opts->resume, a text of the arena.  TD_ENOTFOUND: --model-dir has none.
 */
TD_API TD_CHECKED td_status td_train_find_checkpoint(td_train_opts *opts, struct td_arena *arena);

/** The list of presets, for people (td_text_free); `cfg_file` NULL: the built-in ones. */
TD_API TD_CHECKED td_status td_train_presets(const char *cfg_file, char **text);

/** What may stand after --preset, separated by spaces, as far as a list goes (td_text_free). */
TD_API TD_CHECKED td_status td_train_preset_names(char **text);

/** The built-in table, to begin a --cfg_file with. */
TD_API const char *td_train_preset_yaml(void);

#ifdef __cplusplus
}
#endif
#endif
