/*
 * dataset_report.c -- prints the findings of `dataset check` as JSON and as text
 */
#include "cli/dataset_report.h"

static void extent_json(td_text *out, const char *name, const td_extent *e)
{
    td_text_add(out, ", \"%s\": {\"min\": %d, \"median\": %.12g, \"max\": %d}", name, e->min,
                e->median, e->max);
}

/* --- boxes ------------------------------------------------------------------------------------ */

static void boxes_json(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    const td_bad_annotation *bad;
    int64_t n_listed, n_bad = td_dataset_bad_annotations(ds, &bad, &n_listed);
    td_json_add_text(out, "annotations", td_dataset_annotation_file(ds));
    td_text_add(out,
                ", \"boxes\": %lld, \"crowds\": %lld, \"pictures_without_boxes\": %lld, "
                "\"left_out\": %lld, \"box_sides\": [",
                (long long)r->n_boxes, (long long)r->n_crowds, (long long)r->n_empty,
                (long long)n_bad);
    for (int i = 0; i < TD_BOX_SIDES; i++)
        td_text_add(out, "%s%lld", i ? ", " : "", (long long)r->side_boxes[i]);
    td_text_add(out, "], \"reasons\": [");
    for (int64_t i = 0; i < n_listed; i++) {
        td_text_add(out, i ? ", \"" : "\"");
        td_text_add_json(out, bad[i].text);
        td_text_add(out, "\"");
    }
    td_text_add(out, "], \"other_size\": [");
    for (int64_t i = 0; i < r->n_other_size; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "path", r->other_size[i].path);
        td_json_add_text(out, "reason", r->other_size[i].reason);
        td_text_add(out, "}");
    }
    td_text_add(out, "]");
}

/* Number of boxes by side in pixels, in powers of two; without the empty intervals at both ends. */
static void sides_text(const td_dataset_report *r, td_text *out)
{
    int first = 0, last = TD_BOX_SIDES - 1;
    if (r->n_boxes > 0)
        td_text_add(out, "    %-20s %s\n", "side (root of area)", "boxes");
    while (first < last && !r->side_boxes[first])
        first++;
    while (last > first && !r->side_boxes[last])
        last--;
    for (int i = first; i <= last; i++)
        td_text_add(out, "    %4d .. %-4d px     %lld\n", i ? 1 << i : 0, 2 << i,
                    (long long)r->side_boxes[i]);
}

static void boxes_text(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    enum { SHOWN = 20 };
    const td_bad_annotation *bad;
    int64_t n_listed, n_bad = td_dataset_bad_annotations(ds, &bad, &n_listed);
    td_text_add(out, "  annotations %s\n  boxes       %lld, %lld of crowds; images without: %lld\n",
                td_dataset_annotation_file(ds), (long long)r->n_boxes, (long long)r->n_crowds,
                (long long)r->n_empty);
    sides_text(r, out);
    if (n_bad > 0)
        td_text_add(out, "  left out    %lld\n", (long long)n_bad);
    for (int64_t i = 0; i < n_listed && i < SHOWN; i++)
        td_text_add(out, "    %s\n", bad[i].text);
    if (n_bad > SHOWN)
        td_text_add(out, "    and %lld more; --json lists them\n", (long long)n_bad - SHOWN);
    if (r->n_other_size > 0)
        td_text_add(out, "  other size  %lld\n", (long long)r->n_other_size);
    for (int64_t i = 0; i < r->n_other_size && i < SHOWN; i++)
        td_text_add(out, "    %s: %s\n", r->other_size[i].path, r->other_size[i].reason);
}

/* --- the report ------------------------------------------------------------------------------- */

void td_cli_report_json(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", td_dataset_root(ds));
    td_text_add(
        out,
        ", \"pictures\": %lld, \"good\": %lld, \"bad\": %lld, \"jpeg\": %lld, \"png\": %lld, "
        "\"webp\": %lld, \"tiff\": %lld, \"gif\": %lld, \"bmp\": %lld, "
        "\"gray\": %lld, \"cmyk\": %lld, \"progressive\": %lld, \"rotated\": %lld",
        (long long)r->n_images, (long long)r->n_good, (long long)r->n_bad, (long long)r->n_jpeg,
        (long long)r->n_png, (long long)r->n_webp, (long long)r->n_tiff, (long long)r->n_gif,
        (long long)r->n_bmp, (long long)r->n_gray, (long long)r->n_cmyk,
        (long long)r->n_progressive, (long long)r->n_rotated);
    extent_json(out, "width", &r->width);
    extent_json(out, "height", &r->height);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", td_dataset_class_name(ds, i));
        td_json_add(out, "good", (double)r->class_good[i]);
        td_json_add(out, "bad", (double)r->class_bad[i]);
        if (r->class_boxes)
            td_json_add(out, "boxes", (double)r->class_boxes[i]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]");
    if (r->class_boxes)
        boxes_json(ds, r, out);
    if (r->is_multi_label)
        td_json_add(out, "pictures_without_labels", (double)r->n_unlabeled);
    td_text_add(out, ", \"unreadable\": [");
    for (int64_t i = 0; i < r->n_bad; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "path", r->bad[i].path);
        td_json_add_text(out, "reason", r->bad[i].reason);
        td_text_add(out, "}");
    }
    int n_listed;
    const char *const *others;
    td_text_add(out, "], \"other_files\": %lld, \"others\": [",
                (long long)td_dataset_other_files(ds, &others, &n_listed));
    for (int i = 0; i < n_listed; i++) {
        td_text_add(out, i ? ", \"" : "\"");
        td_text_add_json(out, others[i]);
        td_text_add(out, "\"");
    }
    td_text_add(out, "]");
    td_json_add(out, "seconds", r->seconds);
    td_text_add(out, "}");
}

static void other_formats_text(const td_dataset_report *r, td_text *out)
{
    const struct {
        const char *name;
        int64_t n;
    } others[] = {
        { "WebP", r->n_webp }, { "TIFF", r->n_tiff }, { "GIF", r->n_gif }, { "BMP", r->n_bmp }
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].n > 0)
            td_text_add(out, ", %lld %s", (long long)others[i].n, others[i].name);
}

void td_cli_report_text(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    td_text_add(out, "%s\n  images      %lld, %lld readable, %lld not\n", td_dataset_root(ds),
                (long long)r->n_images, (long long)r->n_good, (long long)r->n_bad);
    td_text_add(out, "  formats     %lld JPEG (%lld progressive, %lld CMYK), %lld PNG",
                (long long)r->n_jpeg, (long long)r->n_progressive, (long long)r->n_cmyk,
                (long long)r->n_png);
    other_formats_text(r, out);
    td_text_add(out, "; %lld gray, %lld rotated\n", (long long)r->n_gray, (long long)r->n_rotated);
    td_text_add(out, "  width       %d to %d, median %.12g\n", r->width.min, r->width.max,
                r->width.median);
    td_text_add(out, "  height      %d to %d, median %.12g\n", r->height.min, r->height.max,
                r->height.median);
    td_text_add(out, "  classes     %d\n    %-20s %s\n", r->n_classes, "class",
                r->class_boxes ? "boxes" : "readable images");
    for (int i = 0; i < r->n_classes; i++)
        td_text_add(out, "    %-20s %lld%s\n", td_dataset_class_name(ds, i),
                    (long long)(r->class_boxes ? r->class_boxes : r->class_good)[i],
                    r->class_bad[i] ? " and unreadable ones" : "");
    if (r->class_boxes)
        boxes_text(ds, r, out);
    if (r->is_multi_label)
        td_text_add(out, "  no label    %lld images\n", (long long)r->n_unlabeled);
    for (int64_t i = 0; i < r->n_bad; i++)
        td_text_add(out, "  unreadable  %s: %s\n", r->bad[i].path, r->bad[i].reason);
    int n_listed;
    const char *const *others;
    const int64_t n = td_dataset_other_files(ds, &others, &n_listed);
    if (n > 0)
        td_text_add(out, "  no images   %lld other file%s, not used\n", (long long)n,
                    n == 1 ? "" : "s");
    for (int i = 0; i < n_listed; i++)
        td_text_add(out, "    %s\n", others[i]);
    if (n > n_listed)
        td_text_add(out, "    and %lld more\n", (long long)n - n_listed);
}
