/*
 * fuzz_coco.c -- any bytes as an annotation file: an error in words, or boxes that stand
 */
#include <math.h>
#include <string.h>

#include "coco/coco.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_box(const td_coco *c, const td_coco_annotation *a)
{
    const td_coco_image *p = &c->images[a->image];
    TD_CHECK(a->category >= 0 && (size_t)a->category < c->n_categories);
    TD_CHECK(a->width > 0 && a->height > 0 && a->x >= 0 && a->y >= 0);
    TD_CHECK(a->x + a->width <= p->width && a->y + a->height <= p->height);
    TD_CHECK(isfinite(a->area) && a->area >= 0);
}

static void check(const td_coco *c)
{
    TD_CHECK(c->n_images > 0 && c->n_categories > 0 && c->first[0] == 0);
    TD_CHECK(c->first[c->n_images] == c->n_annotations);
    TD_CHECK(c->n_listed <= TD_COCO_LISTED_MAX && c->n_bad >= (int64_t)c->n_listed);
    for (size_t i = 0; i < c->n_images; i++) {
        TD_CHECK(c->images[i].width > 0 && c->images[i].height > 0 && *c->images[i].file_name);
        TD_CHECK(c->first[i] <= c->first[i + 1]);
        for (size_t k = c->first[i]; k < c->first[i + 1]; k++) {
            TD_CHECK(c->annotations[k].image == (int32_t)i);
            check_box(c, &c->annotations[k]);
        }
    }
    for (size_t i = 0; i < c->n_categories; i++)
        TD_CHECK(*c->categories[i].name && (!i || c->categories[i - 1].id < c->categories[i].id));
    for (size_t i = 0; i < c->n_listed; i++)
        TD_CHECK(strlen(c->bad[i].text) > 0 && c->bad[i].byte >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_coco *c;
    const td_coco_opts plain = { 0 }, strict = { .is_strict = true },
                       odd = { .keeps_invalid = true };
    td_error_clear();
    td_status st = td_coco_parse(data, n_bytes, "input", &plain, &c);
    if (st == TD_OK)
        check(c);
    else
        TD_CHECK(!c && *td_error_message());
    int64_t n_bad = st == TD_OK ? c->n_bad : 1;
    td_coco_free(c);
    TD_CHECK((td_coco_parse(data, n_bytes, "input", &strict, &c) == TD_OK) ==
             (st == TD_OK && n_bad == 0));
    td_coco_free(c);
    TD_CHECK(td_coco_parse(data, n_bytes, "input", &odd, &c) == TD_OK || st != TD_OK);
    td_coco_free(c);
    return 0;
}
