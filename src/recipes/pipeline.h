/*
 * recipes/pipeline.h -- TensorFlow's pipeline.config of a detector, as options
 *
 * Every field of SSD320's published configuration is known: it sets an option, or must have the
 * value that the network is built with, or has no effect here.  Any other field, and any other
 * value, is an error with its line.
 */
#ifndef TD_RECIPES_PIPELINE_H
#define TD_RECIPES_PIPELINE_H

#include "options/field.h"

/**
 * Set what the text says, then what the overrides "name=value,name=value" say (NULL: none).  A name
 * is a field's whole path, its last part where only one field ends so, or one of TensorFlow's own:
 * learning_rate, train_steps, label_map_path, ...
 *
 *   TD_EUSAGE   a field or override that is not known, or with a value that is not supported
 *   TD_EFORMAT, TD_ELIMIT  io/prototext.h
 */
td_status td_pipeline_apply(const char *text, size_t n, const char *what, const char *overrides,
                            const td_field_group *groups, td_arena *arena) TD_CHECKED;

/** The same from a file. */
td_status td_pipeline_read(const char *path, const char *overrides, const td_field_group *groups,
                           td_arena *arena) TD_CHECKED;

#endif
