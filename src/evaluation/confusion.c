/*
 * confusion.c -- the confusion matrix, its class names, its CSV file
 */
#include "evaluation/confusion.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "io/atomic.h"
#include "io/delimited.h"

void td_evaluate_release(td_evaluate_result *r)
{
    td_texts_free(r->class_names, (size_t)r->n_classes);
    td_free(r->confusion);
    td_free(r->labels);
    td_free(r->class_boxes);
    r->class_boxes = NULL;
    r->n_class_boxes = 0;
    r->class_names = NULL;
    r->confusion = NULL;
    r->labels = NULL;
    r->n_classes = 0;
}

const char *td_confusion_class_name(const td_dataset *ds, const td_class_names *names, int i,
                                    char room[TD_CLASS_NUMBER])
{
    if (names && i < names->n && td_dataset_backend(ds) != TD_DATA_FOLDER)
        return names->names[i];
    if (i < td_dataset_classes(ds))
        return td_dataset_class_name(ds, i);
    snprintf(room, TD_CLASS_NUMBER, "class %d", i);
    return room;
}

static td_status name_classes(td_evaluate_result *r, int n, const td_dataset *ds,
                              const td_class_names *names)
{
    char number[TD_CLASS_NUMBER];
    r->n_classes = n;
    TD_TRY(TD_ALLOC(r->class_names, (size_t)n));
    for (int i = 0; i < n; i++) {
        r->class_names[i] = td_copy_text(td_confusion_class_name(ds, names, i, number));
        if (!r->class_names[i])
            return TD_ENOMEM;
    }
    return TD_OK;
}

td_status td_confusion_new(td_evaluate_result *r, int n, const td_dataset *ds,
                           const td_class_names *names)
{
    TD_TRY(name_classes(r, n, ds, names));
    return td_alloc_to(&r->confusion, (size_t)n, (size_t)n * sizeof *r->confusion);
}

td_status td_label_scores_new(td_evaluate_result *r, int n, const td_dataset *ds,
                              const td_class_names *names)
{
    TD_TRY(name_classes(r, n, ds, names));
    return TD_ALLOC(r->labels, (size_t)n);
}

td_status td_confusion_write(const td_evaluate_result *r, const char *path)
{
    td_text t = { 0 };
    td_text_add(&t, "class");
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(&t, ",");
        td_delimited_add(&t, r->class_names[i]);
    }
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(&t, "\n");
        td_delimited_add(&t, r->class_names[i]);
        for (int j = 0; j < r->n_classes; j++)
            td_text_add(&t, ",%lld", (long long)r->confusion[(int64_t)i * r->n_classes + j]);
    }
    td_text_add(&t, "\n");
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = td_atomic_save(path, t.data, t.len);
    td_text_release(&t);
    return st;
}
