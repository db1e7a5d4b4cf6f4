/*
 * cudnn_plan.c -- engines for an operation graph: asked for, chosen, executed
 *
 * Heuristic mode A ranks the engine configurations by predicted time; the fallback list follows, of
 * engines that accept more but are slower.  The first configuration is kept that follows the
 * policy (float32 sums, TF32 only if allowed, determinism, workspace) and whose plan finalizes; the
 * others are remembered with the reason.
 *
 * Source: cuDNN "Graph API", section "Heuristics"; "Backend API", sections
 * "CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR", "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR",
 * "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR", "cudnnBackendNumericalNote_t"; without a device: cuDNN
 * frontend, "Deviceless Ahead-of-time Compilation".
 */
#include "backend/cuda/cudnn_graph.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn_parts.h"

enum { CONFIGS_MAX = 128, NOTES_MAX = 16, KNOBS_MAX = 24, JSON_VERSION = 90800 };

typedef struct {
    td_cudnn_plan *plan;
    const td_cudnn_conv *conv;
    const td_cudnn_target *target;
    td_descriptor graph, device; /* device is NULL with a handle */
    int n_passed_over;           /* for target->choice */
    int64_t workspace_limit;     /* 0: none */
    bool has_large;              /* an engine needs more */
} search;

/* an engine configuration */
typedef struct {
    int64_t engine;
    char knobs[TD_CUDNN_KNOBS];
    bool is_known;                /* its notes could be read */
    unsigned numerical, behavior; /* bit 1 << cudnnBackendNumericalNote_t, ...BehaviorNote_t */
} config_info;

/* --- one configuration ------------------------------------------------------------------------ */

/* fills at most n_max made descriptors; 0 after a failure */
static int64_t get_descriptors(td_descriptor from, cudnnBackendAttributeName_t name, int64_t n_max,
                               td_descriptor *values)
{
    int64_t n = 0;
    if (td_cudnn.get(from, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_max, &n, values))
        return 0;
    return n < n_max ? n : n_max;
}

/* notes of an engine as bits; unknown ones have no bit; false: they cannot be read */
static bool get_notes(td_descriptor engine, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, unsigned *bits)
{
    int notes[NOTES_MAX]; /* both enums are ints */
    int64_t n = 0;
    *bits = 0;
    if (td_cudnn.get(engine, name, type, NOTES_MAX, &n, notes))
        return false;
    for (int64_t i = 0; i < n && i < NOTES_MAX; i++)
        *bits |= notes[i] >= 0 && notes[i] < 32 ? 1u << notes[i] : 0;
    return true;
}

/* by cudnnBackendKnobType_t, in the words of cuDNN */
static const char *const knob_names[] = {
    "split_k",     "swizzle",    "tile_size", "use_tex",        "edge",        "kblock",
    "ldga",        "ldgb",       "chunk_k",   "split_h",        "wino_tile",   "multiply",
    "split_k_buf", "tilek",      "stages",    "reduction_mode", "cta_split_k", "split_k_slc",
    "idx_mode",    "sliced",     "split_rs",  "singlebuffer",   "ldgc",        "specfilt",
    "kernel_cfg",  "workspace",  "tile_cga",  "tile_cga_m",     "tile_cga_n",  "block_size",
    "occupancy",   "array_size", "num_c",     "split_cols",     "tile_rows",   "tile_cols",
    "load_size",   "cta_count",  "stream_k",  "split_p_slc",    "tile_m",      "tile_n",
    "warp_spec",   "swap_ab",
};

static void add_knob(td_descriptor choice, char *text)
{
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_SWIZZLE;
    int64_t value = 0, n = 0;
    const size_t used = strlen(text);
    const char *name = NULL;
    char number[24];
    if (td_cudnn.get(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n,
                     &type) ||
        td_cudnn.get(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &value))
        return;
    if ((size_t)type < sizeof knob_names / sizeof *knob_names)
        name = knob_names[type];
    snprintf(number, sizeof number, "knob%d", (int)type); /* newer than this list */
    snprintf(text + used, TD_CUDNN_KNOBS - used, "%s%s=%lld", used ? " " : "", name ? name : number,
             (long long)value);
}

static void read_knobs(td_cudnn_builder *b, td_descriptor config, char *text)
{
    td_descriptor choices[KNOBS_MAX];
    for (int i = 0; i < KNOBS_MAX; i++)
        choices[i] = td_cudnn_make(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (b->status)
        return;
    int64_t n = get_descriptors(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, KNOBS_MAX, choices);
    for (int64_t i = 0; i < n; i++)
        add_knob(choices[i], text);
}

static config_info read_config(td_cudnn_plan *plan, td_descriptor config)
{
    char error[TD_CUDNN_TEXT];
    config_info info = { .engine = -1 };
    const int mark = plan->made.n;
    int64_t n;
    td_cudnn_builder b = { .made = &plan->made, .error = error };
    td_descriptor engine = td_cudnn_make(&b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!b.status && get_descriptors(config, CUDNN_ATTR_ENGINECFG_ENGINE, 1, &engine) == 1) {
        (void)td_cudnn.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                           &info.engine);
        info.is_known = get_notes(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                  CUDNN_TYPE_NUMERICAL_NOTE, &info.numerical) &&
                        get_notes(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                  &info.behavior);
    }
    read_knobs(&b, config, info.knobs);
    td_cudnn_destroy(&plan->made, mark);
    return info;
}

static bool has(unsigned notes, int note)
{
    return notes >> note & 1;
}

/* Engines 1 of filter gradients and 0 of data gradients ignore what padding has more after than
   before: seen on an H200 with cuDNN 9.14 and 9.19. */
static bool ignores_padding(const td_cudnn_conv *v, int64_t engine)
{
    const bool is_uneven =
        v->pad_before[0] != v->pad_after[0] || v->pad_before[1] != v->pad_after[1];
    return is_uneven && ((v->direction == TD_CUDNN_FILTER_GRADIENT && engine == 1) ||
                         (v->direction == TD_CUDNN_DATA_GRADIENT && engine == 0));
}

/* why the problem's policy excludes an engine, NULL if it does not */
static const char *excluded(const search *s, const config_info *info)
{
    const td_cudnn_conv *v = s->conv;
    const unsigned notes = info->numerical;
    if (!info->is_known)
        return "its notes cannot be read";
    if (has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
        return "sums with less than float32";
    if (v->dtype == TD_CUDNN_F32 && has(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
        return "converts float32 inputs to a smaller type";
    if (v->dtype == TD_CUDNN_F32 && !v->allow_tf32 && has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
        return "multiplies float32 on tensor cores, TF32 is not allowed";
    if (v->is_deterministic && has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
        return "is not deterministic";
    if (s->target->without_compiled && has(info->behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION))
        return "is compiled at run time";
    if (ignores_padding(v, info->engine))
        return "ignores the additional padding after the last row and column";
    return NULL;
}

/* remembers a refusal; of an engine's configurations with the same reason, the first */
static void refuse(td_cudnn_plan *plan, const config_info *info, const char *why)
{
    plan->n_refused++;
    for (int i = 0; i < plan->n_refusals; i++)
        if (plan->refusals[i].engine == info->engine && strcmp(plan->refusals[i].why, why) == 0)
            return;
    if (plan->n_refusals == TD_CUDNN_REFUSALS)
        return;
    td_cudnn_refusal *r = &plan->refusals[plan->n_refusals++];
    r->engine = info->engine;
    memcpy(r->knobs, info->knobs, sizeof r->knobs);
    snprintf(r->why, sizeof r->why, "%s", why);
}

/* finalizes the plan of a configuration; on success the plan is the last descriptor */
static int finalize_plan(search *s, td_descriptor config, int64_t *workspace, char *error)
{
    td_cudnn_builder b = { .made = &s->plan->made, .error = error };
    int64_t n;
    td_descriptor d = td_cudnn_make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    td_cudnn_set_descriptor(&b, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (s->device)
        td_cudnn_set_descriptor(&b, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, s->device);
    else
        td_cudnn_set(&b, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                     &s->target->handle);
    td_cudnn_finalize(&b, d, "the execution plan");
    if (!b.status)
        b.status = td_cudnn_check(td_cudnn.get(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                               CUDNN_TYPE_INT64, 1, &n, workspace),
                                  "the plan's workspace size", error);
    if (b.status || !s->workspace_limit || *workspace <= s->workspace_limit)
        return b.status;
    s->has_large = true;
    return td_cudnn_error(error, TD_CUDNN_EPLAN,
                          "needs a workspace of %lld bytes, %lld are allowed",
                          (long long)*workspace, (long long)s->workspace_limit);
}

/* the configuration becomes the plan's if it is accepted and not passed over */
static bool try_config(search *s, td_descriptor config, bool is_fallback)
{
    char error[TD_CUDNN_TEXT];
    td_cudnn_plan *plan = s->plan;
    const config_info info = read_config(plan, config);
    const char *why = excluded(s, &info);
    const int mark = plan->made.n;
    int64_t workspace = 0;
    if (!why && finalize_plan(s, config, &workspace, error))
        why = error;
    if (why)
        refuse(plan, &info, why);
    if (why || s->n_passed_over++ < s->target->choice) {
        td_cudnn_destroy(&plan->made, mark);
        return false;
    }
    plan->plan = plan->made.at[mark];
    plan->engine = info.engine;
    memcpy(plan->knobs, info.knobs, sizeof plan->knobs);
    plan->workspace_bytes = workspace;
    plan->has_tensor_cores = has(info.numerical, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    plan->is_compiled = has(info.behavior, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    plan->is_fallback = is_fallback;
    return true;
}

/* --- heuristics ------------------------------------------------------------------------------- */

/* tries n configurations in order; the accepted one stays, with the plan's descriptors */
static void try_configs(search *s, td_descriptor *configs, int64_t n, bool is_fallback)
{
    td_cudnn_plan *plan = s->plan;
    for (int64_t i = 0; i < n && !plan->plan; i++)
        if (try_config(s, configs[i], is_fallback)) {
            plan->made.at[plan->made.n++] = configs[i]; /* there is room: read_knobs needs more */
            configs[i] = NULL;
        }
}

static td_descriptor make_heuristic(const search *s, cudnnBackendHeurMode_t mode, char *error)
{
    td_cudnn_builder b = { .made = &s->plan->made, .error = error };
    td_descriptor d = td_cudnn_make(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    td_cudnn_set_descriptor(&b, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, s->graph);
    td_cudnn_set(&b, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (s->device)
        td_cudnn_set_descriptor(&b, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, s->device);
    td_cudnn_finalize(&b, d, "the heuristic");
    return b.status ? NULL : d;
}

/* asks one heuristic; a heuristic that does not support the graph offers nothing */
static void try_heuristic(search *s, cudnnBackendHeurMode_t mode, char *error)
{
    td_descriptor configs[CONFIGS_MAX] = { NULL };
    td_descriptor d = make_heuristic(s, mode, error);
    int64_t n = 0, n_made = 0;
    if (!d ||
        td_cudnn.get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL))
        return;
    while (n_made < n && n_made < CONFIGS_MAX &&
           !td_cudnn.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[n_made]))
        n_made++;
    n = get_descriptors(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, n_made, configs);
    s->plan->n_offered += (int)n;
    try_configs(s, configs, n, mode == CUDNN_HEUR_MODE_FALLBACK);
    for (int64_t i = 0; i < n_made; i++)
        if (configs[i])
            (void)td_cudnn.destroy(configs[i]);
}

/* the device that is not here, or that of the handle */
static td_descriptor describe_device(td_cudnn_builder *b, const td_cudnn_target *target)
{
    td_descriptor d = td_cudnn_make(b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (target->handle)
        td_cudnn_set(b, d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else
        td_cudnn_set(b, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     (int64_t)strlen(target->json), target->json);
    td_cudnn_finalize(b, d, "the device's properties (JSON)");
    return d;
}

static int check_version(char *error)
{
    const long long version = td_cudnn.version ? (long long)td_cudnn.version() : 0;
    if (!version)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "cuDNN is not open");
    if (version < JSON_VERSION)
        return td_cudnn_error(
            error, TD_CUDNN_EREQUEST,
            "cuDNN %lld.%lld.%lld cannot plan for a device that is not here: 9.8.0 "
            "or newer is needed",
            version / 10000, version / 100 % 100, version % 100);
    return 0;
}

int td_cudnn_check_device(const char *json, char *error)
{
    td_cudnn_descriptors made = { .n = 0 };
    td_cudnn_builder b = { .made = &made, .error = error };
    const td_cudnn_target target = { .json = json };
    const int status = check_version(error);
    if (status)
        return status;
    (void)describe_device(&b, &target);
    td_cudnn_destroy(&made, 0);
    return b.status;
}

static int check_target(const td_cudnn_target *target, char *error)
{
    if (!td_cudnn.version)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "cuDNN is not open");
    if (!target->handle && !target->json)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST,
                              "planning needs a handle or the properties of a device");
    return target->handle ? 0 : check_version(error);
}

int td_cudnn_read_device(const td_cudnn_target *target, char *json, size_t room, char *error)
{
    td_cudnn_descriptors made = { .n = 0 };
    td_cudnn_builder b = { .made = &made, .error = error };
    int64_t n = 0;
    int status = check_target(target, error);
    if (!status)
        status = check_version(error);
    if (status)
        return status;
    td_descriptor d = describe_device(&b, target);
    if (!b.status)
        b.status = td_cudnn_check(td_cudnn.get(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                               CUDNN_TYPE_CHAR, (int64_t)room - 1, &n, json),
                                  "the device's properties", error);
    td_cudnn_destroy(&made, 0);
    json[!b.status && n > 0 && n < (int64_t)room ? n : 0] = '\0';
    if (!b.status && !*json)
        b.status = td_cudnn_error(error, TD_CUDNN_EREQUEST, "the device has no properties");
    return b.status;
}

static void try_heuristics(search *s, char *error)
{
    try_heuristic(s, CUDNN_HEUR_MODE_A, error);
    if (!s->plan->plan && !s->target->without_fallback)
        try_heuristic(s, CUDNN_HEUR_MODE_FALLBACK, error);
}

static int find_plan(search *s, char *error)
{
    const td_cudnn_plan *plan = s->plan;
    char reason[TD_CUDNN_TEXT];
    s->workspace_limit = s->target->workspace_limit_bytes;
    try_heuristics(s, error);
    if (!plan->plan && s->has_large && s->n_passed_over == 0) {
        s->workspace_limit = 0;
        try_heuristics(s, error);
    }
    if (plan->plan)
        return 0;
    if (plan->n_refused > 0)
        return td_cudnn_error(error, TD_CUDNN_EPLAN,
                              "%d engine configurations refused, the first: %.*s", plan->n_refused,
                              TD_CUDNN_TEXT - 80, plan->refusals[0].why);
    td_cudnn_reason(reason);
    return td_cudnn_error(error, TD_CUDNN_EPLAN, "no engine is offered%.*s", TD_CUDNN_TEXT - 40,
                          reason);
}

int td_cudnn_plan_init(td_cudnn_plan *plan, const td_cudnn_conv *conv,
                       const td_cudnn_target *target, char *error)
{
    search s = { .plan = plan, .conv = conv, .target = target };
    td_cudnn_builder b = { .made = &plan->made, .error = error };
    memset(plan, 0, sizeof *plan);
    int status = td_cudnn_conv_check(conv, error);
    if (!status)
        status = check_target(target, error);
    if (status)
        return status;
    s.graph = td_cudnn_build_graph(&b, conv, target, &plan->tensors);
    if (!target->handle)
        s.device = describe_device(&b, target);
    status = b.status ? b.status : find_plan(&s, error);
    if (status)
        td_cudnn_plan_release(plan);
    return status;
}

void td_cudnn_plan_release(td_cudnn_plan *plan)
{
    td_cudnn_destroy(&plan->made, 0);
    plan->plan = NULL;
}

/* --- execution -------------------------------------------------------------------------------- */

/* collects the pointers of the plan's tensors; their uids are td_cudnn_tensor + 1 */
static int bind(const td_cudnn_plan *plan, void *const *tensors, int64_t *uids, void **pointers,
                char *error)
{
    int n = 0;
    for (int i = 0; i < TD_CUDNN_TENSORS; i++) {
        if (!(plan->tensors >> i & 1))
            continue;
        if (!tensors[i] || (uintptr_t)tensors[i] % TD_CUDNN_ALIGNMENT) {
            td_cudnn_error(error, TD_CUDNN_EREQUEST,
                           "tensor %d of the plan is at %p, an address aligned to %d is needed", i,
                           tensors[i], TD_CUDNN_ALIGNMENT);
            return -1;
        }
        uids[n] = i + 1;
        pointers[n++] = tensors[i];
    }
    return n;
}

int td_cudnn_plan_execute(const td_cudnn_plan *plan, void *handle, void *const *tensors,
                          void *workspace, char *error)
{
    int64_t uids[TD_CUDNN_TENSORS];
    void *pointers[TD_CUDNN_TENSORS];
    if (!plan->plan)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "there is no plan to execute");
    const int n = bind(plan, tensors, uids, pointers, error);
    if (n < 0)
        return TD_CUDNN_EREQUEST;
    if (plan->workspace_bytes && !workspace)
        return td_cudnn_error(error, TD_CUDNN_EREQUEST, "the plan needs a workspace of %lld bytes",
                              (long long)plan->workspace_bytes);
    td_cudnn_descriptors made = { .n = 0 };
    td_cudnn_builder b = { .made = &made, .error = error };
    td_descriptor pack = td_cudnn_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    td_cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids);
    td_cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    td_cudnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    td_cudnn_finalize(&b, pack, "the variant pack");
    if (!b.status)
        b.status = td_cudnn_check(td_cudnn.execute(handle, plan->plan, pack), "cudnnBackendExecute",
                                  error);
    td_cudnn_destroy(&made, 0);
    return b.status;
}
