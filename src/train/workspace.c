/*
 * workspace.c -- the folder of a training run's files; refuses a folder that holds another run
 */
#include "train/workspace.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/paths.h"
#include "io/atomic.h"
#include "options/field.h"
#include "train/train_ranks.h"

#define CONFIG_HEAD "# the configuration of a run of tandem train; --config reads it back\n"
#define FRESH       "runs" /* parent of the folders created without --workspace */

enum { FRESH_MAX = 1000000 };

/* --- which folder ----------------------------------------------------------------------------- */

/* "resnet18-", from the architecture or a graph file's name; special characters become '_'. */
static void run_name_prefix(const td_model_opts *m, char *out, size_t n)
{
    const char *name = m->model ? td_path_base(m->model) : m->model_text ? "model" : m->arch;
    const char *dot = m->model ? strrchr(name, '.') : NULL;
    size_t len = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    len = len < n - 2 ? len : n - 2;
    for (size_t i = 0; i < len; i++) {
        const char c = name[i];
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || (i > 0 && (c == '-' || c == '.'));
        out[i] = is_plain ? c : '_';
    }
    out[len] = '-';
    out[len + 1] = '\0';
}

/* The first runs/ARCH-N that does not exist. */
static td_status choose_fresh(const td_model_opts *m, char **out)
{
    char prefix[80], path[128];
    run_name_prefix(m, prefix, sizeof prefix);
    for (int n = 1; n < FRESH_MAX; n++) {
        snprintf(path, sizeof path, FRESH "/%s%d", prefix, n);
        if (td_path_exists(path))
            continue;
        *out = td_copy_text(path);
        return *out ? TD_OK : TD_ENOMEM;
    }
    return td_error(TD_EIO, "'" FRESH "' has no free number for another '%s': give --workspace",
                    prefix);
}

/* "a/b/" for the path "a/b/c", "./" for "c"; NULL: no memory */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *out = td_copy_text(slash ? path : "./");
    if (out && slash)
        out[slash - path + 1] = '\0';
    return out;
}

/*
 * Is the checkpoint's name the default?  A printed configuration contains the default, too, so a
 * name on the command line is never the default.
 */
static bool is_default_checkpoint(const td_train_opts *o)
{
    return strcmp(o->output.checkpoint_filename, TD_CHECKPOINT_NAME) == 0 &&
           !td_options_given_on_line(td_train_fields(), o, "checkpoint_filename");
}

/* "run/" and "run" are one folder, which has one name in messages: "run" */
static void trim_slashes(char *path)
{
    size_t n = path ? strlen(path) : 0;
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
}

static td_status choose_folder(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    td_free(j->files.folder);
    j->files.folder = NULL;
    if (j->restart.folder) { /* the folder of the first start */
        j->files.is_folder_fresh = j->restart.is_fresh;
        j->files.folder = td_copy_text(j->restart.folder);
        return j->files.folder ? TD_OK : TD_ENOMEM;
    }
    j->files.is_folder_fresh =
        !o->output.workspace && !o->start.resume && td_train_writes(j) && is_default_checkpoint(o);
    if (j->files.is_folder_fresh)
        return choose_fresh(&o->model, &j->files.folder);
    j->files.folder = o->output.workspace ? td_copy_text(o->output.workspace)
                      : o->start.resume   ? folder_of(o->start.resume)
                                          : td_copy_text(".");
    trim_slashes(j->files.folder);
    return j->files.folder ? TD_OK : TD_ENOMEM;
}

/* --- which files ------------------------------------------------------------------------------ */

/* Two results must not be written to one file. */
static td_status check_paths(const td_train_job *j)
{
    const struct {
        const char *what, *path;
    } outputs[] = { { "the checkpoint",
                      j->o.output.save_checkpoints ? j->files.path[TD_PATH_CHECKPOINT] : NULL },
                    { "the best weights",
                      j->o.output.save_checkpoints ? j->files.path[TD_PATH_BEST] : NULL },
                    { "the report", j->files.path[TD_PATH_REPORT] },
                    { "the list of bad images", j->files.path[TD_PATH_BAD] },
                    { "the final weights", j->o.output.final_weights },
                    { "the logits", j->o.output.train_logits },
                    { "the statistics", j->o.profile.amp_stats },
                    { "the trace", j->o.profile.trace },
                    { "the table of epochs", j->o.metrics.csv },
                    { "the table of iterations", j->o.metrics.csv_iterations },
                    { "the lock", j->files.path[TD_PATH_LOCK] },
                    { "the configuration", j->files.path[TD_PATH_CONFIG] },
                    { "the checkpoint to resume", j->o.start.resume }, /* inputs from here on */
                    { "the pretrained weights", j->o.start.pretrained_weights },
                    { "the network", j->o.model.model } };
    enum { N = sizeof outputs / sizeof *outputs, N_WRITTEN = N - 3 };
    for (int i = 0; i < N_WRITTEN; i++)
        for (int k = i + 1; k < N; k++) {
            bool may_be_same = i == 0 && outputs[k].path && outputs[k].path == j->o.start.resume;
            if (outputs[i].path && outputs[k].path && !may_be_same &&
                td_path_is_same(outputs[i].path, outputs[k].path))
                return td_error(TD_EUSAGE, "'%s' is used for both %s and %s", outputs[i].path,
                                outputs[i].what, outputs[k].what);
        }
    return TD_OK;
}

/* NULL: none; a run that saves nothing writes a report only if a file is named. */
static const char *report_name(const td_train_opts *o)
{
    if (o->report.file)
        return o->report.file;
    return !o->output.save_checkpoints && !o->launch.keeps_report ? NULL : TD_REPORT_NAME;
}

/* A run that saves nothing writes the list of bad images only to a folder that was named. */
static bool has_bad_list(const td_train_opts *o)
{
    return o->output.save_checkpoints || o->output.workspace;
}

/* Does this run not write the file number `path`? */
static bool is_absent(const td_train_opts *o, int path)
{
    return (path == TD_PATH_REPORT && !report_name(o)) || (path == TD_PATH_BAD && !has_bad_list(o));
}

/* Does the report have its default name? */
static bool is_report_default(const td_train_opts *o)
{
    const char *name = report_name(o);
    return name && strcmp(name, TD_REPORT_NAME) == 0;
}

/* NULL: no report, or no memory */
static char *report_path(const td_train_job *j)
{
    const char *const name = report_name(&j->o);
    if (!name)
        return NULL;
    if (j->files.is_folder_fresh && strcmp(name, TD_REPORT_NAME) != 0)
        return td_copy_text(name);
    return td_path_join(j->files.folder, name);
}

td_status td_workspace_name(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    TD_TRY(choose_folder(j));
    for (int i = 0; i < TD_PATHS; i++)
        td_free(j->files.path[i]);
    j->files.path[TD_PATH_CHECKPOINT] =
        td_path_join(j->files.folder, o->output.checkpoint_filename);
    j->files.path[TD_PATH_BEST] = td_path_join(j->files.folder, "model_best.safetensors");
    j->files.path[TD_PATH_REPORT] = report_path(j);
    j->files.path[TD_PATH_BAD] = has_bad_list(o) ? td_path_join(j->files.folder, "bad.list") : NULL;
    j->files.path[TD_PATH_LOCK] = td_path_join(j->files.folder, TD_LOCK_NAME);
    j->files.path[TD_PATH_CONFIG] = td_path_join(j->files.folder, "config.yaml");
    for (int i = 0; i < TD_PATHS; i++)
        if (!j->files.path[i] && !is_absent(o, i))
            return TD_ENOMEM;
    return check_paths(j);
}

/* --- whose files ------------------------------------------------------------------------------ */

/* Was this config.yaml written by a training run? */
static bool is_config_ours(const char *path)
{
    char *text;
    size_t n;
    bool is_ours = td_file_read(path, (size_t)1 << 20, &text, &n) == TD_OK;
    if (is_ours) {
        is_ours = td_text_starts(text, CONFIG_HEAD);
        td_free(text);
    }
    td_error_clear();
    return is_ours;
}

/*
 * A file of another run in the folder, or NULL.  A run with weights is not replaced; one without
 * weights ended before its first checkpoint and may be started again.
 */
static const char *weights_of_run(const td_train_job *j)
{
    for (int i = TD_PATH_CHECKPOINT; i <= TD_PATH_BEST; i++)
        if (td_path_is_file(j->files.path[i]))
            return j->files.path[i];
    return NULL;
}

static const char *report_of_run(const td_train_job *j)
{
    const char *path = j->files.path[TD_PATH_REPORT];
    if (path && is_report_default(&j->o) && td_path_is_file(path))
        return path;
    return is_config_ours(j->files.path[TD_PATH_CONFIG]) ? j->files.path[TD_PATH_CONFIG] : NULL;
}

/* Does this run continue the run in its folder? */
static td_status find_continued(const td_train_job *j, bool *out)
{
    *out = false;
    if (!j->o.start.resume)
        return TD_OK;
    char *folder = folder_of(j->o.start.resume);
    if (!folder)
        return TD_ENOMEM;
    *out = td_path_is_same(folder, j->files.folder);
    td_free(folder);
    return TD_OK;
}

static td_status check_free(const td_train_job *j)
{
    bool is_continued;
    const char *weights = weights_of_run(j), *report = report_of_run(j);
    TD_TRY(find_continued(j, &is_continued));
    if (is_continued || j->restart.checkpoint || !(weights || report))
        return TD_OK;
    if (weights && !j->files.may_overwrite)
        return td_error(
            TD_EARG,
            "'%s' already contains a run, see '%s': choose another --workspace, continue that run "
            "with --resume CHECKPOINT, or replace it with --overwrite",
            j->files.folder, weights);
    if (!j->files.may_overwrite)
        td_log(TD_LOG_WARN, "train", "replacing '%s' of a run that saved no weights", report);
    /* it would be taken for this run's best until this run has validated */
    if (unlink(j->files.path[TD_PATH_BEST]) != 0 && td_path_exists(j->files.path[TD_PATH_BEST]))
        return td_error_errno(TD_EIO, "cannot remove '%s'", j->files.path[TD_PATH_BEST]);
    return TD_OK;
}

/*
 * A folder from somebody else may contain a link under the report's name, and the report is
 * appended to; all other files of the workspace are replaced, and the lock is not opened through a
 * link.
 */
static td_status check_report(const td_train_job *j)
{
    struct stat s;
    const char *path = j->files.path[TD_PATH_REPORT];
    if (!path || !is_report_default(&j->o) || lstat(path, &s) != 0 || S_ISREG(s.st_mode))
        return TD_OK;
    return td_error(TD_EIO,
                    "'%s' is not a regular file: refusing to write the report; name another file "
                    "with --raport-file",
                    path);
}

/* --- opening ---------------------------------------------------------------------------------- */

/*
 * Runs that begin at the same time find the same free number; only one of them creates the folder,
 * the others choose again.
 */
static td_status make_fresh(td_train_job *j)
{
    bool is_new = false;
    TD_TRY(td_make_folder(FRESH));
    while (!is_new) {
        TD_TRY(td_make_new_folder(j->files.folder, &is_new));
        if (!is_new)
            TD_TRY(td_workspace_name(j));
    }
    return TD_OK;
}

td_status td_workspace_open(td_train_job *j)
{
    const bool is_to_make = j->files.is_folder_fresh && !j->restart.folder;
    if (j->ranks.rank > 0)
        return TD_OK;
    const bool is_new = is_to_make || !td_path_exists(j->files.folder);
    TD_TRY(is_to_make ? make_fresh(j) : td_make_folder(j->files.folder));
    j->files.is_folder_new = is_new;
    TD_TRY(check_report(j));
    if (!td_train_writes(j))
        return TD_OK;
    TD_TRY(td_lock_open(j->files.folder, &j->files.lock));
    TD_TRY(check_free(j));
    td_log(TD_LOG_INFO, "train",
           j->s.epoch < j->o.length.epochs ? "writing the files of this run to '%s'"
                                           : "the files of this run are in '%s'",
           j->files.folder);
    return TD_OK;
}

void td_workspace_discard(td_train_job *j)
{
    const char *report = j->files.path[TD_PATH_REPORT];
    if (!j->files.is_folder_new || j->run.batches > 0 || *j->out->checkpoint ||
        j->files.bad.n_written > 0 || td_restart_is_possible())
        return;
    (void)unlink(j->files.path[TD_PATH_CONFIG]);
    if (report && is_report_default(&j->o))
        (void)unlink(report);
    td_lock_close(j->files.lock);
    j->files.lock = NULL;
    (void)rmdir(j->files.folder); /* fails if it is not empty */
}

td_status td_workspace_write_config(const td_train_job *j)
{
    const char *path = j->files.path[TD_PATH_CONFIG];
    td_text file = { 0 };
    char *yaml;
    if (td_path_exists(path) && !is_config_ours(path)) {
        td_log(TD_LOG_WARN, "train",
               "'%s' was written by another program: not writing the configuration", path);
        return TD_OK;
    }
    const td_train_opts whole = td_train_undivided(j);
    TD_TRY(td_train_config_yaml(&whole, &yaml));
    td_text_add(&file, CONFIG_HEAD "%s", yaml);
    td_status st = td_text_status(&file);
    if (st == TD_OK)
        st = td_atomic_save(path, file.data, file.len);
    td_text_release(&file);
    td_text_free(yaml);
    return st;
}
