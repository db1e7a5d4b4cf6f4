/*
 * record_boxes.c -- images with boxes from TFRecords, as those that TensorFlow's programs make of
 * COCO
 *
 * The objects are checked like those of an annotation file: they become entries of it.  Boxes are
 * fractions in float32; a pixel position is the fraction times the image's side, exact in double,
 * so that the ground truths that are made of it are the fractions again, to the bit.  Categories
 * are image/object/class/label, or without it those of the texts: COCO's ids if all are names of
 * COCO's categories, else 1, 2, ... in byte order.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "coco/coco_reading.h"
#include "data/known_classes.h"
#include "data/objects.h"
#include "data/record_sets.h"

enum { ROUNDINGS = 4 };

typedef struct {
    int64_t id;       /* with labels */
    const char *name; /* NULL: without a text */
} category;

typedef struct {
    const char *file_name; /* the same pointer as in td_coco_image */
    const char *path;
    const td_member *member;
    int64_t id; /* image/source_id; -1: no number */
} image;

typedef struct {
    td_coco_reading reading;
    image *images; /* those in reading.out->images before it is checked */
    size_t n_images, cap_images;
    int64_t n_records, n_objects;
    td_map numbers; /* label or text -> its category's index + 1 */
    category *categories;
    size_t n_categories, cap_categories;
    bool has_labels, has_texts_only;
} boxes;

static td_coco_place place_of(const td_record *r)
{
    return (td_coco_place){ .byte = r->at, .file = r->file };
}

/* --- images ----------------------------------------------------------------------------------- */

static int64_t source_id(const td_record *r)
{
    const char *text = td_record_text(r, TD_TF_SOURCE_ID, 0);
    int64_t id;
    const bool is_number = text && text[strspn(text, "0123456789")] == '\0';
    return is_number && td_text_to_int(text, &id) ? id : -1;
}

/* Keep an image; *is_good false: it was listed as a bad one. */
static td_status add_image(boxes *b, const td_record *r, td_coco_image *out, bool *is_good)
{
    td_coco *c = b->reading.out;
    int64_t width, height;
    TD_TRY(td_record_int(r, TD_TF_WIDTH, &width));
    TD_TRY(td_record_int(r, TD_TF_HEIGHT, &height));
    *is_good = width >= 1 && width <= TD_COCO_SIDE_MAX && height >= 1 && height <= TD_COCO_SIDE_MAX;
    const td_coco_subject about = { "image", source_id(r), b->n_records, place_of(r) };
    b->n_records++;
    if (!*is_good)
        return td_coco_list(&b->reading, &about,
                            "its size is %lld x %lld, wanted 1 .. %d pixels for each side",
                            (long long)width, (long long)height, TD_COCO_SIDE_MAX);
    *out = (td_coco_image){ .file_name = td_arena_text(&c->arena, r->name),
                            .width = (int)width,
                            .height = (int)height };
    if (!out->file_name)
        return TD_ENOMEM;
    TD_TRY(td_reserve(&b->images, &b->cap_images, b->n_images + 1, sizeof *b->images));
    b->images[b->n_images++] = (image){ out->file_name, r->path, r->member, about.id };
    return td_coco_keep_image(&b->reading, out, place_of(r));
}

/* --- objects ---------------------------------------------------------------------------------- */

/* Features have a value for each object, or, if they are optional, none. */
static td_status check_counts(const td_record *r)
{
    static const struct {
        td_tf_feature feature;
        bool is_optional;
    } wanted[] = { { TD_TF_YMIN, false },      { TD_TF_XMAX, false },
                   { TD_TF_YMAX, false },      { TD_TF_CLASS_LABEL, true },
                   { TD_TF_CLASS_TEXT, true }, { TD_TF_IS_CROWD, true },
                   { TD_TF_AREA, true } };
    const size_t n = r->x->lists[TD_TF_XMIN].n;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const size_t m = r->x->lists[wanted[i].feature].n;
        if (m != n && !(wanted[i].is_optional && m == 0))
            return td_error(TD_EFORMAT,
                            "'%s': the record at byte %lld has %zu boxes and %zu values of '%s'",
                            r->file, (long long)r->at, n, m, td_tf_feature_name(wanted[i].feature));
    }
    if (n && !r->x->lists[TD_TF_CLASS_LABEL].n && !r->x->lists[TD_TF_CLASS_TEXT].n)
        return td_record_refuse(r, "has boxes without 'image/object/class/label' and "
                                   "'image/object/class/text'");
    return TD_OK;
}

/* The index of the category of a label, or of a text; `name` may be NULL with a label. */
static td_status find_category(boxes *b, const char *key, int64_t id, const char *name,
                               int64_t *out)
{
    *out = (intptr_t)td_map_get(&b->numbers, key) - 1;
    if (*out >= 0)
        return TD_OK;
    category c = { .id = id };
    if (name) {
        c.name = td_arena_text(&b->reading.out->arena, name);
        if (!c.name)
            return TD_ENOMEM;
    }
    TD_TRY(
        td_reserve(&b->categories, &b->cap_categories, b->n_categories + 1, sizeof *b->categories));
    *out = (int64_t)b->n_categories;
    b->categories[b->n_categories++] = c;
    return td_map_set(&b->numbers, key, (void *)(intptr_t)(*out + 1));
}

/* The category of object i, whose text is `text`; "" without. */
static td_status category_of(boxes *b, const td_record *r, size_t i, const char *text, int64_t *out)
{
    const td_tf_list *labels = &r->x->lists[TD_TF_CLASS_LABEL];
    char digits[24];
    const bool is_text = *text && td_text_is_utf8(text);
    b->has_labels |= labels->n > 0;
    b->has_texts_only |= labels->n == 0;
    if (b->has_labels && b->has_texts_only)
        return td_record_refuse(r, "has other features than those before: some have "
                                   "'image/object/class/label', some do not");
    if (!labels->n && !is_text)
        return td_record_refuse(r, "has an object whose class text is empty or no UTF-8");
    if (!labels->n)
        return find_category(b, text, -1, text, out);
    (void)snprintf(digits, sizeof digits, "%lld", (long long)labels->ints[i]);
    return find_category(b, digits, labels->ints[i], is_text ? text : NULL, out);
}

/*
 * From `left` to `right`, fractions of a side, in pixels; the sum of start and length does not
 * exceed the right.  Their difference is exact if one is not more than twice the other; else a few
 * steps are sufficient.
 */
static void measure(float left, float right, int side, double *start, double *length)
{
    const double end = (double)right * side;
    *start = (double)left * side;
    *length = end - *start;
    for (int i = 0; i < ROUNDINGS && *start >= 0 && *start + *length > end; i++)
        *length = nextafter(*length, -1);
}

static td_status add_object(boxes *b, const td_record *r, const td_coco_image *of, size_t i,
                            int64_t number)
{
    const td_tf_list *l = r->x->lists;
    const float box[] = { l[TD_TF_XMIN].reals[i], l[TD_TF_YMIN].reals[i], l[TD_TF_XMAX].reals[i],
                          l[TD_TF_YMAX].reals[i] };
    const double area = l[TD_TF_AREA].n ? (double)l[TD_TF_AREA].reals[i] : 0;
    const td_coco_subject about = { "annotation", ++b->n_objects, 0, place_of(r) };
    td_coco_raw x = { .category_id = number, .at = place_of(r) };
    if (!isfinite(box[0]) || !isfinite(box[1]) || !isfinite(box[2]) || !isfinite(box[3]))
        return td_coco_list(&b->reading, &about, "its box is not finite");
    if (!isfinite(area) || area < 0)
        return td_coco_list(&b->reading, &about, "its area is %g, wanted 0 or more", area);
    x.a.id = about.id;
    x.a.image = (int32_t)b->n_images - 1;
    measure(box[0], box[2], of->width, &x.a.x, &x.a.width);
    measure(box[1], box[3], of->height, &x.a.y, &x.a.height);
    x.a.area = l[TD_TF_AREA].n ? area : x.a.width * x.a.height;
    x.a.is_crowd = l[TD_TF_IS_CROWD].n && l[TD_TF_IS_CROWD].ints[i] != 0;
    return td_coco_keep_annotation(&b->reading, &x);
}

static td_status add(void *ctx, const td_record *r)
{
    boxes *b = ctx;
    td_coco_image of;
    bool is_good;
    const td_tf_list *texts = &r->x->lists[TD_TF_CLASS_TEXT];
    if (!r->x->lists[TD_TF_XMIN].is_there)
        return td_record_refuse(r, "has no boxes, which a detector requires");
    TD_TRY(check_counts(r));
    TD_TRY(add_image(b, r, &of, &is_good));
    if (b->n_images > INT32_MAX)
        return td_error(TD_ELIMIT, "more than %d images", INT32_MAX);
    const char *text = td_text_get(&texts->texts);
    for (size_t i = 0; is_good && i < r->x->lists[TD_TF_XMIN].n; i++) {
        int64_t number;
        TD_TRY(category_of(b, r, i, texts->n ? text : "", &number));
        TD_TRY(add_object(b, r, &of, i, number));
        text += texts->n ? strlen(text) + 1 : 0;
    }
    return TD_OK;
}

/* --- categories ------------------------------------------------------------------------------- */

static int64_t known_id(const td_known_classes *k, int i)
{
    int64_t id = 0;
    TD_CHECK(td_text_to_int(k->ids[i], &id));
    return id;
}

/* The line of a category in COCO's list; -1: it is none. */
static int find_known(const td_known_classes *k, const category *c, bool has_labels)
{
    for (int i = 0; i < k->n; i++)
        if ((!has_labels || known_id(k, i) == c->id) &&
            (!c->name || strcmp(k->names[i], c->name) == 0))
            return i;
    return -1;
}

/* All of COCO's categories, if there are no others; *is_coco. */
static td_status add_known(boxes *b, const td_known_classes *k, bool *is_coco)
{
    *is_coco = b->n_categories > 0;
    for (size_t i = 0; i < b->n_categories && *is_coco; i++)
        *is_coco = find_known(k, &b->categories[i], b->has_labels) >= 0;
    if (!*is_coco)
        return TD_OK;
    for (size_t i = 0; i < b->n_categories; i++)
        b->categories[i].id = known_id(k, find_known(k, &b->categories[i], b->has_labels));
    for (int i = 0; i < k->n; i++) {
        const char *name = td_arena_text(&b->reading.out->arena, k->names[i]);
        if (!name)
            return TD_ENOMEM;
        TD_TRY(td_coco_keep_category(&b->reading, known_id(k, i), name, (td_coco_place){ 0 }));
    }
    return TD_OK;
}

static int by_name(const void *a, const void *b)
{
    const category *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

/* Number categories without labels by their names. */
static td_status number_names(boxes *b)
{
    const category **sorted;
    TD_TRY(TD_ALLOC(sorted, b->n_categories + 1));
    for (size_t i = 0; i < b->n_categories; i++)
        sorted[i] = &b->categories[i];
    qsort(sorted, b->n_categories, sizeof *sorted, by_name);
    for (size_t i = 0; i < b->n_categories; i++)
        b->categories[sorted[i] - b->categories].id = (int64_t)i + 1;
    td_free(sorted);
    return TD_OK;
}

static td_status add_own(boxes *b)
{
    if (!b->has_labels)
        TD_TRY(number_names(b));
    for (size_t i = 0; i < b->n_categories; i++) {
        const category *c = &b->categories[i];
        char digits[24];
        (void)snprintf(digits, sizeof digits, "%lld", (long long)c->id);
        const char *name = c->name ? c->name : td_arena_text(&b->reading.out->arena, digits);
        if (!name)
            return TD_ENOMEM;
        TD_TRY(td_coco_keep_category(&b->reading, c->id, name, (td_coco_place){ 0 }));
    }
    return TD_OK;
}

static td_status add_categories(boxes *b)
{
    td_known_classes coco;
    bool is_coco;
    TD_TRY(td_known_classes_open(TD_KNOWN_COCO, &coco));
    td_status st = add_known(b, &coco, &is_coco);
    td_known_classes_release(&coco);
    return st == TD_OK && !is_coco ? add_own(b) : st;
}

/* --- the data set ----------------------------------------------------------------------------- */

/* Replace indexes by ids: the images' own, or their order if some have none. */
static void set_ids(boxes *b)
{
    td_coco *c = b->reading.out;
    bool has_ids = true;
    for (size_t i = 0; i < b->n_images; i++)
        has_ids &= b->images[i].id >= 0;
    for (size_t i = 0; i < b->n_images; i++)
        c->images[i].id = has_ids ? b->images[i].id : (int64_t)i + 1;
    for (size_t i = 0; i < b->reading.n_raw; i++) {
        td_coco_raw *x = &b->reading.raw[i];
        x->image_id = c->images[x->a.image].id;
        x->category_id = b->categories[x->category_id].id;
    }
}

/* Samples are those images of `c` that were taken; `c` has those of b->images that were kept. */
static void place_samples(const boxes *b, td_dataset *ds, const int64_t *places)
{
    const td_coco *c = b->reading.out;
    for (size_t i = 0, at = 0, sample = 0; i < c->n_images && sample < (size_t)ds->n; i++, at++) {
        while (b->images[at].file_name != c->images[i].file_name)
            at++;
        if (places[sample] != (int64_t)i)
            continue;
        ds->samples[sample].path = b->images[at].path;
        ds->samples[sample++].member = b->images[at].member;
    }
}

static td_status finish(boxes *b, const td_dataset_opts *opts, td_dataset *ds)
{
    int64_t *places = NULL;
    td_coco *c = b->reading.out;
    td_status st;
    if (!b->n_records)
        return td_error(TD_EFORMAT, "'%s' has no records", ds->root);
    TD_OUT(add_categories(b));
    set_ids(b);
    TD_OUT(td_coco_resolve(&b->reading));
    TD_OUT(TD_ALLOC(places, c->n_images + 1));
    TD_OUT(td_objects_take(ds, opts, c, ds->root, ds->root, places));
    place_samples(b, ds, places);
out:
    td_free(places);
    return st;
}

td_status td_record_boxes(const td_record_source *s, const td_dataset_opts *opts, td_dataset *ds)
{
    boxes b = { .reading = { .out = TD_NEW(td_coco),
                             .what = ds->root,
                             .opts = { .is_strict = opts->strict } } };
    td_status st;
    if (!b.reading.out)
        return TD_ENOMEM;
    TD_OUT(td_records_walk(s, ds, add, &b));
    st = finish(&b, opts, ds);
out:
    td_coco_reading_release(&b.reading);
    td_map_release(&b.numbers);
    td_free(b.images);
    td_free(b.categories);
    return st;
}
