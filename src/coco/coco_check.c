/*
 * coco_check.c -- checks the entries of an annotation file and resolves references
 *
 * Ids are found by bisection in a sorted copy of (id, position in the file): of two entries with
 * the same id the first in the file is used.
 */
#include "coco/coco_reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

typedef struct {
    int64_t id;
    int32_t at; /* index */
} key;

static int by_id(const void *a, const void *b)
{
    const key *p = a, *q = b;
    if (p->id != q->id)
        return p->id < q->id ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

static int by_byte(const void *a, const void *b)
{
    const td_coco_bad *p = a, *q = b;
    return (p->byte > q->byte) - (p->byte < q->byte);
}

/* the index of an id, the lowest; -1: unknown */
static int32_t find(const key *keys, size_t n, int64_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (keys[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && keys[low].id == id ? keys[low].at : -1;
}

/* --- images --------------------------------------------------------------------------------- */

/* sorted keys of all images */
static td_status image_keys(const td_coco *c, key **out)
{
    key *keys = td_alloc(c->n_images + 1, sizeof *keys);
    if (!keys)
        return TD_ENOMEM;
    for (size_t i = 0; i < c->n_images; i++)
        keys[i] = (key){ c->images[i].id, (int32_t)i };
    qsort(keys, c->n_images, sizeof *keys, by_id);
    *out = keys;
    return TD_OK;
}

static td_status drop_double_images(td_coco_reading *r)
{
    td_coco *c = r->out;
    key *keys;
    td_status st = TD_OK;
    size_t n = 0;
    if (c->n_images > INT32_MAX)
        return td_error(TD_ELIMIT, "'%s' has %zu images, at most %d are read", r->what, c->n_images,
                        INT32_MAX);
    TD_TRY(image_keys(c, &keys));
    for (size_t i = 0; i < c->n_images; i++) {
        td_coco_image x = c->images[i];
        if (find(keys, c->n_images, x.id) == (int32_t)i) {
            c->images[n++] = x;
            continue;
        }
        const td_coco_subject about = { "image", x.id, 0, r->image_at[i] };
        TD_OUT(td_coco_list(r, &about, "its id is repeated; this one is '%s'", x.file_name));
    }
    c->n_images = n;
    if (n == 0)
        st = td_error(TD_EFORMAT, "'%s' has no usable image%s%s", r->what,
                      c->n_listed ? "; the first: " : "", c->n_listed ? c->bad[0].text : "");
out:
    td_free(keys);
    return st;
}

/* --- categories ------------------------------------------------------------------------------- */

static int by_category(const void *a, const void *b)
{
    const td_coco_category *p = a, *q = b;
    return (p->id > q->id) - (p->id < q->id);
}

/* a unique name when its own is taken: "cat (7)" for category 7, repeated if necessary */
static td_status other_name(td_coco *c, td_coco_category *x, const td_map *taken)
{
    while (td_map_has(taken, x->name)) {
        size_t n = strlen(x->name) + sizeof " (-9223372036854775808)";
        char *name = td_arena_alloc(&c->arena, n, 1);
        if (!name)
            return TD_ENOMEM;
        (void)snprintf(name, n, "%s (%" PRId64 ")", x->name, x->id);
        x->name = name;
    }
    return TD_OK;
}

static td_status make_names_unique(td_coco *c)
{
    td_map taken = { 0 };
    td_status st = TD_OK;
    for (size_t i = 0; i < c->n_categories; i++) {
        td_coco_category *x = &c->categories[i];
        TD_OUT(other_name(c, x, &taken));
        TD_OUT(td_map_set(&taken, x->name, c));
    }
out:
    td_map_release(&taken);
    return st;
}

static td_status order_categories(td_coco_reading *r)
{
    td_coco *c = r->out;
    key *keys = td_alloc(c->n_categories + 1, sizeof *keys);
    td_status st = TD_OK;
    size_t n = 0;
    if (!keys)
        return TD_ENOMEM;
    for (size_t i = 0; i < c->n_categories; i++)
        keys[i] = (key){ c->categories[i].id, (int32_t)i };
    qsort(keys, c->n_categories, sizeof *keys, by_id);
    for (size_t i = 0; i < c->n_categories; i++) {
        td_coco_category x = c->categories[i];
        if (find(keys, c->n_categories, x.id) == (int32_t)i) {
            c->categories[n++] = x;
            continue;
        }
        const td_coco_subject about = { "category", x.id, 0, r->category_at[i] };
        TD_OUT(td_coco_list(r, &about, "its id is repeated; this one is '%s'", x.name));
    }
    c->n_categories = n;
    if (n == 0)
        TD_OUT(td_error(TD_EFORMAT, "'%s' has no usable category", r->what));
    qsort(c->categories, n, sizeof *c->categories, by_category);
    st = make_names_unique(c);
out:
    td_free(keys);
    return st;
}

/* --- annotations ------------------------------------------------------------------------------ */

/* checks the box, alone and against its image; lists an invalid one */
static td_status check_box(td_coco_reading *r, const td_coco_raw *x, const td_coco_subject *about,
                           bool *is_good)
{
    const td_coco_annotation *a = &x->a;
    const td_coco_image *p = &r->out->images[a->image];
    *is_good = r->opts.keeps_invalid;
    if (*is_good)
        return TD_OK;
    if (a->width <= 0 || a->height <= 0)
        return td_coco_list(r, about, "its box is %g x %g pixels, wanted more than 0", a->width,
                            a->height);
    if (a->x < 0 || a->y < 0 || a->x + a->width > p->width || a->y + a->height > p->height)
        return td_coco_list(r, about,
                            "its box from %g, %g to %g, %g exceeds its image of %d x %d pixels",
                            a->x, a->y, a->x + a->width, a->y + a->height, p->width, p->height);
    *is_good = true;
    return TD_OK;
}

typedef struct {
    key *images, *ids;
} keys_of;

static td_status check(td_coco_reading *r, const keys_of *k, size_t i, bool *is_good)
{
    td_coco *c = r->out;
    td_coco_raw *x = &r->raw[i];
    const td_coco_subject about = { "annotation", x->a.id, (int64_t)i, x->at };
    *is_good = false;
    if (find(k->ids, r->n_raw, x->a.id) != (int32_t)i)
        return td_coco_list(r, &about, "its id is repeated");
    x->a.image = find(k->images, c->n_images, x->image_id);
    if (x->a.image < 0)
        return td_coco_list(r, &about, "its image %" PRId64 " is not among the images",
                            x->image_id);
    const td_coco_category wanted = { .id = x->category_id }, *category;
    category = bsearch(&wanted, c->categories, c->n_categories, sizeof wanted, by_category);
    if (!category)
        return td_coco_list(r, &about, "its category %" PRId64 " is not among the categories",
                            x->category_id);
    x->a.category = (int32_t)(category - c->categories);
    return check_box(r, x, &about, is_good);
}

/* by image, in the order of the file within one */
static td_status sort_annotations(td_coco_reading *r, size_t n)
{
    td_coco *c = r->out;
    TD_TRY(TD_ALLOC(c->annotations, n + 1));
    TD_TRY(TD_ALLOC(c->first, c->n_images + 2));
    for (size_t i = 0; i < n; i++)
        c->first[r->raw[i].a.image + 2]++;
    for (size_t i = 2; i < c->n_images + 2; i++)
        c->first[i] += c->first[i - 1];
    for (size_t i = 0; i < n; i++)
        c->annotations[c->first[r->raw[i].a.image + 1]++] = r->raw[i].a;
    c->n_annotations = n;
    return TD_OK;
}

static td_status check_annotations(td_coco_reading *r, keys_of *k)
{
    size_t n = 0;
    bool is_good;
    TD_TRY(image_keys(r->out, &k->images));
    TD_TRY(TD_ALLOC(k->ids, r->n_raw + 1));
    for (size_t i = 0; i < r->n_raw; i++)
        k->ids[i] = (key){ r->raw[i].a.id, (int32_t)i };
    qsort(k->ids, r->n_raw, sizeof *k->ids, by_id);
    for (size_t i = 0; i < r->n_raw; i++) {
        TD_TRY(check(r, k, i, &is_good));
        if (is_good)
            r->raw[n++] = r->raw[i];
    }
    return sort_annotations(r, n);
}

td_status td_coco_resolve(td_coco_reading *r)
{
    keys_of k = { 0 };
    td_status st;
    TD_TRY(drop_double_images(r));
    TD_TRY(order_categories(r));
    st = check_annotations(r, &k);
    td_free(k.images);
    td_free(k.ids);
    if (st == TD_OK && r->out->n_listed > 0)
        qsort(r->out->bad, r->out->n_listed, sizeof *r->out->bad, by_byte);
    return st;
}
