/*
 * run_table.c -- the table of results: a row for each metric
 */
#include "report/run_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How to compute a cell: reduce the values of epochs, or the source of a text. */
typedef enum { LAST, MOST, LEAST, MEAN, TOPK, SETTING, SECONDS, EPOCHS, SMOOTHING } kind;

typedef struct {
    const char *title, *name, *source, *other; /* other: setting used if `source` is missing */
    kind kind;
    int better; /* 1: higher is better, -1: lower, 0: neither */
    double scale;
    int decimals;
} table_row;

/* clang-format off */
static const table_row rows[] = {
    { "network",                 "arch",                      "arch",
      "model.arch", SETTING, 0, 1, 0 },
    { "precision",               "precision",                 "run.precision",
      "precision", SETTING, 0, 1, 0 },
    { "batch size",              "batch_size",                "batch_size",
      NULL, SETTING, 0, 1, 0 },
    { "image size",              "image_size",                "model.image_size",
      "image_size", SETTING, 0, 1, 0 },
    { "parameters",              "parameters",                "run.parameters",
      NULL, SETTING, 0, 1, 0 },
    { "epochs",                  "epochs",                    NULL,
      NULL, EPOCHS, 0, 1, 0 },
    { "best top1, %",            "top1",                      "val.top1",
      NULL, MOST, 1, 1, 2 },
    { "best topK, %",            "topk",                      "val.",
      NULL, TOPK, 1, 1, 2 },
    { "best top1 of EMA, %",     "ema_top1",                  "val_ema.top1",
      NULL, MOST, 1, 1, 2 },
    { "best mAP",                "map",                       "val.mAP",
      NULL, MOST, 1, 1, 4 },
    { "best micro F1",           "micro_f1",                  "val.micro_f1",
      NULL, MOST, 1, 1, 4 },
    { "best macro F1",           "macro_f1",                  "val.macro_f1",
      NULL, MOST, 1, 1, 4 },
    { "best mAP of EMA",         "ema_map",                   "val_ema.mAP",
      NULL, MOST, 1, 1, 4 },
    { "best AP",                 "ap",                        "val.AP",
      NULL, MOST, 1, 1, 4 },
    { "best AP50",               "ap50",                      "val.AP50",
      NULL, MOST, 1, 1, 4 },
    { "least validation loss",   "val_loss",                  "val.loss",
      NULL, LEAST, -1, 1, 4 },
    { "its label smoothing",     "val_label_smoothing",       "val.loss",
      NULL, SMOOTHING, 0, 1, 2 },
    { "least training loss",     "train_loss",                "train.loss",
      NULL, LEAST, -1, 1, 4 },
    { "images/s, training",      "train_images_per_s",        "train.total_ips",
      NULL, MEAN, 1, 1, 1 },
    { "images/s, without waits", "train_compute_images_per_s", "train.compute_ips",
      NULL, MEAN, 1, 1, 1 },
    { "images/s, last quarter",  "last_quarter_images_per_s", "train.last_quarter_ips",
      NULL, LAST, 1, 1, 1 },
    { "wait for data, ms",       "train_data_ms",             "train.data_time",
      NULL, MEAN, -1, 1e3, 2 },
    { "training step, ms",       "train_step_ms",             "train.compute_time",
      NULL, MEAN, -1, 1e3, 2 },
    { "skipped steps",           "skipped_steps",             "train.skipped_steps",
      NULL, LAST, 0, 1, 0 },
    { "images/s, inference",     "val_images_per_s",          "val.total_ips",
      NULL, MEAN, 1, 1, 1 },
    { "latency, ms",             "latency_ms",                "val.compute_latency",
      NULL, MEAN, -1, 1e3, 2 },
    { "latency at 50 %, ms",     "latency_p50_ms",            "val.compute_latency_at50",
      NULL, LAST, -1, 1e3, 2 },
    { "latency at 90 %, ms",     "latency_p90_ms",            "val.compute_latency_at90",
      NULL, LAST, -1, 1e3, 2 },
    { "latency at 95 %, ms",     "latency_p95_ms",            "val.compute_latency_at95",
      NULL, LAST, -1, 1e3, 2 },
    { "latency at 99 %, ms",     "latency_p99_ms",            "val.compute_latency_at99",
      NULL, LAST, -1, 1e3, 2 },
    { "latency at 100 %, ms",    "latency_p100_ms",           "val.compute_latency_at100",
      NULL, LAST, -1, 1e3, 2 },
    { "duration, s",             "seconds",                   NULL,
      NULL, SECONDS, 0, 1, 1 },
    { "processor",               "cpu",                       "run.cpu",
      NULL, SETTING, 0, 1, 0 },
    { "ranks",                   "ranks",                     "run.ranks",
      NULL, SETTING, 0, 1, 0 },
    { "threads",                 "threads",                   "run.threads",
      "threads", SETTING, 0, 1, 0 },
};
/* clang-format on */

enum { N_ROWS = sizeof rows / sizeof *rows };

int td_run_table_rows(void)
{
    return N_ROWS;
}

const char *td_run_table_name(int row)
{
    return rows[row].name;
}

void td_run_table_title(const td_run_log *runs, int n, int row, td_text *out)
{
    const char *topk = NULL;
    for (int i = 0; i < n && !topk && rows[row].kind == TOPK; i++)
        topk = td_run_log_topk(&runs[i], rows[row].source);
    if (topk)
        td_text_add(out, "best %s, %%", topk + strlen(rows[row].source));
    else
        td_text_add(out, "%s", rows[row].title);
}

/* --- cells ------------------------------------------------------------------------------------ */

static double over_epochs(const td_run_series *s, kind k)
{
    double x = s->points[s->n - 1].value, sum = 0;
    if (k == LAST)
        return x;
    for (size_t i = 0; i < s->n; i++) {
        const double v = s->points[i].value;
        x = k == LEAST ? fmin(x, v) : fmax(x, v);
        sum += v;
    }
    return k == MEAN ? sum / (double)s->n : x;
}

/* A number of the final record or, if the run has none, computed from its epochs or iterations. */
static double number_of(const td_run_log *run, const table_row *r)
{
    const char *metric = r->kind == TOPK ? td_run_log_topk(run, r->source) : r->source;
    const kind k = r->kind == TOPK ? MOST : r->kind;
    const td_run_series *end = td_run_log_series(run, TD_RUN_END, metric);
    const td_run_series *epochs = td_run_log_series(run, TD_RUN_EPOCHS, metric);
    const td_run_series *iterations = td_run_log_series(run, TD_RUN_ITERATIONS, metric);
    const bool is_best = k == MOST || k == LEAST;
    if (is_best && epochs) /* of all epochs, including those before a resume */
        return over_epochs(epochs, k) * r->scale;
    if (end)
        return end->points[0].value * r->scale;
    if (epochs)
        return over_epochs(epochs, k) * r->scale;
    return iterations ? over_epochs(iterations, k) * r->scale : (double)NAN;
}

static double setting_number(const td_run_log *run, const char *name)
{
    double x;
    const char *text = td_run_log_setting(run, name);
    return text && td_text_to_real(text, &x) ? x : 0;
}

/* The label smoothing of the validation loss: none in a training with mixup or cutmix. */
static double smoothing_of(const td_run_log *run, const char *loss)
{
    if (!td_run_log_series(run, TD_RUN_EPOCHS, loss) && !td_run_log_series(run, TD_RUN_END, loss))
        return (double)NAN;
    const bool is_mixed = setting_number(run, "mixup") > 0 || setting_number(run, "cutmix") > 0;
    return is_mixed ? 0 : setting_number(run, "label_smoothing");
}

static double cell_number(const td_run_log *run, const table_row *r)
{
    const td_run_series *s;
    switch (r->kind) {
    case SETTING:
        return (double)NAN;
    case SECONDS:
        return run->seconds;
    case SMOOTHING:
        return smoothing_of(run, r->source);
    case EPOCHS:
        s = td_run_log_series(run, TD_RUN_EPOCHS, "train.loss");
        return s ? (double)s->points[s->n - 1].epoch + 1 : (double)NAN;
    default:
        return number_of(run, r);
    }
}

void td_run_table_cell(const td_run_log *run, int row, td_text *out)
{
    const table_row *r = &rows[row];
    if (r->kind == SETTING) {
        const char *text = td_run_log_setting(run, r->source);
        if ((!text || !*text) && r->other) {
            text = td_run_log_setting(run, r->other);
            if (text && strcmp(text, "0") == 0)
                text = NULL; /* 0: the program's choice, which is unknown */
        }
        td_text_add(out, "%s", text ? text : "");
        return;
    }
    const double x = cell_number(run, r);
    if (isfinite(x))
        td_text_add(out, "%.*f", r->decimals, x);
}

/* The value of a cell as shown, negated if lower is better. */
static double shown(const td_run_log *run, const table_row *r)
{
    const double unit = pow(10, r->decimals);
    return round(cell_number(run, r) * unit) * r->better;
}

/* Do all runs have the same value of this setting, or none? */
static bool is_alike(const td_run_log *runs, int n, const char *setting)
{
    const char *first = td_run_log_setting(&runs[0], setting);
    for (int i = 1; i < n; i++) {
        const char *other = td_run_log_setting(&runs[i], setting);
        if (strcmp(first ? first : "", other ? other : "") != 0)
            return false;
    }
    return true;
}

static bool has_one_smoothing(const td_run_log *runs, int n)
{
    for (int i = 1; i < n; i++)
        if (smoothing_of(&runs[i], "val.loss") != smoothing_of(&runs[0], "val.loss"))
            return false;
    return true;
}

/* Are the runs comparable in this row?  Times require equal batches, losses equal targets. */
static bool is_comparable(const td_run_log *runs, int n, const table_row *r)
{
    const size_t len = strlen(r->name);
    if (strcmp(r->name, "val_loss") == 0)
        return has_one_smoothing(runs, n);
    if (strcmp(r->name, "train_loss") == 0)
        return is_alike(runs, n, "label_smoothing") && is_alike(runs, n, "mixup") &&
               is_alike(runs, n, "cutmix");
    return len < 3 || strcmp(r->name + len - 3, "_ms") != 0 ||
           (is_alike(runs, n, "batch_size") && is_alike(runs, n, "eval_batch_size") &&
            is_alike(runs, n, "image_size"));
}

bool td_run_table_is_best(const td_run_log *runs, int n, int row, int i)
{
    const table_row *r = &rows[row];
    const double x = shown(&runs[i], r);
    int n_worse = 0;
    if (!r->better || !isfinite(x) || !is_comparable(runs, n, r))
        return false;
    for (int k = 0; k < n; k++) {
        const double other = shown(&runs[k], r);
        if (other > x)
            return false;
        n_worse += other < x;
    }
    return n_worse > 0;
}

/* --- the table -------------------------------------------------------------------------------- */

/*
 * Add a cell.  In CSV, cells with a comma, quote or line end are quoted; in other forms, spaces
 * replace bars and line ends.
 */
static void add_cell(const char *s, td_run_table_form form, td_text *out)
{
    const bool is_quoted = form == TD_RUN_CSV && s[strcspn(s, ",\"\r\n")];
    if (is_quoted)
        td_text_add(out, "\"");
    for (; *s; s++) {
        const bool is_bad = (unsigned char)*s < 0x20 || (form == TD_RUN_MARKDOWN && *s == '|');
        if (is_quoted && *s == '"')
            td_text_add(out, "\"");
        td_text_add_bytes(out, is_bad ? " " : s, 1);
    }
    if (is_quoted)
        td_text_add(out, "\"");
}

static int columns_of(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static bool is_empty(const td_run_log *runs, int n, int row, td_text *out)
{
    td_text all = { 0 };
    for (int i = 0; i < n; i++)
        if (rows[row].kind != SMOOTHING || cell_number(&runs[i], &rows[row]) > 0)
            td_run_table_cell(&runs[i], row, &all);
    const bool is = all.len == 0;
    td_text_release_into(&all, out);
    return is;
}

static void add_padded(const char *s, int width, bool is_right, td_run_table_form form,
                       td_text *out)
{
    const int pad = width - columns_of(s);
    if (is_right)
        td_text_add(out, "%*s", pad > 0 ? pad : 0, "");
    add_cell(s, form, out);
    if (!is_right)
        td_text_add(out, "%*s", pad > 0 ? pad : 0, "");
}

/* Row -1 is the header. */
static void cell_text(const td_run_log *run, int row, td_text *out)
{
    if (row < 0)
        td_text_add(out, "%s", run->label);
    else
        td_run_table_cell(run, row, out);
}

static int width_of(const td_run_log *run, td_text *out)
{
    int width = 3;
    for (int row = -1; row < N_ROWS; row++) {
        td_text cell = { 0 };
        cell_text(run, row, &cell);
        const int w = columns_of(td_text_get(&cell));
        width = w > width ? w : width;
        td_text_release_into(&cell, out);
    }
    return width;
}

static void add_line(const td_run_log *runs, int n, int row, td_run_table_form form, td_text *out)
{
    const char *gap = form == TD_RUN_MARKDOWN ? " | " : "  ";
    td_text_add(out, form == TD_RUN_MARKDOWN ? "| " : "");
    td_text title = { 0 };
    if (row >= 0)
        td_run_table_title(runs, n, row, &title);
    add_padded(td_text_get(&title), 24, false, form, out);
    td_text_release_into(&title, out);
    for (int i = 0; i < n; i++) {
        td_text cell = { 0 };
        cell_text(&runs[i], row, &cell);
        td_text_add(out, "%s", gap);
        add_padded(td_text_get(&cell), width_of(&runs[i], out), true, form, out);
        td_text_release_into(&cell, out);
    }
    td_text_add(out, form == TD_RUN_MARKDOWN ? " |\n" : "\n");
}

static void add_csv(const td_run_log *runs, int n, td_text *out)
{
    td_text_add(out, "run");
    for (int row = 0; row < N_ROWS; row++)
        td_text_add(out, ",%s", rows[row].name);
    for (int i = 0; i < n; i++) {
        td_text_add(out, "\n");
        for (int row = -1; row < N_ROWS; row++) {
            td_text cell = { 0 };
            cell_text(&runs[i], row, &cell);
            td_text_add(out, "%s", row < 0 ? "" : ",");
            add_cell(td_text_get(&cell), TD_RUN_CSV, out);
            td_text_release_into(&cell, out);
        }
    }
    td_text_add(out, "\n");
}

/* Add a cell; numeric settings are written as numbers. */
static void add_json_cell(const td_run_log *run, int row, td_text *out)
{
    td_text cell = { 0 };
    double x = (double)NAN;
    td_run_table_cell(run, row, &cell);
    if (rows[row].kind != SETTING)
        td_json_add(out, rows[row].name, cell_number(run, &rows[row]));
    else if (cell.len && td_text_to_real(td_text_get(&cell), &x) && isfinite(x))
        td_json_add(out, rows[row].name, x);
    else
        td_json_add_text(out, rows[row].name, cell.len ? td_text_get(&cell) : NULL);
    td_text_release_into(&cell, out);
}

static void add_json(const td_run_log *runs, int n, td_text *out)
{
    td_text_add(out, "[");
    for (int i = 0; i < n; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "run", runs[i].label);
        for (int row = 0; row < N_ROWS; row++)
            add_json_cell(&runs[i], row, out);
        td_text_add(out, ", \"has_ended\": %s}", runs[i].has_ended ? "true" : "false");
    }
    td_text_add(out, "]");
}

td_status td_run_table(const td_run_log *runs, int n, td_run_table_form form, td_text *out)
{
    if (form == TD_RUN_JSON) {
        add_json(runs, n, out);
        return td_text_status(out);
    }
    if (form == TD_RUN_CSV) {
        add_csv(runs, n, out);
        return td_text_status(out);
    }
    add_line(runs, n, -1, form, out);
    if (form == TD_RUN_MARKDOWN) {
        td_text_add(out, "|---|");
        for (int i = 0; i < n; i++)
            td_text_add(out, "--:|");
        td_text_add(out, "\n");
    }
    for (int row = 0; row < N_ROWS; row++)
        if (!is_empty(runs, n, row, out))
            add_line(runs, n, row, form, out);
    return td_text_status(out);
}
