// Lists the GPUs of this machine, for --version and `weft inspect --devices`.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "gpu/device.h"

namespace weft::cli {

struct GpuList {
    std::vector<gpu::Description> gpus;
    std::string none;  // why the list is empty, in one line
};
GpuList FindGpus();

Json GpusJson(const GpuList& list);
Json ShadersJson();
void PrintGpuLines(const GpuList& list);  // for --version: one line per GPU, and one about shaders
void PrintGpus(const GpuList& list);      // all known facts

}  // namespace weft::cli
