/*
 * dataset_report.c -- what `dataset check` found, as JSON and as text
 */
#include "cli/dataset_report.h"

static void extent_json(td_text *out, const char *name, const td_extent *e)
{
    td_text_add(out, ", \"%s\": {\"min\": %d, \"median\": %d, \"max\": %d}", name, e->min,
                e->median, e->max);
}

void td_cli_report_json(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", td_dataset_root(ds));
    td_text_add(
        out,
        ", \"pictures\": %lld, \"good\": %lld, \"bad\": %lld, \"jpeg\": %lld, \"png\": %lld, "
        "\"gray\": %lld, \"cmyk\": %lld, \"progressive\": %lld, \"rotated\": %lld",
        (long long)r->n_pictures, (long long)r->n_good, (long long)r->n_bad, (long long)r->n_jpeg,
        (long long)r->n_png, (long long)r->n_gray, (long long)r->n_cmyk,
        (long long)r->n_progressive, (long long)r->n_rotated);
    extent_json(out, "width", &r->width);
    extent_json(out, "height", &r->height);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", td_dataset_class_name(ds, i));
        td_json_add(out, "good", (double)r->class_good[i]);
        td_json_add(out, "bad", (double)r->class_bad[i]);
        td_text_add(out, "}");
    }
    td_text_add(out, "], \"unreadable\": [");
    for (int64_t i = 0; i < r->n_bad; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "path", r->bad[i].path);
        td_json_add_text(out, "reason", r->bad[i].reason);
        td_text_add(out, "}");
    }
    td_text_add(out, "]");
    td_json_add(out, "seconds", r->seconds);
    td_text_add(out, "}");
}

void td_cli_report_text(const td_dataset *ds, const td_dataset_report *r, td_text *out)
{
    td_text_add(out, "%s\n  pictures    %lld, %lld readable, %lld not\n", td_dataset_root(ds),
                (long long)r->n_pictures, (long long)r->n_good, (long long)r->n_bad);
    td_text_add(out,
                "  formats     %lld JPEG (%lld progressive, %lld CMYK), %lld PNG; %lld gray, %lld "
                "rotated\n",
                (long long)r->n_jpeg, (long long)r->n_progressive, (long long)r->n_cmyk,
                (long long)r->n_png, (long long)r->n_gray, (long long)r->n_rotated);
    td_text_add(out, "  width       %d to %d, median %d\n", r->width.min, r->width.max,
                r->width.median);
    td_text_add(out, "  height      %d to %d, median %d\n", r->height.min, r->height.max,
                r->height.median);
    td_text_add(out, "  classes     %d\n", r->n_classes);
    for (int i = 0; i < r->n_classes; i++)
        td_text_add(out, "    %-20s %lld%s\n", td_dataset_class_name(ds, i),
                    (long long)r->class_good[i], r->class_bad[i] ? " and unreadable ones" : "");
    for (int64_t i = 0; i < r->n_bad; i++)
        td_text_add(out, "  unreadable  %s: %s\n", r->bad[i].path, r->bad[i].reason);
}
