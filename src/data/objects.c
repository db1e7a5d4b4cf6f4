/*
 * objects.c -- boxes and classes of a data set, from an annotation file
 */
#include "data/objects.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/paths.h"

enum { KEPT_ID_MAX = 100000 };

td_status td_objects_new(int64_t n_images, int64_t n, int n_classes, struct td_objects **out)
{
    *out = NULL;
    struct td_objects *o = TD_NEW(struct td_objects);
    if (!o)
        return TD_ENOMEM;
    td_status st;
    TD_OUT(TD_ALLOC(o->images, (size_t)n_images + 1));
    TD_OUT(TD_ALLOC(o->first, (size_t)n_images + 1));
    TD_OUT(TD_ALLOC(o->annotations, (size_t)n + 1));
    TD_OUT(TD_ALLOC(o->ground_truths, (size_t)n + 1));
    TD_OUT(TD_ALLOC(o->categories, (size_t)n_classes + 1));
    *out = o;
    return TD_OK;
out:
    td_objects_free(o);
    return st;
}

void td_objects_free(struct td_objects *o)
{
    if (!o)
        return;
    td_free(o->images);
    td_free(o->first);
    td_free(o->annotations);
    td_free(o->ground_truths);
    td_free(o->categories);
    td_free(o->bad);
    td_free(o);
}

/* --- questions -------------------------------------------------------------------------------- */

bool td_dataset_has_boxes(const td_dataset *ds)
{
    return ds->objects != NULL;
}

const char *td_dataset_annotation_file(const td_dataset *ds)
{
    return ds->objects ? ds->objects->file : NULL;
}

/* The index of the first object of a sample; *n: the number of its objects. */
static int64_t range(const td_dataset *ds, int64_t sample, int *n)
{
    TD_CHECK(sample >= 0 && sample < ds->n);
    const int64_t *first = ds->objects->first + sample;
    *n = (int)(first[1] - first[0]);
    return first[0];
}

const td_annotation *td_dataset_annotations(const td_dataset *ds, int64_t sample, int *n)
{
    *n = 0;
    return ds->objects ? ds->objects->annotations + range(ds, sample, n) : NULL;
}

const td_ground_truth *td_dataset_ground_truths(const td_dataset *ds, int64_t sample, int *n)
{
    *n = 0;
    return ds->objects ? ds->objects->ground_truths + range(ds, sample, n) : NULL;
}

td_annotated td_dataset_annotated(const td_dataset *ds, int64_t sample)
{
    TD_CHECK(sample >= 0 && sample < ds->n);
    return ds->objects ? ds->objects->images[sample] : (td_annotated){ .id = sample };
}

td_scene td_dataset_scene(const td_dataset *ds, int64_t sample)
{
    td_annotated a = td_dataset_annotated(ds, sample);
    td_scene s = { .width = a.width, .height = a.height };
    s.ground_truths = td_dataset_ground_truths(ds, sample, &s.n);
    return s;
}

int64_t td_dataset_category(const td_dataset *ds, int label)
{
    TD_CHECK(label >= 1 && label <= ds->n_classes);
    return ds->objects ? ds->objects->categories[label - 1] : -1;
}

int64_t td_dataset_bad_annotations(const td_dataset *ds, const td_bad_annotation **out,
                                   int64_t *n_listed)
{
    const struct td_objects *o = ds->objects;
    *out = o ? o->bad : NULL;
    *n_listed = o ? o->n_listed : 0;
    return o ? o->n_bad : 0;
}

td_status td_objects_renumber(td_dataset *ds, int n_old, int n, const int64_t *new_label)
{
    struct td_objects *o = ds->objects;
    int64_t *categories = td_alloc((size_t)n + 1, sizeof *categories);
    if (!categories)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        categories[i] = -1;
    for (int i = 0; i < n_old; i++)
        categories[new_label ? new_label[i] : i] = o->categories[i];
    for (int64_t i = 0; new_label && i < o->first[ds->n]; i++) {
        o->annotations[i].label = (int)new_label[o->annotations[i].label - 1] + 1;
        o->ground_truths[i].label = o->annotations[i].label;
    }
    td_free(o->categories);
    o->categories = categories;
    return TD_OK;
}

/* --- from an annotation file ------------------------------------------------------------------ */

/* Count the classes, and check that each category can be one. */
static td_status count_classes(const td_dataset_opts *opts, const td_coco *c, const char *file,
                               int *n)
{
    const td_coco_category *lowest = &c->categories[0];
    const td_coco_category *highest = &c->categories[c->n_categories - 1];
    if (c->n_categories > KEPT_ID_MAX)
        return td_error(TD_ELIMIT, "'%s' has %zu categories, at most %d can be classes", file,
                        c->n_categories, KEPT_ID_MAX);
    *n = opts->keep_ids ? (int)highest->id : (int)c->n_categories;
    if (opts->keep_ids && (lowest->id < 1 || highest->id > KEPT_ID_MAX))
        return td_error(
            TD_EFORMAT,
            "'%s': category '%s' has the id %" PRId64
            ", which cannot be a class number: with --label-ids keep, ids must be 1 to %d",
            file, lowest->id < 1 ? lowest->name : highest->name,
            lowest->id < 1 ? lowest->id : highest->id, KEPT_ID_MAX);
    return TD_OK;
}

/* The class of category i of the file. */
static int class_of(const td_dataset_opts *opts, const td_coco *c, int32_t i)
{
    return opts->keep_ids ? (int)c->categories[i].id : i + 1;
}

static td_status take_classes(td_dataset *ds, const td_dataset_opts *opts, const td_coco *c, int n)
{
    struct td_objects *o = ds->objects;
    TD_TRY(TD_ALLOC(ds->class_names, (size_t)n + 1));
    ds->n_classes = n;
    ds->has_class_names = true;
    for (int32_t i = 0; i < (int32_t)c->n_categories; i++) {
        int k = class_of(opts, c, i) - 1;
        o->categories[k] = c->categories[i].id;
        ds->class_names[k] = td_arena_text(&ds->arena, c->categories[i].name);
        if (!ds->class_names[k])
            return TD_ENOMEM;
    }
    for (int k = 0; k < n; k++) { /* ids without a category */
        char name[32];
        if (ds->class_names[k])
            continue;
        (void)snprintf(name, sizeof name, "(id %d)", k + 1);
        o->categories[k] = -1;
        ds->class_names[k] = td_arena_text(&ds->arena, name);
        if (!ds->class_names[k])
            return TD_ENOMEM;
    }
    return TD_OK;
}

/* Pixels -> fractions, rounded once, as in the reference programs' TFRecords. */
td_ground_truth td_ground_truth_of(const td_annotation *a, int width, int height)
{
    return (td_ground_truth){ .box = { .ymin = (float)(a->y / height),
                                       .xmin = (float)(a->x / width),
                                       .ymax = (float)((a->y + a->height) / height),
                                       .xmax = (float)((a->x + a->width) / width) },
                              .label = a->label,
                              .is_crowd = a->is_crowd,
                              .area = a->area };
}

static void take_objects(struct td_objects *o, const td_dataset_opts *opts, const td_coco *c,
                         size_t image, int64_t *n)
{
    for (size_t k = c->first[image]; k < c->first[image + 1]; k++, (*n)++) {
        const td_coco_annotation *a = &c->annotations[k];
        o->annotations[*n] = (td_annotation){ .x = a->x,
                                              .y = a->y,
                                              .width = a->width,
                                              .height = a->height,
                                              .area = a->area,
                                              .id = a->id,
                                              .label = class_of(opts, c, a->category),
                                              .is_crowd = a->is_crowd };
        o->ground_truths[*n] = td_ground_truth_of(&o->annotations[*n], c->images[image].width,
                                                  c->images[image].height);
    }
}

static td_status take_images(td_dataset *ds, const td_dataset_opts *opts, const td_coco *c,
                             const char *folder, int64_t *places)
{
    struct td_objects *o = ds->objects;
    int64_t n_objects = 0;
    TD_TRY(TD_ALLOC(ds->samples, c->n_images));
    for (size_t i = 0; i < c->n_images; i++) {
        const td_coco_image *p = &c->images[i];
        if (opts->skip_empty && c->first[i] == c->first[i + 1])
            continue;
        char *path = td_path_append(&ds->arena, folder, p->file_name);
        if (!path)
            return TD_ENOMEM;
        if (places)
            places[ds->n] = (int64_t)i;
        ds->samples[ds->n] = (td_sample){ .path = path, .label = -1 };
        o->images[ds->n] = (td_annotated){ .id = p->id, .width = p->width, .height = p->height };
        take_objects(o, opts, c, i, &n_objects);
        o->first[++ds->n] = n_objects;
    }
    return TD_OK;
}

static td_status take_bad(td_dataset *ds, const td_coco *c)
{
    struct td_objects *o = ds->objects;
    TD_TRY(TD_ALLOC(o->bad, c->n_listed + 1));
    for (size_t i = 0; i < c->n_listed; i++) {
        const char *text = td_arena_text(&ds->arena, c->bad[i].text);
        if (!text)
            return TD_ENOMEM;
        o->bad[i] = (td_bad_annotation){ text, c->bad[i].id, c->bad[i].byte };
    }
    o->n_listed = (int64_t)c->n_listed;
    o->n_bad = c->n_bad;
    return TD_OK;
}

td_status td_objects_take(td_dataset *ds, const td_dataset_opts *opts, const td_coco *c,
                          const char *file, const char *folder, int64_t *places)
{
    int n_classes;
    TD_TRY(count_classes(opts, c, file, &n_classes));
    TD_TRY(
        td_objects_new((int64_t)c->n_images, (int64_t)c->n_annotations, n_classes, &ds->objects));
    ds->objects->file = td_arena_text(&ds->arena, file);
    if (!ds->objects->file)
        return TD_ENOMEM;
    TD_TRY(take_classes(ds, opts, c, n_classes));
    TD_TRY(take_images(ds, opts, c, folder, places));
    TD_TRY(take_bad(ds, c));
    if (ds->n == 0)
        return td_error(TD_EFORMAT, "'%s': no image has a box", file);
    return TD_OK;
}
