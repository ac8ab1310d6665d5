// The GPUs of this machine, as --version and `weft inspect --devices` show them.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "gpu/device.h"

namespace weft::cli {

struct GpuList {
    std::vector<gpu::Description> gpus;
    std::string none;  // where there is none: why, in one line
};
GpuList FindGpus();

Json GpusJson(const GpuList& list);
Json ShadersJson();
void PrintGpuLines(const GpuList& list);  // of --version: a line for each, and one of shaders
void PrintGpus(const GpuList& list);      // all that is known

}  // namespace weft::cli
