// Options of a rank's Program and device, derived from the job. Running ranks and `weft plan` share
// this code.
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

// Host memory of a rank in addition to weights, KV cache and activations: code, tokenizer, links,
// allocator.
inline constexpr uint64_t kRankBytes = uint64_t{64} << 20;

// Types of the KV cache: job.kv_dtype, or f32 for reference kernels.
KvTypes KvTypesOf(const Job& job);
// Errors: kUnsupported (a head size is not a multiple of its type's block; the types differ, but
// the model has one cache for keys and values). name: the model's name, for the message.
Status CheckKvTypes(const model::Hyper& hyper, const KvTypes& types, const std::string& name);

model::BuildOptions BuildOptionsOf(const Job& job, const model::Layout& layout,
                                   const program::Target& target);

// one_host: all ranks are on one host.
backend::CompileOptions CompileOptionsOf(const Job& job, const model::Layout& layout,
                                         const program::Program& program,
                                         const program::Target& target, bool one_host);

}  // namespace weft::engine
