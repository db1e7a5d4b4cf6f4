/* ctest: timeout 300 */
/*
 * test_ssd.c -- detectors as networks: sizes, backbones, initial values, what is refused;
 * their steps in every form a job has; and what they take of other networks' weights
 */
#include "support/allocations.h"
#include "support/expect.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "boxes/anchors.h"
#include "checkpoint/weights.h"
#include "ir/graph.h"
#include "ops/ops.h"
#include "optim/freeze.h"
#include "optim/synthetic_step.h"
#include "optim/training_graph.h"
#include "pass/amp.h"
#include "tandem/model.h"
#include "tandem/program.h"

#define SSDLITE   "ssdlite320_mobilenet_v3_large"
#define RETINANET "retinanet_resnet50_fpn"

static td_model_opts opts_of(const char *arch, const char *backbone, int classes, int side)
{
    td_model_opts o;
    td_model_defaults(&o);
    o.arch = arch;
    o.backbone = backbone;
    o.num_classes = classes;
    o.image_size = side;
    return o;
}

static int64_t output_dim(const td_graph *g, const char *name, int d)
{
    return td_graph_output_value(g, name)->type.dim[d];
}

/* --- networks --------------------------------------------------------------------------------- */

static void every_backbone_gives_a_table_of_its_anchors(void **state)
{
    (void)state;
    static const char *const backbones[] = { "resnet18", "resnet34", "resnet50", "resnet101",
                                             "resnet152" };
    for (int i = 0; i < 10; i++) {
        const bool is_320 = i < 5;
        const td_model_opts o =
            opts_of(is_320 ? "ssd320" : "ssd300", backbones[i % 5], 7, is_320 ? 160 : 0);
        td_graph *g;
        expect_ok(td_model_graph(&o, 2, i % 2, &g));
        assert_int_equal(output_dim(g, "codes", 0), 2);
        assert_int_equal(output_dim(g, "codes", 1),
                         is_320 ? td_anchors_count(TD_DETECTOR_SSD320, 160) : 8732);
        assert_int_equal(output_dim(g, "codes", 2), 4);
        assert_int_equal(output_dim(g, "scores", 1), output_dim(g, "codes", 1));
        assert_int_equal(output_dim(g, "scores", 2), 8);
        td_graph_free(g);
    }
}

static void tables_have_a_row_for_each_anchor(void **state)
{
    (void)state;
    static const int sides[] = { 160, 224, 320, 640, 1024 };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        const td_model_opts o = opts_of("ssd320", "resnet18", 1, sides[i]);
        td_graph *g;
        expect_ok(td_model_graph(&o, 1, false, &g));
        assert_int_equal(output_dim(g, "scores", 1),
                         td_anchors_count(TD_DETECTOR_SSD320, sides[i]));
        td_graph_free(g);
    }
    td_arch_info a;
    expect_ok(td_arch_find("ssd320", &a));
    assert_int_equal(a.detector, TD_DETECTOR_SSD320);
    assert_int_equal(a.n_anchors, td_anchors_count(TD_DETECTOR_SSD320, a.image_size));
    expect_ok(td_arch_find("ssd300", &a));
    assert_int_equal(a.detector, TD_DETECTOR_SSD300);
    assert_int_equal(a.n_anchors, td_anchors_count(TD_DETECTOR_SSD300, a.image_size));
    expect_ok(td_arch_find(SSDLITE, &a));
    assert_int_equal(a.detector, TD_DETECTOR_SSDLITE);
    assert_int_equal(a.n_anchors, td_anchors_count(TD_DETECTOR_SSDLITE, a.image_size));
    expect_ok(td_arch_find(RETINANET, &a));
    assert_int_equal(a.detector, TD_DETECTOR_RETINANET);
    assert_int_equal(a.n_anchors, td_anchors_count(TD_DETECTOR_RETINANET, a.image_size));
    expect_ok(td_arch_find("resnet50", &a));
    assert_int_equal(a.detector, TD_DETECTOR_NONE);
    assert_int_equal(a.n_anchors, 0);
}

/* torchvision's number of parameters, tensors of its state_dict and boxes at several sizes */
static void check_torch(const char *arch, int side, int n_boxes, int64_t n_weights, int n_tensors)
{
    const td_model_opts o = opts_of(arch, "resnet50", 90, side);
    int64_t weights = 0;
    int n = 0;
    td_graph *g;
    expect_ok(td_model_graph(&o, 2, side % 64 > 0, &g));
    assert_int_equal(output_dim(g, "codes", 1), n_boxes);
    assert_int_equal(output_dim(g, "scores", 1), n_boxes);
    assert_int_equal(output_dim(g, "scores", 2), 91);
    for (int k = 0; k < g->n_nodes; k++) {
        const td_node *p = g->nodes[k];
        if (p->op != &td_op_param)
            continue;
        const bool is_weight = ((const td_param_attr *)p->attr)->role == TD_ROLE_WEIGHT;
        weights += is_weight ? td_type_count(&p->out[0]->type) : 0;
        n += 1 + td_text_ends(p->out[0]->name, ".running_var"); /* with the norms' counters */
    }
    assert_int_equal(weights, n_weights);
    assert_int_equal(n, n_tensors);
    td_graph_free(g);
}

static void ssdlite_is_torchvision_s(void **state)
{
    (void)state;
    static const int sides[][2] = { { 64, 144 }, { 160, 840 }, { 320, 3234 }, { 640, 12828 } };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        check_torch(SSDLITE, sides[i][0], sides[i][1], 3440060, 476);
}

/* its own count, 34,014,999, is that of constant norms */
static void retinanet_is_torchvision_s(void **state)
{
    (void)state;
    static const int sides[][2] = { { 64, 774 }, { 160, 4842 }, { 320, 19206 }, { 800, 120087 } };
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        check_torch(RETINANET, sides[i][0], sides[i][1], 34014999 + 53120, 354);
}

static void classes_are_the_reference_s_unless_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const td_model_opts o = opts_of(i ? "ssd300" : "ssd320", "resnet18", 0, 0);
        td_graph *g;
        expect_ok(td_model_graph(&o, 1, false, &g));
        assert_int_equal(output_dim(g, "scores", 2), i ? 81 : 91);
        assert_int_equal(td_model_default_classes(&o, 1000), i ? 80 : 90);
        td_graph_free(g);
    }
}

static void refuse(td_model_opts o, td_status st, const char *part)
{
    td_graph *g;
    expect_error(td_model_graph(&o, 1, false, &g), st, part);
    assert_null(g);
}

static void what_cannot_be_built_is_refused(void **state)
{
    (void)state;
    refuse(opts_of("ssd320", "resnet18", 1, 300), TD_EUNSUPPORTED, "32 and at least 160");
    refuse(opts_of("ssd320", "resnet18", 1, 128), TD_EUNSUPPORTED, "found 128");
    refuse(opts_of("ssd300", "resnet18", 1, 320), TD_EUNSUPPORTED, "300, found 320");
    refuse(opts_of("ssd320", "resnext50-32x4d", 1, 0), TD_EUSAGE, "'ssd320'");
    refuse(opts_of("ssd300", "se-resnet50", 1, 0), TD_EUSAGE, "'ssd300'");
    refuse(opts_of("ssd300", "ssd320", 1, 0), TD_EUSAGE, "'ssd320' is not a");
    refuse(opts_of("ssd320", "vgg16", 1, 0), TD_EUSAGE, "'vgg16'");
    refuse(opts_of(SSDLITE, "resnet50", 1, 300), TD_EUNSUPPORTED, "32 and at least 64, found 300");
    refuse(opts_of(SSDLITE, "resnet50", 1, 32), TD_EUNSUPPORTED, "found 32");
    refuse(opts_of("ssd300", SSDLITE, 1, 0), TD_EUSAGE, "is not a");
    refuse(opts_of(RETINANET, "resnet50", 1, 300), TD_EUNSUPPORTED,
           "32 and at least 64, found 300");
    td_model_opts odd = opts_of(RETINANET, "resnet50", 1, 64);
    odd.bn_epsilon = -0.5;
    refuse(odd, TD_EUSAGE, "bn-epsilon is -0.5");
    td_model_opts tf = opts_of("ssd320", "resnet50", 1, 0);
    tf.variant = TD_VARIANT_TENSORFLOW;
    refuse(tf, TD_EUSAGE, "'ssd320' has no variant 'tensorflow'");

    const td_model_opts o = opts_of("ssd320", "resnet18", 1, 0);
    td_graph *g;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, (int64_t[]){ 1, 3, 320, 320 }));
    td_model_forward(b, &o, x, false);
    expect_error(td_build_end(b, &g), TD_EUNSUPPORTED, "'ssd320'");

    const td_model_opts classifier = opts_of("resnet18", "resnet50", 1, 0);
    td_value *deltas, *scores;
    b = td_build_begin();
    x = td_input(b, "images", td_type_of(TD_DT_F32, 4, (int64_t[]){ 1, 3, 320, 320 }));
    td_detector_forward(b, &classifier, x, false, &deltas, &scores);
    expect_error(td_build_end(b, &g), TD_EUNSUPPORTED, "'resnet18'");
}

/* --- initial values --------------------------------------------------------------------------- */

typedef struct {
    double mean, deviation, largest;
} moments;

static moments moments_of(td_program *p, const char *name)
{
    moments m = { 0 };
    for (int i = 0; i < td_program_param_count(p); i++) {
        if (strcmp(td_program_param_name(p, i), name) != 0)
            continue;
        const td_type t = td_program_param_type(p, i);
        const int64_t n = td_type_count(&t);
        float *v = td_alloc((size_t)n, sizeof *v);
        double sum = 0, squares = 0;
        assert_non_null(v);
        expect_ok(td_program_get(p, name, v));
        for (int64_t k = 0; k < n; k++) {
            sum += (double)v[k];
            squares += (double)v[k] * (double)v[k];
            m.largest = fmax(m.largest, fabs((double)v[k]));
        }
        m.mean = sum / (double)n;
        m.deviation = sqrt(fmax(squares / (double)n - m.mean * m.mean, 0));
        td_free(v);
        return m;
    }
    fail_msg("no parameter '%s'", name);
    return m;
}

static td_program *initial(const char *arch)
{
    const td_model_opts o = opts_of(arch, "resnet18", 9, 0);
    td_device *dev;
    td_graph *g;
    td_program *p;
    expect_ok(td_model_graph(&o, 1, false, &g));
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = "fold,fuse,layout" }, &p));
    expect_ok(td_program_init(p, 5));
    td_graph_free(g);
    td_device_close(dev);
    return p;
}

static void layers_begin_as_the_references_do(void **state)
{
    (void)state;
    td_program *p = initial("ssd320");
    moments m = moments_of(p, "fpn.smooth3.conv.weight"); /* normal 0.03, cut at 0.06 */
    assert_true(fabs(m.deviation - 0.02639) < 1e-4 && m.largest < 0.0600001 && m.largest > 0.0599);
    m = moments_of(p, "heads.box_tower.2.conv.weight");
    assert_true(fabs(m.deviation - 0.01) < 1e-4 && m.largest > 0.04);
    m = moments_of(p, "heads.class.weight");
    assert_true(fabs(m.deviation - 0.01) < 1e-4);
    m = moments_of(p, "heads.class.bias");
    assert_true(fabs(m.mean + 4.6) < 1e-6 && m.deviation < 1e-3);
    assert_true(moments_of(p, "heads.box.bias").largest == 0);
    assert_true(moments_of(p, "fpn.lateral4.bias").largest == 0);
    td_program_free(p);

    p = initial("ssd300");
    const double bound = sqrt(6.0 / (9.0 * (128 + 256)));
    m = moments_of(p, "additional_blocks.3.3.weight"); /* uniform, Xavier */
    assert_true(m.largest <= bound && m.largest > 0.999 * bound);
    assert_true(fabs(m.deviation - bound / sqrt(3)) < 1e-3 * bound);
    td_program_free(p);
}

/* --- steps ------------------------------------------------------------------------------------ */

typedef struct {
    td_model_opts model;
    td_step_opts sgd;
    td_synthetic inputs;
    td_device *dev;
    td_program *p;
    float lr, scale, inverse, update, keep, share;
} step;

/* RetinaNet's small heads have small gradients.  SSDLite's last maps are a pixel each, so that its
   norms there are of two values: at 1e-3 its steps overshoot, and how far the loss falls depends on
   rounding (by half); at 1e-5 it depends on it in the fourth digit */
static float rate_of(const char *arch)
{
    return strcmp(arch, RETINANET) == 0 ? 0.1f : strcmp(arch, SSDLITE) == 0 ? 1e-5f : 1e-3f;
}

static void open_step(step *s, const char *arch, td_step_opts sgd, td_compile_opts c)
{
    *s = (step){
        .sgd = sgd, .lr = rate_of(arch), .scale = 8, .update = 1, .keep = 0.9f, .share = 0.1f
    };
    td_graph *g;
    s->inverse = sgd.is_scaled ? 1.0f / 8 : 1;
    s->model = opts_of(arch, "resnet18", 3, strcmp(arch, "ssd300") == 0 ? 300 : 160);
    expect_ok(td_training_graph(&s->model, 2, &sgd, &g)); /* goes to the detectors' */
    expect_ok(td_device_open("cpu", &s->dev));
    expect_ok(td_compile(g, s->dev, &c, &s->p));
    td_graph_free(g);
    expect_ok(td_program_init(s->p, 3));
    expect_ok(td_synthetic_make(&s->model, 2, false, &s->inputs));
    expect_ok(td_synthetic_bind(&s->inputs, s->p));
    expect_ok(td_program_bind(s->p, "lr", &s->lr));
    if (sgd.is_scaled)
        expect_ok(td_program_bind(s->p, TD_INPUT_SCALE, &s->scale));
    if (sgd.is_scaled || sgd.accumulates)
        expect_ok(td_program_bind(s->p, TD_INPUT_INVERSE, &s->inverse));
    if (sgd.averages) {
        expect_ok(td_program_bind(s->p, TD_INPUT_EMA_KEEP, &s->keep));
        expect_ok(td_program_bind(s->p, TD_INPUT_EMA_SHARE, &s->share));
    }
}

static void close_step(step *s)
{
    td_synthetic_release(&s->inputs);
    td_program_free(s->p);
    td_device_close(s->dev);
}

static double output(const step *s, const char *name)
{
    const float *v = td_program_output(s->p, name, NULL);
    assert_non_null(v);
    return (double)*v;
}

/* the loss at the start, and what part of it three updates took away */
typedef struct {
    double loss, fall;
} learned;

/* relative differences from float32 */
typedef struct {
    double loss, fall;
} learned_limits;

static learned learn(const char *arch, td_step_opts sgd, const td_amp_opts *amp)
{
    step s;
    open_step(&s, arch, sgd, (td_compile_opts){ .amp = amp });
    expect_ok(td_program_run(s.p));
    const double first = output(&s, "loss");
    assert_true(fabs(output(&s, "loss_class") + output(&s, "loss_box") - first) < 1e-5 * first);
    if (sgd.is_scaled)
        assert_true(output(&s, TD_OUTPUT_FINITE) == 1);
    for (int i = 0; i < 3; i++)
        expect_ok(td_program_run(s.p));
    const double last = output(&s, "loss");
    print_message("%s: %g, then %g\n", arch, first, last);
    assert_true(last < 0.97 * first);
    close_step(&s);
    return (learned){ first, 1 - last / first };
}

static void check_learns(const char *arch, td_step_opts sgd, const td_amp_opts *amp, learned wanted,
                         learned_limits limits)
{
    const learned l = learn(arch, sgd, amp);
    if (!(fabs(l.loss - wanted.loss) < limits.loss * wanted.loss))
        fail_msg("%s: loss %g, in float32 %g", arch, l.loss, wanted.loss);
    if (!(fabs(l.fall - wanted.fall) < limits.fall * wanted.fall))
        fail_msg("%s: the loss falls by %g, in float32 by %g", arch, l.fall, wanted.fall);
}

/* limits are several times what rounding does: bf16 changes a loss by 7e-4 and its fall by up to
   a tenth (RetinaNet), fp16 by 1e-4 and 5e-3 */
static void steps_learn_in_every_precision(void **state)
{
    (void)state;
    const td_amp_opts bf16 = { .precision = TD_PRECISION_BF16, .is_silent = true };
    const td_amp_opts fp16 = { .precision = TD_PRECISION_FP16, .is_silent = true };
    const learned_limits of_bf16 = { 4e-3, 0.3 }, of_fp16 = { 1e-3, 0.025 };
    const td_step_opts plain = { .momentum = 0.9, .decay = 4e-4 };
    td_step_opts scaled = plain, averaged = plain;
    scaled.is_scaled = true;
    averaged.averages = true;
    const learned ssd = learn("ssd320", plain, NULL);
    check_learns("ssd320", plain, &bf16, ssd, of_bf16);
    check_learns("ssd320", scaled, &fp16, ssd, of_fp16);
    check_learns("ssd320", averaged, NULL, ssd, (learned_limits){ 1e-6, 1e-3 });
    check_learns(RETINANET, plain, &bf16, learn(RETINANET, plain, NULL), of_bf16);
    const learned lite = learn(SSDLITE, plain, NULL);
    check_learns(SSDLITE, plain, &bf16, lite, of_bf16);
    check_learns(SSDLITE, scaled, &fp16, lite, of_fp16);
}

static void filters_alone_are_decayed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        td_decay_groups groups = { 0 };
        const td_model_opts o = opts_of(i ? "ssd300" : "ssd320", "resnet50", 0, 0);
        const td_step_opts sgd = { .momentum = 0.9, .decay = 1e-4, .groups = &groups };
        td_graph *g;
        int n_weights = 0;
        expect_ok(td_detector_training_graph(&o, 1, &sgd, &g));
        for (int k = 0; k < g->n_nodes; k++) {
            const td_node *n = g->nodes[k];
            if (n->op != &td_op_sgd)
                continue;
            n_weights++;
            assert_true((((const td_sgd_attr *)n->attr)->decay > 0) == (n->in[0]->type.rank > 1));
        }
        assert_int_equal(n_weights, i ? 183 : 269);
        assert_int_equal(groups.decayed.n, i ? 65 : 70);
        assert_int_equal(groups.n_undecayed, n_weights - (int)groups.decayed.n);
        td_map_release(&groups.decayed);
        td_graph_free(g);
    }
}

/* torchvision's optimizer decays norms and biases, too */
static void all_weights_of_torchvision_s_are_decayed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        td_decay_groups groups = { 0 };
        const td_model_opts o = opts_of(i ? RETINANET : SSDLITE, "resnet50", 0, 64);
        const td_step_opts sgd = {
            .momentum = 0.9, .decay = 4e-5, .decays_norms = true, .groups = &groups
        };
        td_graph *g;
        expect_ok(td_detector_training_graph(&o, 1, &sgd, &g));
        assert_int_equal(groups.n_undecayed, 0);
        assert_int_equal(groups.decayed.n, i ? 354 - 3 * 53 : 476 - 3 * 70);
        td_map_release(&groups.decayed);
        td_graph_free(g);
    }
}

/* --bn-epsilon is every batch norm's, the heads' included */
static void one_epsilon_serves_all_norms(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        static const char *const archs[] = { "ssd320", SSDLITE, RETINANET, "ssd300" };
        td_model_opts o = opts_of(archs[k], "resnet18", 0, k == 3 ? 300 : 160);
        td_graph *g;
        int n = 0;
        o.bn_epsilon = 0;
        expect_ok(td_model_graph(&o, 1, k % 2, &g));
        for (int i = 0; i < g->n_nodes; i++) {
            const td_node *p = g->nodes[i];
            if (p->op != &td_op_batch_norm && p->op != &td_op_batch_norm_infer)
                continue;
            assert_true(((const td_norm_attr *)p->attr)->eps == 0);
            n++;
        }
        assert_true(n > 14);
        td_graph_free(g);
    }
}

static void a_frozen_backbone_keeps_its_statistics(void **state)
{
    (void)state;
    step s;
    const char *frozen = "backbone.*";
    open_step(&s, "ssd320",
              (td_step_opts){ .momentum = 0.9, .frozen = frozen, .freezes_norms = true },
              (td_compile_opts){ 0 });
    const moments before[] = { moments_of(s.p, "backbone.bn1.running_mean"),
                               moments_of(s.p, "backbone.layer3.0.conv1.weight") };
    expect_ok(td_program_run(s.p));
    const moments after[] = { moments_of(s.p, "backbone.bn1.running_mean"),
                              moments_of(s.p, "backbone.layer3.0.conv1.weight") };
    assert_memory_equal(before, after, sizeof before);
    assert_true(moments_of(s.p, "fpn.smooth3.bn.running_mean").largest > 0);
    for (int i = 0; i < td_program_param_count(s.p); i++)
        assert_false(strncmp(td_program_param_name(s.p, i), "momentum.backbone.", 18) == 0);
    close_step(&s);
}

static void less_memory_gives_the_same_bits(void **state)
{
    (void)state;
    step all, less;
    const td_step_opts sgd = { .momentum = 0.9 };
    open_step(&all, "ssd320", sgd, (td_compile_opts){ 0 });
    const td_memory_report m = td_program_memory(all.p);
    open_step(&less, "ssd320", sgd,
              (td_compile_opts){ .memory_limit = m.param_bytes + m.activation_bytes * 3 / 4 });
    assert_true(td_program_memory(less.p).n_recomputed > 0);
    for (int i = 0; i < 2; i++) {
        expect_ok(td_program_run(all.p));
        expect_ok(td_program_run(less.p));
        assert_true(output(&all, "loss") == output(&less, "loss"));
    }
    close_step(&all);
    close_step(&less);
}

/* --- weights of others ------------------------------------------------------------------------ */

/* all weights of an architecture, with these initial values */
static td_tensors *weights_of(const char *arch, int classes, td_program **kept)
{
    const td_model_opts o = opts_of(arch, "resnet18", classes, 0);
    td_tensors *t;
    td_device *dev;
    td_graph *g;
    expect_ok(td_model_graph(&o, 1, false, &g));
    expect_ok(td_device_open("ref", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = "fold,fuse,layout" }, kept));
    expect_ok(td_program_init(*kept, 77));
    td_graph_free(g);
    td_device_close(dev);
    expect_ok(td_tensors_new(&t));
    expect_ok(td_weights_save(*kept, 0, 5, NULL, t));
    return t;
}

static int count_same(td_program *p, const td_tensors *t, const char *from, const char *to)
{
    int n = 0;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type type = td_program_param_type(p, i);
        char other[160];
        if (strncmp(name, from, strlen(from)) != 0)
            continue;
        snprintf(other, sizeof other, "%s%s", to, name + strlen(from));
        const td_tensor *x = td_tensors_get(t, other);
        float *v = td_alloc((size_t)td_type_count(&type), sizeof *v);
        assert_non_null(v);
        expect_ok(td_program_get(p, name, v));
        n += x && x->n_bytes == (size_t)td_type_count(&type) * 4 &&
             memcmp(v, x->data, x->n_bytes) == 0;
        td_free(v);
    }
    return n;
}

static void a_classifier_s_weights_begin_a_backbone(void **state)
{
    (void)state;
    td_program *classifier;
    td_tensors *t = weights_of("resnet18", 1000, &classifier);
    td_program *p = initial("ssd320"); /* 100 tensors: 20 filters, 20 norms of four */
    expect_ok(td_weights_load_matching(t, "w", p));
    assert_int_equal(count_same(p, t, "backbone.", ""), 100);
    assert_true(fabs(moments_of(p, "heads.class.bias").mean + 4.6) < 1e-6);
    td_program_free(p);

    p = initial("ssd300"); /* without the last stage: 15 of each */
    expect_ok(td_weights_load_matching(t, "w", p));
    assert_int_equal(count_same(p, t, "feature_extractor.feature_extractor.0.", "conv1."), 1);
    assert_int_equal(count_same(p, t, "feature_extractor.feature_extractor.1.", "bn1."), 4);
    int n = 0;
    for (int i = 1; i < 4; i++) {
        char from[64], to[16];
        snprintf(from, sizeof from, "feature_extractor.feature_extractor.%d.", i + 3);
        snprintf(to, sizeof to, "layer%d.", i);
        n += count_same(p, t, from, to);
    }
    assert_int_equal(n, 70);
    td_program_free(p);
    td_program_free(classifier);
    td_tensors_free(t);

    /* the modules before the tail, and what block 13 has before its narrower result */
    t = weights_of("mobilenet_v3_large", 1000, &classifier);
    p = initial(SSDLITE);
    expect_ok(td_weights_load_matching(t, "w", p));
    n = 0;
    for (int i = 0; i < 13; i++) {
        char from[64], to[16];
        snprintf(from, sizeof from, "backbone.features.0.%d.", i);
        snprintf(to, sizeof to, "features.%d.", i);
        n += count_same(p, t, from, to);
    }
    assert_int_equal(n, 5 + 10 + 11 * 15 + 5 * 4);
    assert_int_equal(count_same(p, t, "backbone.features.0.13.", "features.13.block.0."), 5);
    assert_int_equal(count_same(p, t, "backbone.features.1.0.1.", "features.13.block.1."), 5);
    assert_int_equal(count_same(p, t, "backbone.features.1.0.2.", "features.13.block.2."), 4);
    assert_int_equal(count_same(p, t, "backbone.features.1.0.3.", "features.13.block.3."), 0);
    td_program_free(p);
    td_program_free(classifier);
    td_tensors_free(t);

    t = weights_of("resnet50", 1000, &classifier);
    p = initial(RETINANET);
    expect_ok(td_weights_load_matching(t, "w", p));
    assert_int_equal(count_same(p, t, "backbone.body.", ""), 53 * 5);
    assert_true(fabs(moments_of(p, "head.classification_head.cls_logits.bias").mean + 4.59512) <
                1e-5);
    td_program_free(p);
    td_program_free(classifier);
    td_tensors_free(t);
}

static void another_head_begins_anew(void **state)
{
    (void)state;
    td_program *other;
    td_tensors *t = weights_of("ssd320", 20, &other);
    td_program *p = initial("ssd320"); /* nine classes */
    const int n = td_program_param_count(p);
    expect_ok(td_weights_load_matching(t, "w", p));
    assert_int_equal(count_same(p, t, "", ""), n - 2); /* but heads.class */
    assert_true(fabs(moments_of(p, "heads.class.weight").deviation - 0.01) < 1e-4);
    td_program_free(p);
    td_program_free(other);
    td_tensors_free(t);
}

static void weights_of_something_else_are_refused(void **state)
{
    (void)state;
    static const float v[4] = { 0 };
    td_tensors *t;
    td_program *p = initial("ssd320");
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "encoder.weight", TD_DT_F32, 1, (int64_t[]){ 4 }, v));
    expect_ok(td_tensors_add(t, "conv1.weight", TD_DT_F32, 1, (int64_t[]){ 4 }, v));
    expect_error(td_weights_load_matching(t, "w.st", p), TD_EFORMAT, "'w.st'");
    td_program_free(p);
    td_tensors_free(t);
}

/* --- memory ----------------------------------------------------------------------------------- */

static td_status make_synthetic(void)
{
    const td_model_opts o = opts_of("ssd320", "resnet18", 3, 160);
    td_synthetic s;
    TD_TRY(td_synthetic_make(&o, 1, false, &s));
    td_synthetic_release(&s);
    return TD_OK;
}

/* the weights and the program are there before */
static const td_tensors *begin_with;
static td_program *beginner;

static td_status load_matching(void)
{
    return td_weights_load_matching(begin_with, "w", beginner);
}

static td_status build_detector(void)
{
    const td_model_opts o = opts_of("ssd300", "resnet18", 3, 0);
    td_graph *g;
    TD_TRY(td_model_graph(&o, 1, true, &g));
    td_graph_free(g);
    return TD_OK;
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    static const float filters[64 * 3 * 49];
    td_tensors *t;
    expect_ok(td_log_configure("error"));
    td_test_allocations(make_synthetic, 100);
    td_test_allocations(build_detector, 4000);
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "conv1.weight", TD_DT_F32, 4, (int64_t[]){ 64, 3, 7, 7 }, filters));
    begin_with = t;
    beginner = initial("ssd320");
    td_test_allocations(load_matching, 4000);
    td_program_free(beginner);
    td_tensors_free(t);
    expect_ok(td_log_configure(NULL));
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_backbone_gives_a_table_of_its_anchors),
        cmocka_unit_test(tables_have_a_row_for_each_anchor),
        cmocka_unit_test(ssdlite_is_torchvision_s),
        cmocka_unit_test(retinanet_is_torchvision_s),
        cmocka_unit_test(classes_are_the_reference_s_unless_named),
        cmocka_unit_test(what_cannot_be_built_is_refused),
        cmocka_unit_test(layers_begin_as_the_references_do),
        cmocka_unit_test(steps_learn_in_every_precision),
        cmocka_unit_test(filters_alone_are_decayed),
        cmocka_unit_test(all_weights_of_torchvision_s_are_decayed),
        cmocka_unit_test(one_epsilon_serves_all_norms),
        cmocka_unit_test(a_frozen_backbone_keeps_its_statistics),
        cmocka_unit_test(less_memory_gives_the_same_bits),
        cmocka_unit_test(a_classifier_s_weights_begin_a_backbone),
        cmocka_unit_test(another_head_begins_anew),
        cmocka_unit_test(weights_of_something_else_are_refused),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    td_process_setup(argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
