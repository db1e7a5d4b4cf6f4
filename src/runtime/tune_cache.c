/* tune_cache.c -- see tune_cache.h */
#include "runtime/tune_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"
#include "io/atomic.h"

#define FIRST_LINE "tandem-tune 1\n"

enum { FILE_BYTES_MAX = 64 << 20 };

struct td_tune_cache {
    char *path, *machine;
    td_map map; /* key -> double, in the arena */
    td_arena arena;
    bool is_dirty;
};

bool td_tune_cache_is_empty(const td_tune_cache *c)
{
    return c->map.n == 0;
}

bool td_tune_cache_get(const td_tune_cache *c, const char *key, double *out)
{
    const double *value = td_map_get(&c->map, key);
    if (value)
        *out = *value;
    return value != NULL;
}

static td_status put(td_tune_cache *c, const char *key, double value)
{
    double *had = td_map_get(&c->map, key);
    if (!had) {
        had = td_arena_alloc(&c->arena, 1, sizeof *had);
        if (!had)
            return TD_ENOMEM;
        TD_TRY(td_map_set(&c->map, key, had));
    }
    *had = value;
    return TD_OK;
}

td_status td_tune_cache_put(td_tune_cache *c, const char *key, double value)
{
    c->is_dirty = true;
    return put(c, key, value);
}

/* --- reading ---------------------------------------------------------------------------------- */

static td_status damaged(const td_tune_cache *c, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': %s", c->path, what);
}

/* the next line, which is cut off the text; NULL: no complete line */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

/* cuts off the file's last line; false if its hash differs from that of the text before it */
static bool check_end(char *text)
{
    const size_t n = strlen(text);
    char *last = n > 1 ? text + n - 1 : text, wanted[32];
    while (last > text && last[-1] != '\n')
        last--;
    char found[32];
    (void)snprintf(found, sizeof found, "%.24s", last);
    *last = '\0';
    (void)snprintf(wanted, sizeof wanted, "end %016" PRIx64 "\n", td_hash_text(text));
    return strcmp(found, wanted) == 0;
}

static td_status parse(td_tune_cache *c, char *text)
{
    char *line, *space;
    double value;
    if (!td_text_starts(text, FIRST_LINE))
        return damaged(c, "its first line is not 'tandem-tune 1'");
    if (!check_end(text))
        return damaged(c, "it is damaged: its last line does not match the others");
    char *at = text + strlen(FIRST_LINE);
    line = next_line(&at);
    if (!line || !td_text_starts(line, "machine "))
        return damaged(c, "the line 'machine' is missing");
    if (strcmp(line + strlen("machine "), c->machine) != 0)
        return td_error(TD_EFORMAT, "'%s' was measured on '%s', this machine is '%s'", c->path,
                        line + strlen("machine "), c->machine);
    while ((line = next_line(&at))) {
        space = strchr(line, ' ');
        if (!space)
            return damaged(c, "a line has no key");
        *space = '\0';
        if (!td_text_to_real(line, &value))
            return damaged(c, "a line has no number");
        TD_TRY(put(c, space + 1, value));
    }
    return TD_OK;
}

static void clear_cache(td_tune_cache *c)
{
    td_map_release(&c->map);
    td_arena_release(&c->arena);
    c->arena = (td_arena){ 0 };
}

static td_status read_file(td_tune_cache *c)
{
    char *text = NULL;
    size_t n;
    td_status st = td_file_read(c->path, FILE_BYTES_MAX, &text, &n);
    if (st == TD_OK)
        st = strlen(text) == n ? parse(c, text) : damaged(c, "it contains a zero byte");
    td_free(text);
    if (st == TD_OK || st == TD_ENOTFOUND)
        return TD_OK;
    clear_cache(c);
    if (st == TD_ENOMEM)
        return st;
    td_log(TD_LOG_WARN, "tune", "ignoring saved measurements: %s", td_error_message());
    return TD_OK;
}

td_status td_tune_cache_open(const char *path, const char *machine, td_tune_cache **out)
{
    td_status st = TD_ENOMEM;
    *out = NULL;
    td_tune_cache *c = TD_NEW(td_tune_cache);
    if (!c)
        return TD_ENOMEM;
    c->path = td_copy_text(path);
    c->machine = td_copy_text(machine);
    if (c->path && c->machine)
        st = *path ? read_file(c) : TD_OK;
    if (st == TD_OK)
        *out = c;
    else
        td_tune_cache_free(c);
    return st;
}

void td_tune_cache_free(td_tune_cache *c)
{
    if (!c)
        return;
    clear_cache(c);
    td_free(c->path);
    td_free(c->machine);
    td_free(c);
}

/* --- writing ---------------------------------------------------------------------------------- */

static td_status make_its_folder(const char *path)
{
    char *folder = td_copy_text(path);
    if (!folder)
        return TD_ENOMEM;
    char *slash = strrchr(folder, '/');
    td_status st = TD_OK;
    if (slash && slash != folder) {
        *slash = '\0';
        st = td_make_folder(folder);
    }
    td_free(folder);
    return st;
}

td_status td_tune_cache_save(td_tune_cache *c)
{
    td_text t = { 0 };
    if (!c->is_dirty || !*c->path)
        return TD_OK;
    td_text_add(&t, FIRST_LINE "machine %s\n", c->machine);
    for (size_t i = 0; i < c->map.n; i++)
        td_text_add(&t, "%.9g %s\n", *(const double *)c->map.entries[i].value,
                    c->map.entries[i].key);
    td_text_add(&t, "end %016" PRIx64 "\n", td_hash_text(td_text_get(&t)));
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = make_its_folder(c->path);
    if (st == TD_OK)
        st = td_atomic_save(c->path, t.data, t.len);
    td_text_release(&t);
    c->is_dirty = c->is_dirty && st != TD_OK;
    return st;
}

char *td_tune_cache_default(const char *machine)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool has_cache =
        cache && *cache == '/'; /* a relative one is invalid by the XDG specification */
    td_text t = { 0 };
    char *path = NULL;
    if (has_cache || (home && *home))
        td_text_add(&t, "%s%s/tandem/tune-%016" PRIx64 ".txt", has_cache ? cache : home,
                    has_cache ? "" : "/.cache", td_hash_text(machine));
    else
        td_text_add(&t, "%s", "");
    return td_text_take(&t, TD_OK, &path) == TD_OK ? path : NULL;
}
