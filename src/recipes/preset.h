/*
 * recipes/preset.h -- recipes by name: a model, a platform, a precision, a mode
 *
 * The built-in table is presets.yaml.  A table has the structure of the reference launcher's
 * configs.yml; its entries for the four names are merged in the launcher's order, later ones win:
 *
 *     precision[AMP]  <  platform[DGXA100]  <  models[resnet50][DGXA100][AMP]  <  mode[convergence]
 *
 * followed by the number of epochs of --preset, --config and the command line.
 */
#ifndef TD_RECIPES_PRESET_H
#define TD_RECIPES_PRESET_H

#include "tandem/train.h"

/** Value of opts->lr.peak and opts->length.epochs that td_train_resolve computes. */
#define TD_PRESET_OPEN (-1)

/** Is opts->model.model the name of a network in the table, not a file? */
bool td_train_is_preset_model(const td_train_opts *opts);

/** Log the chosen preset and its learning rate; nothing without a preset. */
void td_train_log_preset(const td_train_opts *opts);

#endif
