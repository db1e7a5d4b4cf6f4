/*
 * coco_text.c -- writes the boxes of a data set as COCO instances
 */
#include "dataset_tools/coco_text.h"

#include <inttypes.h>

#include "data/objects.h"

static void add_annotations(const td_dataset *ds, td_text *t)
{
    for (int64_t i = 0, k = 0; i < ds->n; i++) {
        int n;
        const td_annotation *a = td_dataset_annotations(ds, i, &n);
        for (; n > 0; n--, a++)
            td_text_add(
                t,
                "%s\n{\"id\": %" PRId64 ", \"image_id\": %" PRId64 ", \"category_id\": %" PRId64
                ", \"bbox\": [%.17g, %.17g, %.17g, %.17g], \"area\": %.17g, \"iscrowd\": %d}",
                k++ ? "," : "", a->id, ds->objects->images[i].id,
                ds->objects->categories[a->label - 1], a->x, a->y, a->width, a->height, a->area,
                a->is_crowd);
    }
}

void td_coco_text_add(const td_dataset *ds, td_file_name_fn *name, const void *ctx, td_text *t)
{
    td_text_add(t, "{\"images\": [");
    for (int64_t i = 0; i < ds->n; i++) {
        const td_annotated *p = &ds->objects->images[i];
        td_text_add(t, "%s\n{\"id\": %" PRId64, i ? "," : "", p->id);
        td_json_add_text(t, "file_name", name(ctx, i));
        td_text_add(t, ", \"width\": %d, \"height\": %d}", p->width, p->height);
    }
    td_text_add(t, "],\n\"annotations\": [");
    add_annotations(ds, t);
    td_text_add(t, "],\n\"categories\": [");
    for (int i = 0; i < ds->n_classes; i++) {
        td_text_add(t, "%s\n{\"id\": %" PRId64, i ? "," : "", ds->objects->categories[i]);
        td_json_add_text(t, "name", ds->class_names[i]);
        td_text_add(t, "}");
    }
    td_text_add(t, "]}\n");
}
