/*
 * record_classes.c -- samples with classes from TFRecords, as those of ImageNet
 *
 * A class is the number in image/class/label, counted from 1 (0 is ImageNet's background, which no
 * image has) or with labels_from_zero from 0.  image/class/text names it.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/labels.h"
#include "data/record_sets.h"

typedef struct {
    td_dataset *ds;
    size_t cap; /* allocated elements of ds->samples */
    bool from_zero;
    const char **names; /* [n_classes], NULL without a text; in the arena */
    size_t n_classes, cap_names;
} classes;

static td_status check_label(const classes *c, const td_record *r, int64_t label)
{
    if (label < 0 || (label == 0 && !c->from_zero))
        return td_error(
            TD_EFORMAT, "'%s': the record at byte %lld has the label %lld, wanted %d or more%s",
            r->file, (long long)r->at, (long long)label, !c->from_zero,
            label == 0 ? "; use --label-offset 0 if 0 is a class and not the background" : "");
    if (label >= TD_CLASSES_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': the record at byte %lld has the label %lld, wanted less than %d",
                        r->file, (long long)r->at, (long long)label, TD_CLASSES_MAX);
    return TD_OK;
}

static td_status note_class(classes *c, const td_record *r, size_t number)
{
    const char *name = td_record_text(r, TD_TF_TEXT, 0);
    TD_TRY(td_reserve(&c->names, &c->cap_names, number + 1, sizeof *c->names));
    while (c->n_classes <= number)
        c->names[c->n_classes++] = NULL;
    if (!name || c->names[number])
        return TD_OK;
    c->names[number] = td_arena_text(&c->ds->arena, name);
    return c->names[number] ? TD_OK : TD_ENOMEM;
}

static td_status add(void *ctx, const td_record *r)
{
    classes *c = ctx;
    td_dataset *ds = c->ds;
    int64_t label;
    if (!r->x->lists[TD_TF_LABEL].is_there && r->x->lists[TD_TF_XMIN].is_there)
        return td_record_refuse(r, "has boxes, but no 'image/class/label': it trains a detector, "
                                   "--arch ssd320 or ssd300");
    TD_TRY(td_record_int(r, TD_TF_LABEL, &label));
    TD_TRY(check_label(c, r, label));
    label -= !c->from_zero;
    TD_TRY(note_class(c, r, (size_t)label));
    TD_TRY(td_reserve(&ds->samples, &c->cap, (size_t)ds->n + 1, sizeof *ds->samples));
    ds->samples[ds->n++] = (td_sample){ .path = r->path, .label = label, .member = r->member };
    return TD_OK;
}

static td_status warn_unseen(const td_dataset *ds)
{
    bool *is_seen = td_alloc((size_t)ds->n_classes, sizeof *is_seen);
    int n = 0;
    if (!is_seen)
        return TD_ENOMEM;
    for (int64_t i = 0; i < ds->n; i++) {
        n += !is_seen[ds->samples[i].label];
        is_seen[ds->samples[i].label] = true;
    }
    if (n < ds->n_classes)
        td_log(TD_LOG_WARN, "data", "'%s': %d of the %d classes have no image", ds->root,
               ds->n_classes - n, ds->n_classes);
    td_free(is_seen);
    return TD_OK;
}

/* Labels are numbers still: the names are for display. */
static td_status finish(classes *c)
{
    td_dataset *ds = c->ds;
    if (!ds->n)
        return td_error(TD_EFORMAT, "'%s' has no records", ds->root);
    if (c->n_classes < 2)
        return td_error(TD_EFORMAT, "'%s' has one class, wanted at least two", ds->root);
    TD_TRY(td_dataset_number_classes(ds, (int)c->n_classes));
    for (size_t i = 0; i < c->n_classes; i++)
        if (c->names[i])
            ds->class_names[i] = c->names[i];
    return warn_unseen(ds);
}

td_status td_record_classes(const td_record_source *s, const td_dataset_opts *opts, td_dataset *ds)
{
    classes c = { .ds = ds, .from_zero = opts->labels_from_zero };
    td_status st = td_records_walk(s, ds, add, &c);
    if (st == TD_OK)
        st = finish(&c);
    td_free(c.names);
    return st;
}
