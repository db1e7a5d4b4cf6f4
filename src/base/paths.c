/*
 * paths.c -- tests, joins and compares paths; makes folders
 */
#include "base/paths.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

bool td_path_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* stats the folder that contains `path` */
static bool folder_of(const char *path, struct stat *out)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= sizeof folder)
        return false;
    memcpy(folder, path, n);
    folder[n] = '\0';
    return stat(n ? folder : ".", out) == 0;
}

bool td_path_is_same(const char *a, const char *b)
{
    struct stat x, y;
    bool has_a = stat(a, &x) == 0, has_b = stat(b, &y) == 0;
    if (strcmp(a, b) == 0)
        return true;
    if (has_a != has_b)
        return false;
    if (!has_a &&
        (strcmp(td_path_base(a), td_path_base(b)) != 0 || !folder_of(a, &x) || !folder_of(b, &y)))
        return false;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool td_path_is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool td_path_is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static td_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return TD_OK;
    const int reason = errno; /* stat() below overwrites errno */
    if (td_path_is_folder(path))
        return TD_OK;
    if (reason == EEXIST)
        return td_error(TD_EIO, "'%s' is a file, wanted a folder", path);
    errno = reason;
    return td_error_errno(TD_EIO, "cannot create folder '%s'", path);
}

td_status td_make_new_folder(const char *path, bool *is_new)
{
    *is_new = mkdir(path, 0777) == 0;
    return *is_new || errno == EEXIST ? TD_OK
                                      : td_error_errno(TD_EIO, "cannot create folder '%s'", path);
}

td_status td_make_folder(const char *path)
{
    if (*path == '\0')
        return td_error(TD_EARG, "the name of a folder is empty");
    char *part = td_copy_text(path);
    if (!part)
        return TD_ENOMEM;
    td_status st = TD_OK;
    for (char *p = part + 1; st == TD_OK; p++) {
        char kept = *p;
        if (kept != '/' && kept != '\0')
            continue;
        *p = '\0';
        st = make_one(part);
        *p = kept;
        if (kept == '\0')
            break;
    }
    td_free(part);
    return st;
}

char *td_path_join(const char *a, const char *b)
{
    if (*a == '\0' || *b == '/')
        return td_copy_text(b);
    size_t n = strlen(a), m = strlen(b);
    bool has_slash = a[n - 1] == '/';
    char *path = td_alloc(n + m + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, a, n);
    path[n] = '/';
    memcpy(path + n + !has_slash, b, m + 1);
    return path;
}

char *td_path_append(td_arena *a, const char *folder, const char *name)
{
    size_t n = strlen(folder), m = strlen(name);
    char *path = td_arena_alloc(a, n + m + 2, 1);
    if (!path)
        return NULL;
    memcpy(path, folder, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m + 1);
    return path;
}

const char *td_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
