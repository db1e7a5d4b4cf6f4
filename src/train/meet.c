/*
 * meet.c -- see meet.h
 */
#include "train/meet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/arena.h"
#include "base/log.h"
#include "data/dataset_digest.h"
#include "io/digest.h"
#include "rt/mpi_plugin.h"

/* what `launch` has chosen stays; mpirun and srun leave it to us */
static td_status choose_processors(const char *name, const td_rank_place *place)
{
    static const char *const done = "TANDEM_AFFINITY";
    td_affinity mode;
    int cpus[TD_CPUS_MAX], n;
    if (!name)
        return TD_OK;
    TD_TRY_MSG(td_affinity_parse(name, &mode), "--gpu-affinity");
    if (getenv(done) || mode == TD_AFFINITY_NONE)
        return TD_OK;
    if (place->local_size == 0) {
        td_log(TD_LOG_WARN, "train", "--gpu-affinity: how many ranks this machine has is not told");
        return TD_OK;
    }
    td_topology *t = TD_NEW(td_topology);
    td_status st = t ? td_topology_here(t) : TD_ENOMEM;
    if (st == TD_OK)
        st = td_affinity_choose(t, mode, place->local_rank, place->local_size, cpus, &n);
    if (st == TD_EARG) { /* mpirun has chosen already, or there are too few */
        td_log(TD_LOG_WARN, "train", "--gpu-affinity: %s: left as it is", td_error_message());
        td_free(t);
        return TD_OK;
    }
    if (st == TD_OK)
        st = td_affinity_apply(cpus, n);
    td_free(t);
    return st;
}

td_status td_meet(const char *module, const td_meet_opts *o, td_comm **out)
{
    td_rank_place place;
    *out = NULL;
    TD_TRY(td_ranks_here(&place));
    if (place.size == 1)
        return TD_OK;
    if (place.by == TD_RANKS_MPI)
        TD_TRY(td_mpi_meet(&place));
    TD_TRY(choose_processors(o->affinity, &place));
    TD_TRY(td_comm_open(&place, NULL, out));
    if (place.rank > 0 && !o->log && !getenv("TANDEM_RANK_LOGS"))
        TD_TRY(td_log_configure("warn"));
    td_log(TD_LOG_INFO, module, "%d ranks, %d of them on this machine, %d threads each", place.size,
           td_comm_local_size(*out), o->threads ? o->threads : td_comm_threads(*out));
    return TD_OK;
}

void td_part(td_comm *c, td_status st)
{
    const bool is_peace = c && st == TD_OK && td_comm_check(c) == TD_OK;
    td_comm_close(c, st);
    if (is_peace)
        td_mpi_leave();
}

/* --- what has to be alike --------------------------------------------------------------------- */

/* what may differ from rank to rank */
static const char *const own_options[] = {
    "threads",        "workers",      "prefetch",     "log",         "data",
    "workspace",      "tune_cache",   "gpu_affinity", "resume",      "pretrained_weights",
    "final_weights",  "train_logits", "raport_file",  "tensorboard", "csv",
    "csv_iterations", "trace",        "amp_stats",    "dump_dir",    "weights",
    "confusion",      "detections",
};

/* `config` without those: `"name": value, ` each */
static void add_options(const char *config, td_text *out)
{
    for (const char *p = config; *p;) {
        size_t n = 0;
        bool is_text = false;
        while (p[n] && (is_text || strncmp(p + n, ", \"", 3) != 0)) {
            is_text ^= p[n] == '"' && (n == 0 || p[n - 1] != '\\');
            n++;
        }
        bool is_own = false;
        for (size_t i = 0; i < sizeof own_options / sizeof *own_options; i++) {
            const char *name = strchr(p, '"');
            const size_t k = strlen(own_options[i]);
            is_own =
                is_own || (name && strncmp(name + 1, own_options[i], k) == 0 && name[1 + k] == '"');
        }
        if (!is_own)
            td_text_add(out, "%.*s\n", (int)n, p);
        p += n;
        p += *p ? 2 : 0;
    }
}

/* the digest of what an annotation file says of each picture */
static uint64_t digest_boxes(const td_dataset *ds)
{
    td_digest d;
    td_digest_init(&d);
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        const td_annotated of = td_dataset_annotated(ds, i);
        const int64_t head[3] = { of.id, of.width, of.height };
        int n;
        const td_annotation *a = td_dataset_annotations(ds, i, &n);
        td_digest_add(&d, head, sizeof head);
        for (int k = 0; k < n; k++) {
            const double box[5] = { a[k].x, a[k].y, a[k].width, a[k].height, a[k].area };
            const int64_t what[3] = { td_dataset_category(ds, a[k].label), a[k].label,
                                      a[k].is_crowd };
            td_digest_add(&d, box, sizeof box);
            td_digest_add(&d, what, sizeof what);
        }
    }
    return td_digest_value(&d);
}

static void add_list(const char *what, const td_dataset *ds, td_text *out)
{
    td_digest d;
    td_digest_init(&d);
    const size_t root = strlen(td_dataset_root(ds));
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        const char *path = td_dataset_path(ds, i);
        const int64_t label = td_dataset_label(ds, i);
        td_digest_add(&d, &label, sizeof label);
        if (path)
            td_digest_add(&d, path + (strlen(path) > root ? root : 0),
                          strlen(path) - (strlen(path) > root ? root : 0));
    }
    td_text_add(out, "%s: %" PRId64 " samples %d classes list %016" PRIx64 "\n", what,
                td_dataset_count(ds), td_dataset_classes(ds), td_digest_value(&d));
}

td_status td_describe_file(const char *what, const char *path, td_text *out)
{
    enum { PART = 1 << 16 };
    td_digest d;
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *part = f ? td_alloc(PART, 1) : NULL;
    if (f && !part) {
        fclose(f);
        return TD_ENOMEM;
    }
    if (f) {
        td_digest_init(&d);
        for (size_t n; (n = fread(part, 1, PART, f)) > 0;)
            td_digest_add(&d, part, n);
        fclose(f);
        td_text_add(out, "%s: %016" PRIx64 "\n", what, td_digest_value(&d));
    }
    td_free(part);
    return TD_OK;
}

td_status td_describe_run(const char *config, td_text *out)
{
    td_text_add(out, "tandem: version %s\n", td_version());
    TD_TRY(td_describe_file("the program file", "/proc/self/exe", out));
    add_options(config, out);
    return td_text_status(out);
}

td_status td_describe_data(const char *what, const td_dataset *ds, td_text *out)
{
    uint64_t contents;
    if (!ds)
        return TD_OK;
    add_list(what, ds, out);
    TD_TRY(td_dataset_digest(ds, &contents));
    td_text_add(out, "%s: contents %016" PRIx64 "\n", what, contents);
    if (td_dataset_has_boxes(ds))
        td_text_add(out, "%s: boxes %016" PRIx64 "\n", what, digest_boxes(ds));
    if (td_dataset_backend(ds) == TD_DATA_TENSORS) /* which are the data themselves */
        TD_TRY(td_describe_file(what, td_dataset_root(ds), out));
    return td_text_status(out);
}

td_status td_describe_program(const char *what, const td_program *p, td_text *out)
{
    char *text;
    TD_TRY(td_program_print(p, &text));
    td_text_add(out, "%s: %016" PRIx64 "\n", what, td_digest_of(text, strlen(text)));
    td_text_free(text);
    return td_text_status(out);
}
