/*
 * box_classes.c -- reads the class names and category ids of a detector
 */
#include "inference/box_classes.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/class_list.h"
#include "checkpoint/class_names.h"
#include "data/known_classes.h"
#include "inference/detect_data.h"

static td_status read_names(const td_tensors *weights, const char *classes, td_box_classes *c)
{
    td_class_names names;
    if (!classes)
        return td_classes_from_json(td_tensors_meta(weights, "tandem.classes"), c->path,
                                    &c->n_names, &c->names);
    TD_TRY(td_class_names_read(classes, 1, &names));
    c->n_names = names.n;
    c->names = names.names;
    return c->n_names == c->n ? TD_OK : td_class_names_differ(classes, c->n_names, c->path, c->n);
}

/*
 * The class, from 0, of COCO's category `id`, which is number `place` in its list, among `n`
 * classes.
 */
static int place_in_coco(int n, int64_t id, int place)
{
    return n == TD_COCO_CLASSES ? place : (int)id - 1;
}

/* Name the classes after COCO's categories; labels without a category get generic names. */
static td_status name_coco(td_box_classes *c)
{
    char room[24];
    td_known_classes coco;
    TD_TRY(td_known_classes_open(TD_KNOWN_COCO, &coco));
    td_status st = TD_OK;
    c->names = td_alloc((size_t)c->n, sizeof *c->names);
    c->categories = td_alloc((size_t)c->n, sizeof *c->categories);
    if (!c->names || !c->categories)
        TD_OUT(TD_ENOMEM);
    c->n_names = c->n_categories = c->n;
    for (int i = 0; i < coco.n; i++) {
        int64_t id = 0;
        TD_CHECK(td_text_to_int(coco.ids[i], &id));
        const int at = place_in_coco(c->n, id, i);
        c->categories[at] = id;
        c->names[at] = td_copy_text(coco.names[i]);
        if (!c->names[at])
            TD_OUT(TD_ENOMEM);
    }
    for (int i = 0; i < c->n; i++) {
        snprintf(room, sizeof room, "class %d", i + 1);
        c->categories[i] = c->categories[i] ? c->categories[i] : i + 1;
        c->names[i] = c->names[i] ? c->names[i] : td_copy_text(room);
        if (!c->names[i])
            TD_OUT(TD_ENOMEM);
    }
    td_log(TD_LOG_INFO, "classes",
           "'%s' has %d classes without names: using COCO's names; --classes FILE replaces them",
           c->path, c->n);
out:
    td_known_classes_release(&coco);
    return st;
}

td_status td_box_classes_read(const td_tensors *weights, const char *path, int n,
                              const char *classes, td_box_classes *out)
{
    *out = (td_box_classes){ .path = path, .n = n };
    td_status st = read_names(weights, classes, out);
    if (st == TD_OK)
        st = td_boxes_categories_from_json(td_tensors_meta(weights, "tandem.categories"), path,
                                           &out->n_categories, &out->categories);
    if (st == TD_OK && !out->n_names && !out->n_categories &&
        (n == TD_COCO_CLASSES || n == TD_COCO_LARGEST_ID))
        st = name_coco(out);
    if (st != TD_OK)
        td_box_classes_release(out);
    return st;
}

void td_box_classes_release(td_box_classes *c)
{
    td_texts_free(c->names, (size_t)c->n_names);
    td_free(c->categories);
    *c = (td_box_classes){ 0 };
}

/* --- choosing --------------------------------------------------------------------------------- */

/* The class with this name, or with this category number if no name matches; 0: none. */
static int find_class(const td_box_classes *c, const char *name)
{
    int64_t category;
    for (int i = 0; i < c->n_names; i++)
        if (strcmp(c->names[i], name) == 0)
            return i + 1;
    if (!td_text_to_int(name, &category))
        return 0;
    for (int i = 0; i < c->n_categories; i++)
        if (c->categories[i] == category)
            return i + 1;
    const bool is_label = !c->n_categories && category >= 1 && category <= c->n;
    return is_label ? (int)category : 0;
}

static td_status no_class(const td_box_classes *c, const char *name)
{
    td_text known = { 0 };
    for (int i = 0; i < c->n_names && i < 20; i++)
        td_text_add(&known, "%s%s", i ? ", " : "; it has ", c->names[i]);
    td_status st = td_error(TD_EUSAGE, "'%s' has no class '%s'%s%s", c->path, name,
                            td_text_get(&known), c->n_names > 20 ? ", ..." : "");
    td_text_release(&known);
    return st;
}

td_status td_box_classes_choose(const td_box_classes *c, const char *list, bool **out)
{
    td_status st = TD_OK;
    *out = td_alloc((size_t)c->n + 1, sizeof **out);
    char *names = *out ? td_copy_text(list) : NULL;
    if (!names)
        TD_OUT(TD_ENOMEM);
    for (char *name = names, *end; name; name = end) {
        end = strchr(name, ',');
        if (end)
            *end++ = '\0';
        const int label = find_class(c, name);
        if (label < 1 || label > c->n)
            TD_OUT(no_class(c, name));
        (*out)[label] = true;
    }
out:
    td_free(names);
    if (st != TD_OK) {
        td_free(*out);
        *out = NULL;
    }
    return st;
}

/* --- boxes ------------------------------------------------------------------------------------ */

static const char *class_name(const td_box_classes *c, int label, char room[24])
{
    if (label <= c->n_names)
        return c->names[label - 1];
    snprintf(room, 24, "class %d", label);
    return room;
}

td_found_box td_box_classes_found(const td_box_classes *c, const td_detection *d, int width,
                                  int height, char room[24])
{
    const double w = width, h = height;
    const td_rect r = d->box;
    const int label = d->label;
    return (td_found_box){ .label = label,
                           .category = label <= c->n_categories ? c->categories[label - 1] : label,
                           .name = class_name(c, label, room),
                           .score = (double)d->score,
                           .x = (double)r.xmin * w,
                           .y = (double)r.ymin * h,
                           .width = ((double)r.xmax - (double)r.xmin) * w,
                           .height = ((double)r.ymax - (double)r.ymin) * h };
}

void td_box_classes_describe(const td_box_classes *c, td_found *f)
{
    f->n_classes = c->n_names < c->n_categories ? c->n_names : c->n_categories;
    f->class_names = (const char *const *)c->names;
    f->categories = c->categories;
}
