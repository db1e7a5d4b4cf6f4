/*
 * classify_image.c -- classifies image files with a network that stays loaded
 *
 *     cc classify_image.c $(pkg-config --cflags --libs tandem)
 *     ./a.out resnet50.safetensors cat.jpg dog.png
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
        const td_prediction *p = td_predictions_classes(found, 0);
        if (!p)
            return fprintf(stderr, "%s is a detector\n", td_network_about(net)->name), 1;
        if (p->st != TD_OK)
            printf("%s: %s\n", p->path, p->message);
        else
            for (int k = 0; k < p->n; k++)
                printf("%s: %5.1f %% %s\n", p->path, 100 * p->probability[k], p->name[k]);
        n_failed += p->st != TD_OK;
        td_predictions_free(found);
    }
    td_network_close(net);
    return n_failed ? 1 : 0;
}
