/*
 * weights.c -- renaming, checking, copying of weights
 */
#include "train/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "train/network.h"

#define TRACKED ".num_batches_tracked"

/* replace the first `from` in `s` (room for 256 bytes) by `to` */
static void replace(char *s, const char *from, const char *to)
{
    char rest[256];
    char *at = strstr(s, from);
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, 256 - (size_t)(at - s), "%s%s", to, rest);
}

void td_weight_name(const char *name, char out[256])
{
    const char *velocity = "";
    if (td_text_starts(name, TD_MOMENTUM_PREFIX)) {
        velocity = TD_MOMENTUM_PREFIX;
        name += strlen(TD_MOMENTUM_PREFIX);
    }
    if (td_text_starts(name, "module."))
        name += strlen("module.");
    if (td_text_starts(name, "1."))
        name += strlen("1.");
    snprintf(out, 256, "%s%s", velocity, name);
    char *stage = strstr(out, "layers.");
    if (stage == out + strlen(velocity) && stage[7] >= '0' && stage[7] <= '3' && stage[8] == '.') {
        char from[10], to[10];
        snprintf(from, sizeof from, "layers.%c.", stage[7]);
        snprintf(to, sizeof to, "layer%c.", stage[7] + 1);
        replace(out, from, to);
    }
    replace(out, ".squeeze.squeeze.", ".se.fc1.");
    replace(out, ".squeeze.expand.", ".se.fc2.");
}

/* --- loading ---------------------------------------------------------------------------------- */

static bool is_skipped(const td_load_opts *o, const char *name)
{
    if (td_text_starts(name, TD_MOMENTUM_PREFIX)) {
        if (!o->with_momentum)
            return true;
        name += strlen(TD_MOMENTUM_PREFIX);
    }
    return o->skip_prefix && td_text_starts(name, o->skip_prefix);
}

static void print_shape(const int64_t *dim, int rank, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, i ? ",%lld" : "%lld", (long long)dim[i]);
    if (n < room)
        snprintf(out + n, room - n, "]");
}

/* equal, or equal but for ones at the end: [D, C] and [D, C, 1, 1] */
static bool shape_fits(const td_tensor *t, const td_type *type)
{
    for (int i = 0; i < t->rank || i < type->rank; i++) {
        int64_t a = i < t->rank ? t->dim[i] : 1, b = i < type->rank ? type->dim[i] : 1;
        if (a != b)
            return false;
    }
    return true;
}

static td_status check_tensor(const td_tensor *t, const td_type *type, const char *name,
                              const char *path)
{
    char has[96], wants[96];
    if (!shape_fits(t, type)) {
        print_shape(t->dim, t->rank, has, sizeof has);
        print_shape(type->dim, type->rank, wants, sizeof wants);
        return td_error(TD_EFORMAT, "'%s': tensor '%s' is %s, the network wants %s", path, name,
                        has, wants);
    }
    if (t->dtype != type->dtype)
        return td_error(TD_EFORMAT, "'%s': tensor '%s' is %s, the network wants %s", path, name,
                        td_dtype_name(t->dtype), td_dtype_name(type->dtype));
    return TD_OK;
}

static td_status index_file(const td_tensors *t, const char *path, td_map *map)
{
    char name[256];
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        td_weight_name(x->name, name);
        if (td_map_has(map, name))
            return td_error(TD_EFORMAT, "'%s': two tensors mean '%s'", path, name);
        TD_TRY(td_map_set(map, name, (void *)(uintptr_t)x));
    }
    return TD_OK;
}

static td_status check_all(const td_map *map, const char *path, const td_load_opts *o,
                           const td_program *p)
{
    td_map wanted = { 0 };
    td_status st = TD_OK;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type type = td_program_param_type(p, i);
        const td_tensor *t = td_map_get(map, name);
        TD_OUT(td_map_set(&wanted, name, NULL));
        if (is_skipped(o, name))
            continue;
        if (!t)
            TD_OUT(td_error(TD_EFORMAT, "'%s' has no tensor '%s'", path, name));
        TD_OUT(check_tensor(t, &type, name, path));
    }
    for (size_t i = 0; i < map->n; i++) {
        const char *name = map->entries[i].key;
        if (!td_map_has(&wanted, name) && !is_skipped(o, name) && !td_text_ends(name, TRACKED))
            TD_OUT(td_error(TD_EFORMAT, "'%s': the network has no parameter '%s'", path, name));
    }
out:
    td_map_release(&wanted);
    return st;
}

td_status td_weights_load(const td_tensors *t, const char *path, const td_load_opts *opts,
                          td_program *p)
{
    td_load_opts none = { 0 };
    const td_load_opts *o = opts ? opts : &none;
    td_map map = { 0 };
    td_status st = TD_OK;
    TD_OUT(index_file(t, path, &map));
    TD_OUT(check_all(&map, path, o, p));
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_tensor *x = td_map_get(&map, name);
        if (!is_skipped(o, name))
            TD_OUT(td_program_set(p, name, x->data));
    }
out:
    td_map_release(&map);
    return st;
}

int64_t td_weights_batches(const td_tensors *t)
{
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        int64_t n = 0;
        if (td_text_ends(x->name, TRACKED) && x->dtype == TD_DT_I64 && x->n_bytes == sizeof n) {
            memcpy(&n, x->data, sizeof n);
            return n;
        }
    }
    return 0;
}

int td_weights_classes(const td_tensors *t)
{
    char name[256];
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        td_weight_name(x->name, name);
        if (strcmp(name, "fc.weight") == 0 && x->rank == 2 && x->dim[0] <= 1 << 24)
            return (int)x->dim[0];
    }
    return 0;
}

/* --- saving ----------------------------------------------------------------------------------- */

static td_status save_tracked(td_tensors *t, const char *running_var, int64_t batches)
{
    char name[300];
    void *data;
    int n = (int)(strlen(running_var) - strlen(".running_var"));
    snprintf(name, sizeof name, "%.*s" TRACKED, n, running_var);
    TD_TRY(td_tensors_add_new(t, name, TD_DT_I64, 0, NULL, &data));
    memcpy(data, &batches, sizeof batches);
    return TD_OK;
}

td_status td_weights_save(td_program *p, bool with_momentum, int64_t batches_tracked, td_tensors *t)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type type = td_program_param_type(p, i);
        void *data;
        if (!with_momentum && strcmp(td_program_param_role(p, i), "momentum") == 0)
            continue;
        TD_TRY(td_tensors_add_new(t, name, type.dtype, type.rank, type.dim, &data));
        TD_TRY(td_program_get(p, name, data));
        if (td_text_ends(name, ".running_var"))
            TD_TRY(save_tracked(t, name, batches_tracked));
    }
    return TD_OK;
}

td_status td_weights_share(td_program *from, td_program *to)
{
    td_status st = TD_OK;
    int64_t most = 0;
    for (int i = 0; i < td_program_param_count(to); i++) {
        const td_type t = td_program_param_type(to, i);
        int64_t bytes = td_type_count(&t) * (int64_t)td_dtype_bytes(t.dtype);
        most = bytes > most ? bytes : most;
    }
    void *buffer = td_alloc((size_t)most, 1);
    if (!buffer)
        return TD_ENOMEM;
    for (int i = 0; i < td_program_param_count(to); i++) {
        const char *name = td_program_param_name(to, i);
        TD_OUT(td_program_get(from, name, buffer));
        TD_OUT(td_program_set(to, name, buffer));
    }
out:
    td_free(buffer);
    return st;
}

/* --- class names ------------------------------------------------------------------------------ */

td_status td_classes_to_json(int n, const char *const *names, td_text *out)
{
    td_text_add(out, "[");
    for (int i = 0; i < n; i++) {
        td_text_add(out, i ? ", \"" : "\"");
        td_text_add_json(out, names[i]);
        td_text_add(out, "\"");
    }
    td_text_add(out, "]");
    return td_text_status(out);
}

void td_classes_free(int n, char **names)
{
    for (int i = 0; names && i < n; i++)
        td_free(names[i]);
    td_free(names);
}

td_status td_classes_from_json(const char *json, const char *path, int *n, char ***names)
{
    td_json *doc = NULL;
    td_status st = TD_OK;
    *n = 0;
    *names = NULL;
    if (!json)
        return TD_OK;
    TD_OUT(td_json_parse(json, strlen(json), path, &doc));
    size_t count = td_json_count(doc);
    if (td_json_kind_of(doc) != TD_JSON_ARRAY || count > 1 << 24)
        TD_OUT(td_error(TD_EFORMAT, "'%s': its class names are no list", path));
    *names = td_alloc(count + 1, sizeof **names);
    if (!*names)
        TD_OUT(TD_ENOMEM);
    for (size_t i = 0; i < count; i++) {
        const char *name;
        TD_OUT(td_json_as_text(td_json_at(doc, i), &name));
        (*names)[i] = td_copy_text(name);
        if (!(*names)[i])
            TD_OUT(TD_ENOMEM);
        *n = (int)i + 1;
    }
out:
    td_json_free(doc);
    if (st == TD_OK)
        return TD_OK;
    td_classes_free(*n, *names);
    *names = NULL;
    *n = 0;
    return st;
}
