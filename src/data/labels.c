/*
 * labels.c -- classes of samples whose labels are texts
 */
#include "data/labels.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { DIGITS_MAX = 7 };

td_status td_labels_add(td_labels *l, td_arena *arena, const char *label, int64_t *number)
{
    *number = (intptr_t)td_map_get(&l->numbers, label) - 1;
    if (*number >= 0)
        return TD_OK;
    if (l->n == TD_CLASSES_MAX)
        return td_error(TD_ELIMIT, "more than %d classes", TD_CLASSES_MAX);
    const char *name = td_arena_text(arena, label);
    if (!name)
        return TD_ENOMEM;
    *number = (int64_t)l->n;
    TD_TRY(td_map_set(&l->numbers, name, (void *)(intptr_t)(*number + 1)));
    TD_TRY(td_reserve(&l->names, &l->cap, l->n + 1, sizeof *l->names));
    l->names[l->n++] = name;
    const size_t n_digits = strspn(label, "0123456789");
    l->has_text = l->has_text || label[n_digits] != '\0' || n_digits > DIGITS_MAX;
    return TD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Classes are the numbers; the largest one decides how many there are. */
static td_status number_classes(const td_labels *l, const char *what, td_dataset *ds,
                                int64_t *class_of)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        class_of[i] = strtoll(l->names[i], NULL, 10);
        n = class_of[i] >= n ? class_of[i] + 1 : n;
    }
    if (n > TD_CLASSES_MAX)
        return td_error(TD_ELIMIT, "'%s': label %lld, wanted at most %d", what, (long long)n - 1,
                        TD_CLASSES_MAX - 1);
    if (n < 2) /* "0" and "00" */
        return td_error(TD_EFORMAT, "'%s' has one class, 0, wanted at least two", what);
    if (n > (int64_t)l->n)
        td_log(TD_LOG_WARN, "data", "'%s': %lld of the classes 0 to %lld have no image", what,
               (long long)(n - (int64_t)l->n), (long long)n - 1);
    return td_dataset_number_classes(ds, (int)n);
}

static td_status name_classes(const td_labels *l, td_dataset *ds, int64_t *class_of)
{
    TD_TRY(TD_ALLOC(ds->class_names, l->n));
    memcpy(ds->class_names, l->names, l->n * sizeof *l->names);
    qsort(ds->class_names, l->n, sizeof *ds->class_names, by_name);
    ds->n_classes = (int)l->n;
    ds->has_class_names = true;
    for (int i = 0; i < ds->n_classes; i++)
        class_of[(intptr_t)td_map_get(&l->numbers, ds->class_names[i]) - 1] = i;
    return TD_OK;
}

td_status td_labels_finish(td_labels *l, const char *what, td_dataset *ds, int64_t **class_of)
{
    if (l->n < 2)
        return td_error(TD_EFORMAT, "'%s' has %zu classes, wanted at least two", what, l->n);
    TD_TRY(TD_ALLOC(*class_of, l->n));
    return l->has_text ? name_classes(l, ds, *class_of) : number_classes(l, what, ds, *class_of);
}

void td_labels_release(td_labels *l)
{
    td_map_release(&l->numbers);
    td_free(l->names);
}
