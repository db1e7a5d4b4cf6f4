/*
 * small_cnn.c -- a small network through the C API: build it, train it, evaluate it
 *
 * The images are 16 x 16 noise with a brighter stripe, upright in class 0 and level in class 1.
 * Ends with 0 when at least nine of ten fresh images are told apart.
 *
 *     cc small_cnn.c $(pkg-config --cflags --libs tandem) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>

#include "tandem/program.h"

enum { BATCH = 32, SIDE = 16, STEPS = 60, CLASSES = 2 };

static td_value *block(td_builder *b, td_value *x, const char *name, int n_in, int n_out)
{
    char weight[64];
    int64_t dim[] = { n_out, n_in, 3, 3 };
    snprintf(weight, sizeof weight, "%s.weight", name);
    td_value *w = td_param(b, weight, TD_DT_F32, 4, dim, "init=normal, scale=0.2");
    return td_max_pool2d(b, td_relu(b, td_conv2d(b, x, w, "pad=1")), "kernel=2, stride=2");
}

static td_status training_graph(td_graph **out)
{
    td_builder *b = td_build_begin();
    int64_t images[] = { BATCH, 3, SIDE, SIDE }, labels[] = { BATCH }, fc[] = { CLASSES, 16 };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, images));
    td_value *y = td_input(b, "labels", td_type_of(TD_DT_I64, 1, labels));
    td_value *lr = td_input(b, "lr", td_type_of(TD_DT_F32, 0, NULL));

    td_value *h = block(b, block(b, x, "conv1", 3, 8), "conv2", 8, 16);
    td_value *w = td_param(b, "fc.weight", TD_DT_F32, 2, fc, "init=uniform, scale=0.25");
    td_value *logits = td_linear(b, td_global_avg_pool(b, h), w, NULL);
    td_value *target = td_one_hot(b, y, CLASSES, 0);
    td_value *loss = td_mean(b, td_softmax_cross_entropy(b, logits, target));

    for (int i = 0, n = td_build_param_count(b); i < n; i++) {
        char name[64];
        td_value *p = td_build_param(b, i);
        td_type t = td_value_type(p);
        snprintf(name, sizeof name, "momentum.%s", td_value_name(p));
        td_value *v = td_param(b, name, t.dtype, t.rank, t.dim, "role=momentum");
        td_sgd(b, p, v, td_gradient(b, loss, p), lr, "momentum=0.9");
    }
    td_output(b, "loss", loss);
    td_output(b, "logits", logits);
    return td_build_end(b, out);
}

/* a batch of stripes in noise; xorshift, so that every machine draws the same */
static void draw(float *images, int64_t *labels)
{
    static unsigned state = 2463534242u;
    for (int n = 0; n < BATCH; n++) {
        labels[n] = n % CLASSES;
        int stripe = (n / CLASSES) % SIDE;
        for (int i = 0; i < 3 * SIDE * SIDE; i++) {
            state ^= state << 13, state ^= state >> 17, state ^= state << 5;
            int at = labels[n] == 0 ? i % SIDE : i / SIDE % SIDE;
            images[n * 3 * SIDE * SIDE + i] = (float)(state % 1000) / 1000 - 0.5f + (at == stripe);
        }
    }
}

static int count_right(const float *logits, const int64_t *labels)
{
    int right = 0;
    for (int n = 0; n < BATCH; n++)
        right += (logits[n * CLASSES + 1] > logits[n * CLASSES]) == (labels[n] == 1);
    return right;
}

/* every step draws new images, so the hits before each update are hits on images never seen */
static td_status train(td_program *p, float *images, int64_t *labels, double *accuracy)
{
    float lr = 0.05f;
    int right = 0, evaluated = 0;
    td_status st = td_program_bind(p, "lr", &lr);
    for (int step = 0; step < STEPS && st == TD_OK; step++) {
        draw(images, labels);
        if ((st = td_program_bind(p, "images", images)) != TD_OK ||
            (st = td_program_bind(p, "labels", labels)) != TD_OK ||
            (st = td_program_run(p)) != TD_OK)
            break;
        if (step % 10 == 0)
            printf("step %2d  loss %.3f\n", step,
                   *(const float *)td_program_output(p, "loss", NULL));
        if (step >= STEPS - 10) {
            right += count_right(td_program_output(p, "logits", NULL), labels);
            evaluated += BATCH;
        }
    }
    *accuracy = evaluated ? 100.0 * right / evaluated : 0;
    return st;
}

int main(void)
{
    static float images[BATCH * 3 * SIDE * SIDE];
    static int64_t labels[BATCH];
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    double accuracy = 0;

    td_status st = training_graph(&g);
    if (st == TD_OK)
        st = td_device_open("cpu", &dev);
    if (st == TD_OK)
        st = td_compile(g, dev, NULL, &p);
    if (st == TD_OK)
        st = td_program_init(p, 1);
    if (st == TD_OK)
        st = train(p, images, labels, &accuracy);
    if (st != TD_OK)
        fprintf(stderr, "%s: %s\n", td_status_text(st), td_error_message());
    else
        printf("accuracy %.1f %%\n", accuracy);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return st == TD_OK && accuracy >= 90 ? 0 : 1;
}
