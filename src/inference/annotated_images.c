/*
 * annotated_images.c -- writes images with boxes drawn on them
 *
 * All names are chosen in advance.  If a file of such a name exists, it must not be one of the
 * images, by any path: files are compared by device and inode.
 */
#include "inference/annotated_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/paths.h"
#include "base/text.h"
#include "io/atomic.h"

enum { JPEG_QUALITY = 92, NAME_BYTES = 4096 };

struct td_annotated_images {
    const td_dataset *ds;
    const char *folder;
    td_arena arena; /* paths and folder */
    int64_t n;
    const char **paths; /* [n] paths of the drawn images */
    td_image image;     /* the current image, reused */
    td_text encoded;
};

/* --- names ------------------------------------------------------------------------------------ */

/* The path relative to the data set's folder, or its last part. */
static const char *name_of(const td_dataset *ds, int64_t sample, bool keeps_folders)
{
    const char *path = td_dataset_path(ds, sample), *root = td_dataset_root(ds);
    const size_t n = keeps_folders ? strlen(root) : 0;
    if (n && strncmp(path, root, n) == 0 && path[n] == '/')
        return path + n + 1;
    return td_path_base(path);
}

/*
 * "beach.jpeg", or "beach.2.jpeg" for a second image with that name; .png replaces formats that
 * cannot be written.
 */
static td_status choose_name(td_map *taken, const char *name, char *out, size_t n)
{
    const char *base = td_path_base(name), *dot = strrchr(base, '.');
    const int stem = (int)(dot && dot != base ? dot - name : (ptrdiff_t)strlen(name));
    const bool is_kept = dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                                 strcasecmp(dot, ".png") == 0);
    const char *ending = is_kept ? dot : ".png";
    int len = snprintf(out, n, "%.*s%s", stem, name, ending);
    for (int i = 2; td_map_has(taken, out); i++)
        len = snprintf(out, n, "%.*s.%d%s", stem, name, i, ending);
    if (len < 0 || (size_t)len >= n)
        return td_error(TD_ELIMIT, "--draw: the name '%s' is longer than %zu bytes", name, n - 16);
    return td_map_set(taken, out, taken);
}

static td_status choose_names(td_annotated_images *m, bool keeps_folders)
{
    td_status st = TD_OK;
    char name[NAME_BYTES];
    td_map taken = { 0 };
    for (int64_t i = 0; i < m->n; i++) {
        char *path = NULL;
        TD_OUT(choose_name(&taken, name_of(m->ds, i, keeps_folders), name, sizeof name));
        path = td_path_join(m->folder, name);
        if (path)
            m->paths[i] = td_arena_text(&m->arena, path);
        td_free(path);
        if (!m->paths[i])
            TD_OUT(TD_ENOMEM);
    }
out:
    td_map_release(&taken);
    return st;
}

/* --- files that would be overwritten ---------------------------------------------------------- */

typedef struct {
    dev_t device;
    ino_t inode;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static bool find_place(const char *path, place *out)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return false;
    *out = (place){ s.st_dev, s.st_ino };
    return true;
}

/* Are both paths the same, even if no file exists yet?  A missing image may be created later. */
static bool is_same_path(const td_annotated_images *m, int64_t i)
{
    return td_path_is_same(m->paths[i], td_dataset_path(m->ds, i));
}

static td_status check(const td_annotated_images *m)
{
    td_status st = TD_OK;
    size_t n = 0;
    place at, *there = td_alloc((size_t)m->n + 1, sizeof *there);
    if (!there)
        return TD_ENOMEM;
    for (int64_t i = 0; i < m->n; i++) {
        if (is_same_path(m, i))
            TD_OUT(
                td_error(TD_EARG, "--draw: '%s' would be overwritten", td_dataset_path(m->ds, i)));
        n += find_place(m->paths[i], &there[n]);
    }
    qsort(there, n, sizeof *there, by_place);
    for (int64_t i = 0; n && i < td_dataset_count(m->ds); i++) {
        const char *path = td_dataset_path(m->ds, i);
        if (find_place(path, &at) && bsearch(&at, there, n, sizeof *there, by_place))
            TD_OUT(td_error(TD_EARG, "--draw: '%s' would be overwritten", path));
    }
out:
    td_free(there);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

td_status td_annotated_images_new(const td_dataset *ds, const char *folder, bool keeps_folders,
                                  int64_t n, td_annotated_images **out)
{
    td_status st = TD_OK;
    *out = NULL;
    td_annotated_images *m = TD_NEW(td_annotated_images);
    if (!m)
        return TD_ENOMEM;
    td_arena_init(&m->arena);
    m->ds = ds;
    m->n = n;
    m->folder = td_arena_text(&m->arena, folder);
    m->paths = td_alloc((size_t)n + 1, sizeof *m->paths);
    if (!m->folder || !m->paths)
        TD_OUT(TD_ENOMEM);
    TD_OUT(choose_names(m, keeps_folders));
    TD_OUT(check(m));
    *out = m;
    m = NULL;
out:
    td_annotated_images_free(m);
    return st;
}

void td_annotated_images_free(td_annotated_images *m)
{
    if (!m)
        return;
    td_image_release(&m->image);
    td_text_release(&m->encoded);
    td_free(m->paths);
    td_arena_release(&m->arena);
    td_free(m);
}

static td_status make_folder_of(const char *path)
{
    const size_t n = (size_t)(td_path_base(path) - path);
    char *folder = td_copy_text(path);
    if (!folder)
        return TD_ENOMEM;
    if (n)
        folder[n - 1] = '\0';
    const td_status st = n > 1 ? td_make_folder(folder) : TD_OK;
    td_free(folder);
    return st;
}

td_status td_annotated_images_save(td_annotated_images *m, int64_t sample, const void *bytes,
                                   size_t n_bytes, bool stored_orientation,
                                   const td_overlay_box *boxes, size_t n_boxes, const char **path)
{
    const td_decode_opts how = { .stored_orientation = stored_orientation };
    const char *out = m->paths[sample];
    *path = NULL;
    TD_TRY_MSG(td_image_decode(bytes, n_bytes, &how, &m->image, NULL), "'%s'",
               td_dataset_path(m->ds, sample));
    td_image_draw_overlay(&m->image, boxes, n_boxes, &(td_overlay_opts){ 0 });
    m->encoded.len = 0;
    TD_TRY_MSG(td_image_encode(&m->image, out, JPEG_QUALITY, &m->encoded), "'%s'", out);
    TD_TRY(make_folder_of(out));
    TD_TRY(td_atomic_save(out, m->encoded.data, m->encoded.len));
    *path = out;
    return TD_OK;
}
