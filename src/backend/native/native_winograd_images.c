/*
 * native_winograd_images.c -- the layouts of images and transformed tiles of Winograd's kernels
 */
#include <string.h>

#include "backend/native/native_winograd.h"
#include "tandem/program.h"

td_native_wino_image td_native_wino_image_of(const td_type *t)
{
    const int64_t area = t->dim[2] * t->dim[3];
    if (strcmp(t->layout, "acdb") == 0)
        return (td_native_wino_image){ .pixel = t->dim[1],
                                       .block = TD_WINO_LANES,
                                       .half = TD_WINO_HALF };
    if (strcmp(t->layout, "aBcd8b") == 0)
        return (td_native_wino_image){ .pixel = TD_WINO_HALF,
                                       .block = TD_WINO_LANES * area,
                                       .half = TD_WINO_HALF * area };
    return (td_native_wino_image){ .pixel = TD_WINO_LANES,
                                   .block = TD_WINO_LANES * area,
                                   .half = TD_WINO_HALF };
}

int64_t td_native_wino_step(int64_t channels, int64_t room)
{
    return (channels / TD_WINO_LANES * room | 1) * TD_WINO_LANES;
}

td_status td_native_wino_check_halves(void)
{
    const int lanes = td_native_wino_simd_at(TD_DT_F32, 0)->lanes;
    return lanes <= TD_WINO_HALF
               ? TD_OK
               : td_error(TD_ENOKERNEL, "blocks of %d channels for registers of %d lanes",
                          TD_WINO_HALF, lanes);
}

bool td_native_wino_prefers_halves(const td_type *t)
{
    return td_native_wino_simd_at(TD_DT_F32, 0)->lanes <= TD_WINO_HALF &&
           strcmp(t->layout, "aBcd16b") != 0;
}
