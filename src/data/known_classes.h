/*
 * data/known_classes.h -- the class lists of ImageNet and COCO, used by published weights
 *
 * The texts are data/imagenet_classes.txt (the 1000 WordNet ids of ILSVRC 2012, sorted, as folders
 * of the data set are named, each with a name) and data/coco_classes.txt (the 80 categories of COCO
 * with their ids, which have gaps).
 *
 *     td_known_classes k;
 *     TD_TRY(td_known_classes_open(TD_KNOWN_IMAGENET, &k));
 *     td_known_classes_find(&k, "n01443537")              -> 1; k.names[1] is "goldfish"
 *     td_known_classes_release(&k);
 */
#ifndef TD_DATA_KNOWN_CLASSES_H
#define TD_DATA_KNOWN_CLASSES_H

#include "base/status.h"

typedef enum { TD_KNOWN_IMAGENET, TD_KNOWN_COCO } td_known_list;

enum { TD_IMAGENET_CLASSES = 1000, TD_COCO_CLASSES = 80, TD_COCO_LARGEST_ID = 90 };

/** All zero is empty.  Texts belong to the struct. */
typedef struct {
    int n;
    const char **ids;   /* [n] "n01440764", or for COCO "1"; ImageNet's are in byte order */
    const char **names; /* [n] "tench"; "person" */
    char *text;         /* the memory of both */
} td_known_classes;

/** Parse an embedded list.  TD_ENOMEM. */
TD_CHECKED td_status td_known_classes_open(td_known_list list, td_known_classes *out);
void td_known_classes_release(td_known_classes *k);

/** The index of an id; -1: unknown.  For ImageNet's list only: bisects its sorted ids. */
int td_known_classes_find(const td_known_classes *imagenet, const char *id);

#endif
