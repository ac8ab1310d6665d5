// Lists the GPUs of this machine, for --version and `weft inspect --devices`.
#pragma once

#include "cli/terminal/output.h"
#include "gpu/cards.h"

namespace weft::cli {

Json GpusJson(const gpu::Cards& list);
// Why the list has no card, in one line; "" if it has one.
std::string NoGpuText(const gpu::Cards& list);
Json ShadersJson();
void PrintGpuLines(
    const gpu::Cards& list);             // for --version: one line per GPU, and one about shaders
void PrintGpus(const gpu::Cards& list);  // all known facts

}  // namespace weft::cli
