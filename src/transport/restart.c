/*
 * restart.c -- the record of a run that can be started again, and the environment of its restart
 *
 *     record   "BATCH IMAGES STEPS FIRST_STEPS FIRST_EPOCHS IS_FRESH" NUL FOLDER NUL CHECKPOINT NUL
 *     ...      at RECORD_MAX + 2 N + E: 1 if start N has reported event E
 *
 * It is written by one pwrite over the record before it, so that a process that is killed meanwhile
 * leaves one or the other; what a longer record has left behind the last NUL is not read.
 */
#include "transport/restart.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

#define ENV_START      "TANDEM_RESTART" /* "RANKS FIRST_STEPS FIRST_EPOCHS IS_FRESH" */
#define ENV_FOLDER     "TANDEM_RESTART_FOLDER"
#define ENV_CHECKPOINT "TANDEM_RESTART_CHECKPOINT"

enum { NUMBERS = 6, RECORD_MAX = 2 * PATH_MAX + 200, STARTS_MAX = 1 << 20 };

/* reads n numbers with a blank between each two */
static bool read_numbers(const char *text, int n, int64_t *out)
{
    char word[32];
    for (int i = 0; i < n; i++) {
        const size_t len = strcspn(text, " ");
        if (len >= sizeof word)
            return false;
        memcpy(word, text, len);
        word[len] = '\0';
        if (!td_text_to_int(word, &out[i]))
            return false;
        text += len;
        if (i + 1 < n && *text++ != ' ')
            return false;
    }
    return *text == '\0';
}

static const char *text_of(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* --- in the run ------------------------------------------------------------------------------- */

td_status td_restart_here(td_restart *out)
{
    int64_t x[4];
    const char *start = text_of(ENV_START);
    *out = (td_restart){ .first_steps = -1, .first_epochs = -1 };
    if (!start)
        return TD_OK;
    if (!read_numbers(start, 4, x) || x[0] < 1 || x[0] > 4096 || x[1] < -1 || x[2] < -1)
        return td_error(TD_EUSAGE,
                        "environment: " ENV_START " is '%.80s', wanted four numbers: the ranks of "
                        "the first start, its steps and epochs, and 0 or 1",
                        start);
    *out = (td_restart){ .ranks = (int)x[0],
                         .first_steps = x[1],
                         .first_epochs = x[2],
                         .is_fresh = x[3] != 0,
                         .folder = text_of(ENV_FOLDER),
                         .checkpoint = text_of(ENV_CHECKPOINT) };
    return TD_OK;
}

bool td_restart_is_possible(void)
{
    const char *number = text_of(TD_ENV_RESTART_NUMBER);
    return text_of(TD_ENV_RESTART_RECORD) && !(number && strcmp(number, "0") == 0);
}

td_status td_restart_write(const td_restart_record *r)
{
    const char *path = text_of(TD_ENV_RESTART_RECORD);
    td_text text = { 0 };
    if (!path || !td_restart_is_possible())
        return TD_OK;
    td_text_add(&text, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d", r->batch,
                r->images, r->steps, r->first_steps, r->first_epochs, r->is_fresh);
    td_text_add_bytes(&text, "", 1);
    td_text_add_bytes(&text, r->folder, strlen(r->folder) + 1);
    td_text_add_bytes(&text, r->checkpoint, strlen(r->checkpoint) + 1);
    td_status st = td_text_status(&text);
    const int fd = st == TD_OK ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    if (st == TD_OK && (fd < 0 || pwrite(fd, text.data, text.len, 0) != (ssize_t)text.len))
        st = td_error_errno(TD_EIO, "cannot write the launcher's record '%s'", path);
    if (fd >= 0 && close(fd) != 0 && st == TD_OK)
        st = td_error_errno(TD_EIO, "cannot write the launcher's record '%s'", path);
    td_text_release(&text);
    return st;
}

/* --- events ---------------------------------------------------------------------------------- */

/* the record, open, and the place of this start's mark for an event; -1: there is none */
static int open_mark(td_restart_event event, int flags, off_t *at)
{
    const char *path = text_of(TD_ENV_RESTART_RECORD), *number = text_of(TD_ENV_RESTART_NUMBER);
    int64_t n;
    if (!path || !number || !td_text_to_int(number, &n) || n < 0 || n > STARTS_MAX)
        return -1;
    *at = RECORD_MAX + TD_RESTART_EVENTS * (off_t)n + (off_t)event;
    return open(path, flags | O_CLOEXEC);
}

void td_restart_report(td_restart_event event)
{
    const char one = 1;
    off_t at;
    const int fd = open_mark(event, O_WRONLY, &at);
    if (fd < 0)
        return;
    (void)!pwrite(fd, &one, 1, at);
    close(fd);
}

bool td_restart_has(td_restart_event event)
{
    char mark = 0;
    off_t at;
    const int fd = open_mark(event, O_RDONLY, &at);
    if (fd < 0)
        return false;
    const bool has = pread(fd, &mark, 1, at) == 1 && mark == 1;
    close(fd);
    return has;
}

/* --- in the launcher -------------------------------------------------------------------------- */

/* copies the text of the n bytes at `at` and returns its size with NUL; 0: it has no end */
static size_t take_text(const char *at, size_t n, char out[PATH_MAX])
{
    const size_t len = strnlen(at, n);
    if (len == n || len >= PATH_MAX)
        return 0;
    memcpy(out, at, len + 1);
    return len + 1;
}

static bool parse(const char *text, size_t n, td_restart_record *out)
{
    char numbers[PATH_MAX];
    int64_t x[NUMBERS];
    size_t at = take_text(text, n, numbers), len;
    if (at == 0 || !read_numbers(numbers, NUMBERS, x))
        return false;
    for (int i = 0; i < NUMBERS; i++)
        if (x[i] < (i < 2) || x[i] > INT64_C(1) << 60)
            return false;
    *out = (td_restart_record){ .batch = x[0],
                                .images = x[1],
                                .steps = x[2],
                                .first_steps = x[3],
                                .first_epochs = x[4],
                                .is_fresh = x[5] != 0 };
    len = take_text(text + at, n - at, out->folder);
    at += len;
    return len && take_text(text + at, n - at, out->checkpoint);
}

td_status td_restart_read(const char *path, td_restart_record *out, bool *has)
{
    td_status st = TD_OK;
    *has = false;
    char *text = td_alloc(RECORD_MAX, 1);
    const int fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    TD_OUT(text ? TD_OK : TD_ENOMEM);
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, RECORD_MAX, 0);
    if (n < 0)
        TD_OUT(
            td_error_errno(TD_EIO, "cannot read '%s', where the run records its position", path));
    *has = n > 0 && *text; /* a mark alone leaves zeros before it */
    if (*has && !parse(text, (size_t)n, out))
        st = td_error(TD_EFORMAT, "'%s' is not the record of a run", path);
out:
    if (fd >= 0)
        close(fd);
    td_free(text);
    return st;
}

td_status td_restart_export(const td_restart_record *r, int ranks)
{
    char start[100];
    snprintf(start, sizeof start, "%d %" PRId64 " %" PRId64 " %d", ranks, r ? r->first_steps : -1,
             r ? r->first_epochs : -1, r && r->is_fresh);
    const bool is_set = setenv(ENV_START, start, 1) == 0 &&
                        setenv(ENV_FOLDER, r ? r->folder : "", 1) == 0 &&
                        setenv(ENV_CHECKPOINT, r ? r->checkpoint : "", 1) == 0;
    return is_set ? TD_OK : TD_ENOMEM;
}

td_status td_restart_export_watch(const char *record)
{
    td_restart_clear();
    const bool is_set =
        setenv(TD_ENV_RESTART_RECORD, record, 1) == 0 && setenv(TD_ENV_RESTART_NUMBER, "0", 1) == 0;
    return is_set ? TD_OK : TD_ENOMEM;
}

void td_restart_clear(void)
{
    unsetenv(TD_ENV_RESTART_RECORD);
    unsetenv(TD_ENV_RESTART_NUMBER);
    unsetenv(ENV_START);
    unsetenv(ENV_FOLDER);
    unsetenv(ENV_CHECKPOINT);
}
