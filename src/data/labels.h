/*
 * data/labels.h -- classes of samples whose labels are texts
 *
 * If all labels are decimal numbers they are the classes' numbers; otherwise the classes are the
 * labels in byte order.
 */
#ifndef TD_DATA_LABELS_H
#define TD_DATA_LABELS_H

#include "base/map.h"
#include "data/dataset.h"

enum { TD_CLASSES_MAX = 1000000 };

/** The labels that have occurred.  Zero-initialise. */
typedef struct {
    td_map numbers;     /* label -> its number + 1 */
    const char **names; /* in the order in which they occurred; in the data set's arena */
    size_t n, cap;
    bool has_text; /* one of them is no number */
} td_labels;

/** The number of a label, in the order in which labels occur.  TD_ELIMIT too many; TD_ENOMEM. */
TD_CHECKED td_status td_labels_add(td_labels *l, td_arena *arena, const char *label,
                                   int64_t *number);

/**
 * Set the classes of `ds`; *class_of, to be freed, is the class of each number.  TD_EFORMAT fewer
 * than two; TD_ELIMIT; `what` names the data in messages.
 */
TD_CHECKED td_status td_labels_finish(td_labels *l, const char *what, td_dataset *ds,
                                      int64_t **class_of);

void td_labels_release(td_labels *l);

#endif
