/*
 * coco_results.c -- writes detections as COCO results, image by image
 *
 * The categories are those that the network names, or, if it names none, the detected ones in the
 * order of detection.
 */
#include "base/arena.h"
#include "base/text.h"
#include "tandem/inference.h"

struct td_coco_results {
    td_text detections, categories;
    int64_t seen[1024]; /* categories already listed */
    int n_seen;
    bool are_known; /* the network's classes are known, and listed */
};

td_status td_coco_results_new(td_coco_results **out)
{
    *out = TD_NEW(td_coco_results);
    return *out ? TD_OK : TD_ENOMEM;
}

void td_coco_results_free(td_coco_results *l)
{
    if (!l)
        return;
    td_text_release(&l->detections);
    td_text_release(&l->categories);
    td_free(l);
}

static void list_category(td_text *list, int64_t id, const char *name)
{
    td_text_add(list, list->len ? ", {" : "{");
    td_json_add(list, "id", (double)id);
    td_json_add_text(list, "name", name);
    td_text_add(list, "}");
}

/* List all classes if the network names them. */
static void add_categories(td_coco_results *l, const td_found *f)
{
    for (int i = 0; i < f->n_classes && !l->are_known; i++)
        list_category(&l->categories, f->categories[i], f->class_names[i]);
    l->are_known = l->are_known || f->n_classes > 0;
}

/* Otherwise list a detected class. */
static void add_category(td_coco_results *l, const td_found_box *b)
{
    if (l->are_known)
        return;
    for (int i = 0; i < l->n_seen; i++)
        if (l->seen[i] == b->category)
            return;
    if (l->n_seen == (int)(sizeof l->seen / sizeof *l->seen))
        return;
    list_category(&l->categories, b->category, b->name);
    l->seen[l->n_seen++] = b->category;
}

static void add_box(td_coco_results *l, const td_found_box *b, int64_t image_id)
{
    td_text *out = &l->detections;
    add_category(l, b);
    td_text_add(out, out->len ? ", {" : "{");
    td_json_add(out, "image_id", (double)image_id);
    td_json_add(out, "category_id", (double)b->category);
    td_text_add(out, ", \"bbox\": [%.2f, %.2f, %.2f, %.2f]", b->x, b->y, b->width, b->height);
    td_json_add(out, "score", b->score);
    td_text_add(out, "}");
}

td_status td_coco_results_add(td_coco_results *l, const td_found *f, int64_t image_id)
{
    add_categories(l, f);
    for (int i = 0; i < f->n; i++)
        add_box(l, &f->boxes[i], image_id);
    TD_TRY(td_text_status(&l->categories));
    return td_text_status(&l->detections);
}

td_status td_coco_results_text(const td_coco_results *l, char **text)
{
    td_text out = { 0 };
    td_status st = td_text_status(&l->categories);
    if (st == TD_OK)
        st = td_text_status(&l->detections);
    td_text_add(&out, "\"categories\": [");
    td_text_add_bytes(&out, td_text_get(&l->categories), l->categories.len);
    td_text_add(&out, "], \"detections\": [");
    td_text_add_bytes(&out, td_text_get(&l->detections), l->detections.len);
    td_text_add(&out, "]");
    return td_text_take(&out, st, text);
}
