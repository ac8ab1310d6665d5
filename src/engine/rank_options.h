// What a rank asks of its Program and of its device, by the job: the same for a rank that runs and
// for one that is only planned (`weft plan`).
#pragma once

#include <cstdint>

#include "backend/device.h"
#include "backend/executable.h"
#include "base/result.h"
#include "engine/job.h"
#include "model/builder.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "program/program.h"

namespace weft::engine {

// What a rank takes of its host beside weights, KV cache and activations: code, tokenizer, links,
// the allocator.
inline constexpr uint64_t kRankBytes = uint64_t{64} << 20;

// Of the KV cache: reference kernels have float32.
DType KvTypeOf(const Job& job);
// Errors: kUnsupported (heads that are no whole blocks of the type). name: the model's.
Status CheckKvType(const model::Hyper& hyper, DType kv_dtype, const std::string& name);

model::BuildOptions BuildOptionsOf(const Job& job, const model::Layout& layout,
                                   const program::Target& target);

// uses_host_cores: as in DeviceInfo. one_host: no two ranks are on different hosts.
backend::CompileOptions CompileOptionsOf(const Job& job, const model::Layout& layout,
                                         const program::Program& program,
                                         const program::Target& target, bool uses_host_cores,
                                         bool one_host);

}  // namespace weft::engine
