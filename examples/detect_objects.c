/*
 * detect_objects.c -- detects objects in image files with a network that stays loaded
 *
 *     cc detect_objects.c $(pkg-config --cflags --libs tandem)
 *     ./a.out ssd320.safetensors street.jpg
 */
#include <stdio.h>

#include "tandem/inference.h"

int main(int argc, char **argv)
{
    td_network_opts opts;
    td_network *net;
    int n_failed = 0;
    td_network_defaults(&opts);
    opts.weights = argv[1];
    if (argc < 3)
        return fprintf(stderr, "usage: %s WEIGHTS IMAGE...\n", argv[0]), 2;
    if (td_network_open(&opts, &net) != TD_OK)
        return fprintf(stderr, "%s\n", td_error_message()), 1;

    for (int i = 2; i < argc; i++) {
        td_predictions *found;
        if (td_network_predict(net, 1, &(td_image_source){ .path = argv[i] }, &found) != TD_OK)
            return fprintf(stderr, "%s\n", td_error_message()), 1;
        const td_found *f = td_predictions_boxes(found, 0);
        if (!f)
            return fprintf(stderr, "%s is a classifier\n", td_network_about(net)->name), 1;
        if (f->st != TD_OK)
            printf("%s: %s\n", f->path, f->message);
        else
            printf("%s: %d x %d pixels, %d boxes\n", f->path, f->width, f->height, f->n);
        for (int k = 0; k < f->n; k++) {
            const td_found_box *b = &f->boxes[k];
            printf("  %.2f %s at %.0f, %.0f, %.0f x %.0f\n", b->score, b->name, b->x, b->y,
                   b->width, b->height);
        }
        n_failed += f->st != TD_OK;
        td_predictions_free(found);
    }
    td_network_close(net);
    return n_failed ? 1 : 0;
}
