"""Cases of windows over images and volumes: resampling, borders, adaptive pools, unfold and fold."""

import math

import torch


def windows(normal, case):
    x = normal(1, 1, 3, 4)
    for corners in (False, True):
        case("upsample_bicubic2d", x, [5, 7], corners)
        case("upsample_bicubic2d_backward", normal(1, 1, 5, 7), [5, 7], [1, 1, 3, 4], corners)
        case("upsample_trilinear3d", x[None], [3, 2, 6], corners)
        case("upsample_trilinear3d_backward", normal(1, 1, 3, 2, 6), [3, 2, 6], [1, 1, 1, 3, 4], corners)
    case("upsample_nearest3d", x[None], [2, 5, 3])
    case("upsample_nearest3d_backward", normal(1, 1, 2, 5, 3), [2, 5, 3], [1, 1, 1, 3, 4])
    case("_upsample_nearest_exact1d", x[0], [7])
    case("_upsample_nearest_exact1d_backward", normal(1, 3, 7), [7], [1, 3, 4])
    case("_upsample_nearest_exact3d", x[None], [2, 5, 3])
    case("_upsample_nearest_exact3d_backward", normal(1, 1, 2, 5, 3), [2, 5, 3], [1, 1, 1, 3, 4])
    deep = normal(1, 2, 3, 4)
    for name in ("reflection_pad", "replication_pad"):
        case(name + "3d", deep, [2, 1, 0, 2, 1, 0])
        case(name + "3d_backward", normal(1, 3, 5, 7), deep, [2, 1, 0, 2, 1, 0])
    for size in ([1, 1, 1], [2, 2, 3]):
        case("_adaptive_avg_pool3d", deep, size)
        case("_adaptive_avg_pool3d_backward", normal(1, *size), deep)
        case("adaptive_max_pool3d", deep, size)
        case("adaptive_max_pool2d", deep, size[1:])
    edges = torch.tensor([[[1.0, math.nan, 3.0, -math.inf], [2.0, 2.0, 3.0, -math.inf]]])
    case("adaptive_max_pool2d", edges, [1, 2])
    image = normal(2, 2, 5, 4)
    for settings in (([2, 3], [1, 1], [0, 0], [1, 1]), ([2, 2], [2, 1], [1, 1], [2, 1])):
        columns = torch.ops.aten.im2col(image, *settings)
        case("im2col", image, *settings)
        case("im2col", image[0], *settings)
        case("col2im", normal(*columns.shape), [5, 4], *settings)
        case("col2im", normal(*columns.shape[1:]), [5, 4], *settings)
