/*
 * coco_file.c -- writes an annotation file of any size, for measuring the reader
 *
 *     coco_file IMAGES BOXES > FILE          118287 860001: COCO train2017's size, 448 MB
 *     coco_file read FILE                    read it; prints what was found, seconds, peak memory
 *
 * 80 categories with COCO's gaps, polygons of some 26 points as COCO's are (they make most of the
 * file), one box in a hundred a crowd with run lengths.  The same numbers give the same bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/rng.h"
#include "coco/coco.h"

enum { CATEGORIES = 90, SIDE = 640 };

static bool is_gap(int id)
{
    static const int gaps[] = { 12, 26, 29, 30, 45, 66, 68, 69, 71, 83 };
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++)
        if (gaps[i] == id)
            return true;
    return false;
}

static int category(td_rng *r)
{
    int id = 1 + (int)td_rng_below(r, CATEGORIES);
    return is_gap(id) ? category(r) : id;
}

static void write_images(int64_t n)
{
    printf("{\"info\": {\"description\": \"made\"}, \"licenses\": [], \"images\": [");
    for (int64_t i = 0; i < n; i++)
        printf("%s{\"license\": 3,\"file_name\": \"%012" PRId64 ".jpg\",\"coco_url\": "
               "\"http://images.example.org/train2017/%012" PRId64 ".jpg\",\"height\": 480,"
               "\"width\": %d,\"date_captured\": \"2013-11-14 11:18:45\",\"id\": %" PRId64 "}",
               i ? "," : "", 5 * i, 5 * i, SIDE, 5 * i);
    printf("],");
}

static void write_polygon(td_rng *r)
{
    int n = 2 * (12 + (int)td_rng_below(r, 31));
    printf("\"segmentation\": [[");
    for (int i = 0; i < n; i++)
        printf("%s%.2f", i ? "," : "", td_rng_uniform(r) * SIDE);
    printf("]],");
}

static void write_runs(td_rng *r)
{
    printf("\"segmentation\": {\"counts\": [");
    for (int i = 0; i < 300; i++)
        printf("%s%d", i ? "," : "", (int)td_rng_below(r, 900));
    printf("],\"size\": [480,640]},");
}

static void write_boxes(int64_t n, int64_t n_images)
{
    td_rng r = td_rng_make(1, TD_RNG_TEST, 0, 0);
    printf("\"annotations\": [");
    for (int64_t i = 0; i < n; i++) {
        bool is_crowd = i % 100 == 99;
        double w = 1 + td_rng_uniform(&r) * 300, h = 1 + td_rng_uniform(&r) * 200;
        printf("%s{", i ? "," : "");
        if (is_crowd)
            write_runs(&r);
        else
            write_polygon(&r);
        printf("\"area\": %.5f,\"iscrowd\": %d,\"image_id\": %" PRId64
               ",\"bbox\": [%.2f,%.2f,%.2f,%.2f],\"category_id\": %d,\"id\": %" PRId64 "}",
               0.6 * w * h, is_crowd, 5 * (int64_t)td_rng_below(&r, (uint64_t)n_images),
               td_rng_uniform(&r) * 300, td_rng_uniform(&r) * 250, w, h, category(&r), 900 + i);
    }
    printf("],");
}

static void write_categories(void)
{
    printf("\"categories\": [");
    for (int id = 1; id <= CATEGORIES; id++)
        if (!is_gap(id))
            printf("%s{\"supercategory\": \"thing\",\"id\": %d,\"name\": \"thing %d\"}",
                   id > 1 ? "," : "", id, id);
    printf("]}\n");
}

static int read_file(const char *path)
{
    td_coco *c;
    int64_t start_ns = td_now_ns();
    if (td_coco_read(path, &(td_coco_opts){ 0 }, &c) != TD_OK) {
        fprintf(stderr, "coco_file: %s\n", td_error_message());
        return 1;
    }
    printf("{\"images\": %zu, \"categories\": %zu, \"boxes\": %zu, \"bad\": %" PRId64
           ", \"seconds\": %.3f, \"peak_bytes\": %" PRId64 "}\n",
           c->n_images, c->n_categories, c->n_annotations, c->n_bad,
           (double)(td_now_ns() - start_ns) * 1e-9, td_memory_peak_bytes());
    td_coco_free(c);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "read") == 0)
        return read_file(argv[2]);
    int64_t n_images = argc == 3 ? strtoll(argv[1], NULL, 10) : 0;
    int64_t n_boxes = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
    if (n_images < 1 || n_boxes < 1) {
        fprintf(stderr, "usage: coco_file IMAGES BOXES > FILE | coco_file read FILE\n");
        return 2;
    }
    write_images(n_images);
    write_boxes(n_boxes, n_images);
    write_categories();
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
