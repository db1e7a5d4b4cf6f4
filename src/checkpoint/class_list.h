/*
 * checkpoint/class_list.h -- class names as a JSON array, the metadata tandem.classes of a file
 */
#ifndef TD_CHECKPOINT_CLASS_LIST_H
#define TD_CHECKPOINT_CLASS_LIST_H

#include "base/text.h"
#include "tandem/status.h"

/** Appends the array to `out`. */
td_status td_classes_to_json(int n, const char *const *names, td_text *out) TD_CHECKED;

/**
 * The names of an array; free *names with td_texts_free.  NULL is none.  `path` names the file in
 * messages.  TD_EFORMAT: not an array of texts, or more than 2^24 of them; TD_ENOMEM.
 */
td_status td_classes_from_json(const char *json, const char *path, int *n,
                               char ***names) TD_CHECKED;

#endif
