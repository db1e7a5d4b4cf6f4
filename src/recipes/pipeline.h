/*
 * recipes/pipeline.h -- TensorFlow's pipeline.config of a detector, as options
 *
 * Every field of SSD320's published configuration is known: it sets an option, or must have the
 * value with which the network is built, or has no effect here.  Any other field or value is an
 * error that names the line.
 */
#ifndef TD_RECIPES_PIPELINE_H
#define TD_RECIPES_PIPELINE_H

#include "options/field.h"

/**
 * Apply the text, then the overrides "name=value,name=value" (NULL: none).  A name is a field's
 * whole path, the end of it if only one field has that end, or one of TensorFlow's names:
 * learning_rate, train_steps, label_map_path, ...
 *
 *   TD_EUSAGE   an unknown field or override, or an unsupported value
 *   TD_EFORMAT, TD_ELIMIT  io/prototext.h
 */
td_status td_pipeline_apply(const char *text, size_t n, const char *what, const char *overrides,
                            const td_field_group *groups, td_arena *arena) TD_CHECKED;

/** The same for a file. */
td_status td_pipeline_read(const char *path, const char *overrides, const td_field_group *groups,
                           td_arena *arena) TD_CHECKED;

#endif
