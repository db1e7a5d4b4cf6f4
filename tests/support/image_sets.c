/*
 * image_sets.c -- write small image files and folders of them, for tests of data sets
 */
#include "support/image_sets.h"

#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"
#include "image/image.h"
#include "support/expect.h"

static void make_folder_of(const char *path)
{
    char folder[4096];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(td_path_base(path) - path), path);
    if (*folder)
        expect_ok(td_make_folder(folder));
}

void td_write_image(const char *path, int kind, uint64_t seed, int width, int height)
{
    td_image img = { 0 };
    td_text bytes = { 0 };
    td_rng r = td_rng_make(seed, TD_RNG_TEST, (uint64_t)kind, 0);
    expect_ok(td_image_draw_sample(kind, &r, width, height, &img));
    if (td_text_ends(path, ".png"))
        expect_ok(td_image_encode_png(&img, &bytes));
    else
        expect_ok(td_image_encode_jpeg(&img, 90, &bytes));
    make_folder_of(path);
    expect_ok(td_file_write(path, bytes.data, bytes.len));
    td_image_release(&img);
    td_text_release(&bytes);
}

void td_write_text(const char *path, const char *text)
{
    make_folder_of(path);
    expect_ok(td_file_write(path, text, strlen(text)));
}

void td_write_folder(const char *root, const char *split, int n_classes, int per_class, int size)
{
    char path[4096];
    for (int c = 0; c < n_classes; c++) {
        for (int i = 0; i < per_class; i++) {
            (void)snprintf(path, sizeof path, "%s/%s/class%d/%03d.jpg", root, split, c, i);
            td_write_image(path, c, (uint64_t)i, size, size);
        }
    }
}
