/*
 * image_sets.h -- write small image files and folders of them, for tests of data sets
 */
#ifndef TD_TEST_IMAGE_SETS_H
#define TD_TEST_IMAGE_SETS_H

#include <stdint.h>

/** Draw kind `kind` as JPEG, or as PNG where the name ends in .png.  Folders are made. */
void td_write_image(const char *path, int kind, uint64_t seed, int width, int height);

void td_write_text(const char *path, const char *text);

/** <root>/<split>/class<c>/<i>.jpg, `per_class` images of each of `n_classes`. */
void td_write_folder(const char *root, const char *split, int n_classes, int per_class, int size);

#endif
