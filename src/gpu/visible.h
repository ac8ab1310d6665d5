// The variables by which a user of CUDA and HIP chooses GPUs (CUDA_VISIBLE_DEVICES,
// HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES), and their effect on Vulkan's devices. Batch systems
// set them on machines that several users share, and Vulkan does not read them.
//
// Thread: any; as getenv.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"

namespace weft::gpu {

// The variables that are set, of those that choose the devices of one interface:
// "CUDA_VISIBLE_DEVICES=2,0", or "".
std::string VisibleText(Api api);

// Hides the GPUs of `api` that `shown`, the interface's own list, does not have, and gives the
// others its order. text: VisibleText. If `shown` is an error, one GPU of the vendor stays if it is
// the only one and the variables name the first one; GPUs that may belong to another user become
// unusable.
void HideOthers(Api api, const std::string& text, const Result<std::vector<Description>>& shown,
                std::vector<Description>& devices);

}  // namespace weft::gpu
