/*
 * log.c -- log levels, the sink and the progress line under one lock
 *
 * A line is formatted before the lock is taken and written with one call, so lines of several
 * threads never mix.  The sink runs under the lock: it must not log.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

#define MODULE_BYTES   24
#define MAX_RULES      32
#define LINE_BYTES     1024 /* longer texts are allocated */
#define PROGRESS_BYTES 512
#define CLEAR_LINE     "\r\033[K"

typedef struct {
    char module[MODULE_BYTES];
    td_log_level level;
} rule;

typedef struct {
    td_log_level level; /* for modules without a rule */
    rule rules[MAX_RULES];
    int n_rules;
} levels;

static struct {
    pthread_mutex_t lock;
    void (*sink)(void *ctx, td_log_level, const char *module, const char *text);
    void *ctx;
    levels levels;
    char progress[PROGRESS_BYTES]; /* the text in the terminal's last line */
} logger = { .lock = PTHREAD_MUTEX_INITIALIZER, .levels = { .level = TD_LOG_INFO } };

static atomic_int loudest = TD_LOG_INFO; /* the highest level of any rule: read without the lock */

static const char *const level_names[] = { "error", "warn", "info", "debug", "trace" };
#define N_LEVELS ((int)(sizeof level_names / sizeof level_names[0]))

/* --- levels ---------------------------------------------------------------------------------- */

static td_status parse_level(const char *name, td_log_level *out)
{
    for (int i = 0; i < N_LEVELS; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (td_log_level)i;
            return TD_OK;
        }
    return td_error(TD_EUSAGE, "log level '%s' is not one of error, warn, info, debug, trace",
                    name);
}

static td_status parse_rule(levels *l, char *item)
{
    char *equals = strchr(item, '=');
    if (!equals)
        return parse_level(item, &l->level);
    *equals = '\0';
    if (*item == '\0' || strlen(item) >= MODULE_BYTES)
        return td_error(TD_EUSAGE, "log module '%s' has %zu letters, wanted 1 to %d", item,
                        strlen(item), MODULE_BYTES - 1);
    if (l->n_rules == MAX_RULES)
        return td_error(TD_EUSAGE, "more than %d log modules", MAX_RULES);
    rule *r = &l->rules[l->n_rules++];
    memcpy(r->module, item, strlen(item) + 1);
    return parse_level(equals + 1, &r->level);
}

td_status td_log_configure(const char *spec)
{
    levels l = { .level = TD_LOG_INFO };
    if (!spec)
        return TD_OK;
    char *copy = td_copy_text(spec);
    if (!copy)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (char *item = copy, *next; item && st == TD_OK; item = next) {
        next = strchr(item, ',');
        if (next)
            *next++ = '\0';
        st = parse_rule(&l, item);
    }
    td_free(copy);
    TD_TRY(st);

    int highest = (int)l.level;
    for (int i = 0; i < l.n_rules; i++)
        if ((int)l.rules[i].level > highest)
            highest = (int)l.rules[i].level;
    pthread_mutex_lock(&logger.lock);
    logger.levels = l;
    atomic_store(&loudest, highest);
    pthread_mutex_unlock(&logger.lock);
    return TD_OK;
}

bool td_log_wants(td_log_level level, const char *module)
{
    if ((int)level > atomic_load_explicit(&loudest, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&logger.lock);
    const levels *l = &logger.levels;
    td_log_level wanted = l->level;
    for (int i = 0; module && i < l->n_rules; i++)
        if (strcmp(l->rules[i].module, module) == 0)
            wanted = l->rules[i].level; /* the last matching rule counts */
    pthread_mutex_unlock(&logger.lock);
    return level <= wanted;
}

void td_log_set_sink(void (*sink)(void *ctx, td_log_level, const char *module, const char *text),
                     void *ctx)
{
    pthread_mutex_lock(&logger.lock);
    logger.sink = sink;
    logger.ctx = ctx;
    pthread_mutex_unlock(&logger.lock);
}

/* --- lines ----------------------------------------------------------------------------------- */

bool td_log_has_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static void write_all(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, bytes, n);
        if (done < 0 && errno != EINTR)
            return; /* no sink is left */
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        }
    }
}

/* the lock is held */
static void write_line(td_log_level level, const char *module, const char *text)
{
    bool on_terminal = td_log_has_terminal(), is_bad = level <= TD_LOG_WARN;
    bool in_colour = on_terminal && is_bad && !getenv("NO_COLOR");
    const char *paint = !in_colour ? "" : level == TD_LOG_ERROR ? "\033[1;31m" : "\033[1;33m";
    const char *word = level == TD_LOG_ERROR ? "error: " : "warning: ";
    bool has_module = module && *module;

    char small[2 * LINE_BYTES];
    for (char *line = small, *heap = NULL;; line = heap) {
        size_t room = line == small ? sizeof small : strlen(text) + sizeof small;
        int n = snprintf(line, room, "%s%s%s%s%s%s%s%s\n%s", logger.progress[0] ? CLEAR_LINE : "",
                         paint, is_bad ? "tandem: " : "", is_bad ? word : "",
                         in_colour ? "\033[0m" : "", has_module ? module : "",
                         has_module ? ": " : "", text, logger.progress);
        if (n >= 0 && (size_t)n >= room && !heap &&
            (heap = td_alloc(strlen(text) + sizeof small, 1)))
            continue;
        if (n >= 0)
            write_all(line, (size_t)n < room ? (size_t)n : room - 1);
        td_free(heap);
        return;
    }
}

/* messages contain file names: escape sequences and extra lines must not reach the terminal */
static void deliver(td_log_level level, const char *module, char *text, bool keeps_lines)
{
    td_text visible = { 0 };
    td_text_add_visible(&visible, text, keeps_lines);
    if (td_text_status(&visible) != TD_OK)
        td_text_make_printable(text);
    else
        text = visible.len ? visible.data : text;
    pthread_mutex_lock(&logger.lock);
    if (logger.sink)
        logger.sink(logger.ctx, level, module, text);
    else
        write_line(level, module, text);
    pthread_mutex_unlock(&logger.lock);
    td_text_release(&visible);
}

void td_log(td_log_level level, const char *module, const char *fmt, ...)
{
    if (!td_log_wants(level, module))
        return;
    int saved = errno;
    char small[LINE_BYTES], *heap = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof small && (heap = td_alloc((size_t)n + 1, 1))) { /* or truncate */
        va_start(ap, fmt);
        vsnprintf(heap, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    if (n >= 0)
        deliver(level, module, heap ? heap : small, strchr(fmt, '\n') != NULL);
    td_free(heap);
    errno = saved;
}

/* --- the progress line ----------------------------------------------------------------------- */

/* number of bytes that fit in `columns`; UTF-8 continuation bytes take no column */
static size_t fitting(const char *text, size_t columns)
{
    size_t i = 0;
    for (size_t used = 0; text[i]; i++) {
        used += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (used > columns)
            break;
    }
    return i;
}

void td_log_progress(const char *text)
{
    if (!td_log_has_terminal())
        return;
    struct winsize size = { 0 };
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    size_t columns = is_known ? size.ws_col - 1u : 79;

    pthread_mutex_lock(&logger.lock);
    char line[PROGRESS_BYTES + sizeof CLEAR_LINE];
    snprintf(logger.progress, sizeof logger.progress, "%s", text ? text : "");
    td_text_make_printable(logger.progress);
    logger.progress[fitting(logger.progress, columns)] = '\0';
    int n = snprintf(line, sizeof line, CLEAR_LINE "%s", logger.progress);
    write_all(line, (size_t)n);
    pthread_mutex_unlock(&logger.lock);
}
