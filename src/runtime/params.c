/*
 * params.c -- a program's inputs, outputs and parameters: exchange in plain order, and initial
 * values
 *
 * A parameter that is stored in half precision (amp level O3) is exchanged as float32: files and
 * callers see one type at any precision.
 */
#include <string.h>

#include "base/rng.h"
#include "ops/ops.h"
#include "runtime/emulate_half.h"
#include "runtime/program_parts.h"

/* elements drawn from one stream of random numbers: parts are drawn in parallel, with the same bits
   for any number of threads */
#define INIT_PART 65536

/* a copy of fewer elements takes less time than starting threads */
#define PARALLEL_COPY 65536

/* --- data in and out -------------------------------------------------------------------------- */

bool td_program_has_input(const td_program *p, const char *input)
{
    const td_value *v = td_graph_find(p->graph, input);
    return v && td_value_is_input(v);
}

td_status td_program_bind(td_program *p, const char *input, const void *data)
{
    td_value *v = td_graph_find(p->graph, input);
    if (!v || !td_value_is_input(v))
        return td_error(TD_ENOTFOUND, "the program has no input '%s'", input);
    if (!data)
        return td_error(TD_EARG, "input '%s': no data", input);
    if (p->bound)
        p->bound[v->id] = data;
    else
        memcpy(&p->address[v->id], &data, sizeof data);
    return TD_OK;
}

const void *td_program_output(const td_program *p, const char *name, td_type *type)
{
    const td_value *v = td_graph_output_value(p->graph, name);
    if (v && type) {
        *type = v->type;
        if (p->micro_batches > 1)
            type->dim[0] *= p->micro_batches;
    }
    if (!v)
        return NULL;
    return p->copied ? p->copied[v->id] : p->address[v->id];
}

int td_program_micro_batches(const td_program *p)
{
    return p->micro_batches;
}

int td_program_lanes(const td_program *p)
{
    return p->n_lanes;
}

int td_program_param_count(const td_program *p)
{
    return p->n_params;
}

const char *td_program_param_name(const td_program *p, int i)
{
    return i >= 0 && i < p->n_params ? p->params[i]->name : NULL;
}

static td_type outside_type(const td_type *t)
{
    td_type plain = td_type_plain(t);
    return td_dtype_is_half(t->dtype) ? td_type_as(&plain, TD_DT_F32) : plain;
}

td_type td_program_param_type(const td_program *p, int i)
{
    return i >= 0 && i < p->n_params ? outside_type(&p->params[i]->type) : (td_type){ 0 };
}

const char *td_program_param_role(const td_program *p, int i)
{
    static const char *const names[] = { "weight", "stat", "momentum" };
    const td_param_attr *a = i >= 0 && i < p->n_params ? p->params[i]->producer->attr : NULL;
    return a ? names[a->role] : NULL;
}

bool td_program_param_is_set(const td_program *p, int i)
{
    return i >= 0 && i < p->n_params && p->constant[p->params[i]->id]->is_set;
}

static td_status find_param(const td_program *p, const char *name, td_value **out)
{
    td_value *v = td_graph_find(p->graph, name);
    if (!v || !td_value_is_param(v))
        return td_error(TD_ENOTFOUND, "the program has no parameter '%s'", name);
    if (!p->address[v->id])
        return td_error(TD_EARG, "the memory of parameter '%s' was released", name);
    *out = v;
    return TD_OK;
}

/* counts a change of this parameter, for the setup of all programs that share it */
static td_status note_change(td_program *p, const td_value *v)
{
    if (p->constants->is_released)
        return td_error(TD_EARG, "parameter '%s' cannot change: others were released", v->name);
    p->constant[v->id]->is_set = true;
    p->constants->n_changes++;
    return TD_OK;
}

/* the offset contributed by index i of dimension d: an element's offset is the sum over its
   dimensions */
static int64_t part_offset(const td_blocking *bl, const td_type *t, int d, int64_t i)
{
    int64_t at[TD_RANK_MAX] = { 0 };
    at[d] = i;
    return td_blocking_offset(bl, t, at);
}

static void copy_elements(char *to, const char *from, size_t each)
{
    if (each == 4)
        memcpy(to, from, 4);
    else if (each == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, each);
}

/* a table of the offsets of all indices of every dimension, concatenated */
static td_status offset_table(const td_type *t, int64_t **table, int64_t *part[TD_RANK_MAX])
{
    td_blocking bl;
    int64_t n = 0;
    TD_CHECK(td_type_blocking(t, &bl));
    for (int d = 0; d < t->rank; d++)
        n += t->dim[d];
    TD_TRY(TD_ALLOC(*table, (size_t)n));
    int64_t *next = *table;
    for (int d = 0; d < t->rank; d++) {
        part[d] = next;
        for (int64_t i = 0; i < t->dim[d]; i++)
            *next++ = part_offset(&bl, t, d, i);
    }
    return TD_OK;
}

/* a copy between a parameter's own layout and plain order */
typedef struct {
    const td_type *type;
    int last; /* the innermost dimension of more than one index, or 0 */
    int64_t *part[TD_RANK_MAX];
    char *inside, *plain;
    bool to_plain;
} reorder;

/* the elements with index i in dimension 0 */
static void copy_slice(const reorder *c, int64_t i, size_t each)
{
    const int64_t *dim = c->type->dim, size = td_type_count(c->type) / dim[0];
    const int64_t n = c->last > 0 ? dim[c->last] : 1;
    const int64_t *offset = c->part[c->last] + (c->last > 0 ? 0 : i);
    int64_t at[TD_RANK_MAX] = { i };
    char *there = c->plain + (size_t)(i * size) * each;

    for (int64_t done = 0; done < size; done += n) {
        int64_t row = 0;
        for (int d = 0; d < c->last; d++)
            row += c->part[d][at[d]];
        for (int64_t k = 0; k < n; k++, there += each) {
            char *here = c->inside + (size_t)(row + offset[k]) * each;
            copy_elements(c->to_plain ? there : here, c->to_plain ? here : there, each);
        }
        for (int d = c->last - 1; d > 0 && ++at[d] == dim[d]; d--)
            at[d] = 0;
    }
}

static td_status copy_param(const td_value *v, char *inside, char *plain, bool to_plain)
{
    const td_type *t = &v->type;
    size_t each = td_dtype_bytes(t->dtype);
    int64_t n = td_type_count(t), *table;

    if (td_type_is_plain(t)) {
        memcpy(to_plain ? plain : inside, to_plain ? inside : plain, (size_t)n * each);
        return TD_OK;
    }
    reorder c = {
        .type = t, .last = t->rank - 1, .inside = inside, .plain = plain, .to_plain = to_plain
    };
    TD_TRY(offset_table(t, &table, c.part));
    while (c.last > 0 && t->dim[c.last] == 1)
        c.last--;
#pragma omp parallel for if (n > PARALLEL_COPY)
    for (int64_t i = 0; i < t->dim[0]; i++)
        copy_slice(&c, i, each);
    td_free(table);
    return TD_OK;
}

/* copy_param, through host memory if the parameter is elsewhere */
static td_status move_param(td_program *p, const td_value *v, char *plain, bool to_plain)
{
    const size_t n = (size_t)td_type_bytes(&v->type);
    void *inside = p->address[v->id];
    if (p->memory->is_host)
        return copy_param(v, inside, plain, to_plain);
    char *staged = td_alloc(n, 1);
    if (!staged)
        return TD_ENOMEM;
    td_status st = to_plain ? p->memory->copy_out(staged, inside, n) : TD_OK;
    if (st == TD_OK)
        st = copy_param(v, staged, plain, to_plain);
    if (st == TD_OK && !to_plain)
        st = p->memory->copy_in(inside, staged, n);
    td_free(staged);
    return st;
}

/* copy between a parameter and the caller's plain float32 (float64) data */
static td_status exchange(td_program *p, const td_value *v, char *outside, bool to_outside)
{
    const td_dtype d = v->type.dtype;
    const int64_t n = td_type_count(&v->type);
    if (!td_dtype_is_half(d))
        return move_param(p, v, outside, to_outside);
    uint16_t *half = td_alloc((size_t)n, sizeof *half);
    if (!half)
        return TD_ENOMEM;
    if (!to_outside)
        td_emulate_half_convert(TD_DT_F32, outside, d, half, n);
    td_status st = move_param(p, v, (char *)half, to_outside);
    if (st == TD_OK && to_outside)
        td_emulate_half_convert(d, half, TD_DT_F32, outside, n);
    td_free(half);
    return st;
}

td_status td_program_get(td_program *p, const char *param, void *data)
{
    td_value *v;
    TD_TRY(find_param(p, param, &v));
    return exchange(p, v, data, true);
}

td_status td_program_set(td_program *p, const char *param, const void *data)
{
    td_value *v;
    char *from;
    TD_TRY(find_param(p, param, &v));
    memcpy(&from, &data, sizeof from);
    TD_TRY(note_change(p, v));
    return exchange(p, v, from, false);
}

/* --- initial values --------------------------------------------------------------------------- */

/* standard deviation of a standard normal distribution truncated at +-2 */
#define CUT_DEVIATION 0.87962566103423978

/* values beyond two deviations are drawn again; the result has deviation 1 */
static double draw_truncated(td_rng *r)
{
    double x;
    do
        x = td_rng_normal(r);
    while (x < -2 || x > 2);
    return x / CUT_DEVIATION;
}

static double draw(td_rng *r, const td_param_attr *a)
{
    switch ((td_init)a->init) {
    case TD_INIT_NORMAL:
        return a->scale * td_rng_normal(r);
    case TD_INIT_TRUNCATED_NORMAL:
        return a->scale * draw_truncated(r);
    case TD_INIT_UNIFORM:
        return a->scale * (2 * td_rng_uniform(r) - 1);
    case TD_INIT_ONES:
        return 1;
    case TD_INIT_CONSTANT:
        return a->scale;
    case TD_INIT_ZEROS:
        break;
    }
    return 0;
}

/* elements from .. to - 1; float64 begins with the same numbers as float32 */
static void draw_part(const td_value *v, uint64_t seed, int64_t from, int64_t to, char *plain)
{
    bool is_wide = v->type.dtype == TD_DT_F64;
    td_rng r = td_rng_make(seed, TD_RNG_INIT, td_hash_text(v->name), (uint64_t)(from / INIT_PART));
    for (int64_t i = from; i < to; i++) {
        float x = (float)draw(&r, v->producer->attr);
        double wide = x;
        if (is_wide)
            memcpy(plain + i * 8, &wide, 8);
        else
            memcpy(plain + i * 4, &x, 4);
    }
}

static td_status init_param(td_program *p, const td_value *v, uint64_t seed)
{
    int64_t n = td_type_count(&v->type);
    TD_TRY(note_change(p, v));
    if (!td_dtype_is_float(v->type.dtype))
        return td_error(TD_EUNSUPPORTED, "init of '%s': dtype %s", v->name,
                        td_dtype_name(v->type.dtype));
    if (((const td_param_attr *)v->producer->attr)->init == TD_INIT_ZEROS)
        return p->memory->fill(p->address[v->id], 0, (size_t)td_type_bytes(&v->type));
    const td_type outside = outside_type(&v->type);
    char *plain = td_alloc((size_t)n, td_dtype_bytes(outside.dtype));
    if (!plain)
        return TD_ENOMEM;
#pragma omp parallel for if (n > INIT_PART)
    for (int64_t i = 0; i < n; i += INIT_PART)
        draw_part(v, seed, i, i + INIT_PART < n ? i + INIT_PART : n, plain);
    td_status st = exchange(p, v, plain, false);
    td_free(plain);
    return st;
}

td_status td_program_init(td_program *p, uint64_t seed)
{
    for (int i = 0; i < p->n_params; i++)
        TD_TRY(init_param(p, p->params[i], seed));
    return TD_OK;
}
