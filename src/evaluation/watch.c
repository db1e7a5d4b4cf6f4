/*
 * watch.c -- tandem evaluate --checkpoint-dir: evaluates every new checkpoint of a training
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "io/safetensors.h"
#include "tandem/evaluate.h"
#include "transport/rank_env.h"

enum { NAP_MS = 200 };

/* Identifies a version of a file: a replaced file has another inode or time. */
typedef struct {
    ino_t inode;
    struct timespec written;
} version;

static bool read_version(const char *path, version *v)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return false;
    *v = (version){ .inode = s.st_ino, .written = s.st_mtim };
    return true;
}

static bool is_same(const version *a, const version *b)
{
    return a->inode == b->inode && a->written.tv_sec == b->written.tv_sec &&
           a->written.tv_nsec == b->written.tv_nsec;
}

/* Has the checkpoint's training finished all planned epochs? */
static td_status is_last(const char *path, bool *out)
{
    td_tensors *t;
    td_run_state s;
    td_json *config = NULL;
    int64_t epochs = 0;
    *out = true; /* a file with only weights is not followed by another */
    TD_TRY(td_weight_file_read(path, false, &t));
    const char *kind = td_tensors_meta(t, "tandem.kind");
    const char *text = td_tensors_meta(t, "tandem.config");
    td_status st = TD_OK;
    if (kind && text && strcmp(kind, "checkpoint") == 0) {
        TD_OUT(td_checkpoint_state(t, path, &s));
        TD_OUT(td_json_parse(text, strlen(text), "tandem.config", &config));
        TD_OUT(td_json_int(config, "epochs", &epochs));
        *out = s.epoch >= epochs;
    }
out:
    td_json_free(config);
    td_tensors_free(t);
    return st;
}

/* Wait until the file changes; false: a signal was received. */
static bool wait_for_other(const char *path, const version *seen, int poll_s)
{
    version now;
    int64_t next_ns = td_now_ns();
    while (!td_signal_caught()) {
        if (td_now_ns() >= next_ns) {
            if (read_version(path, &now) && !is_same(&now, seen))
                return true;
            next_ns = td_now_ns() + (int64_t)poll_s * 1000000000;
        }
        nanosleep(&(struct timespec){ .tv_nsec = (long)NAP_MS * 1000000 }, NULL);
    }
    return false;
}

static td_status evaluate_once(const td_evaluate_opts *o,
                               td_status (*each)(void *ctx, const td_evaluate_result *r), void *ctx)
{
    td_evaluate_result r;
    td_status st = td_evaluate(o, &r);
    if (st != TD_OK && st != TD_EREQUIRED)
        return st;
    const td_status callback_status = each(ctx, &r);
    td_evaluate_release(&r);
    return callback_status == TD_OK ? st : callback_status;
}

/* Several ranks could see different checkpoints: refuse them. */
static td_status check_ranks(const td_evaluate_opts *o)
{
    td_rank_place place;
    TD_TRY(td_ranks_here(&place));
    if (place.size > 1 && !o->run_once)
        return td_error(TD_EUSAGE, "--checkpoint-dir with several ranks requires --run-once");
    return TD_OK;
}

td_status td_evaluate_watch(const td_evaluate_opts *opts,
                            td_status (*each)(void *ctx, const td_evaluate_result *r), void *ctx)
{
    td_evaluate_opts o = *opts;
    version seen = { 0 };
    bool is_over = false;
    char *path = td_path_join(o.checkpoint_dir, TD_CHECKPOINT_NAME);
    td_status st = path ? TD_OK : TD_ENOMEM;
    o.weights = path;
    TD_OUT(st);
    TD_OUT(td_log_configure(o.log));
    td_signals_catch();
    TD_OUT(check_ranks(&o));
    if (!td_path_is_folder(o.checkpoint_dir))
        TD_OUT(td_error(TD_ENOTFOUND, "'%s' is not a folder", o.checkpoint_dir));
    if (o.run_once && !td_path_exists(path))
        TD_OUT(td_error(TD_ENOTFOUND, "'%s' has no " TD_CHECKPOINT_NAME, o.checkpoint_dir));
    while (!is_over) {
        if (!wait_for_other(path, &seen, o.poll_seconds))
            TD_OUT(td_error(TD_ESTOPPED, "interrupted by a signal"));
        if (!read_version(path, &seen))
            continue;
        TD_OUT(is_last(path, &is_over));
        is_over = is_over || o.run_once;
        st = evaluate_once(&o, each, ctx);
        if (st == TD_EREQUIRED && !is_over) {
            td_log(TD_LOG_WARN, "evaluate", "%s", td_error_message());
            st = TD_OK;
        }
        TD_OUT(st);
    }
out:
    td_free(path);
    return st;
}
