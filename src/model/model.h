// Models: which architectures Weft knows, and the Program of one rank's share of one.
//
// One file an architecture (llama.cc, qwen2.cc, qwen3.cc), each a function that reads like the
// paper; kArchitectures in model.cc is the list of them.
#pragma once

#include <string>

#include "model/builder.h"

namespace weft::model {

// The architectures that BuildProgram takes, as "llama, qwen2, qwen3".
std::string SupportedArchitectures();
bool IsSupported(const std::string& architecture);

// The Program of `shard`. Its inputs are "tokens", "positions" and "output_rows"; rank 0's Program
// (in training: those of the last stage) leaves "logits" [R, vocab].
// Errors: kUnsupported (architecture), kCorrupt (tensors).
Result<program::Program> BuildProgram(const Hyper& hyper, const Shard& shard,
                                      const formats::ModelSource& source,
                                      const BuildOptions& options);

// Each builder emits the layers of this stage from residual stream to residual stream.
program::ValueId BuildLlama(Builder& b, program::ValueId x);
program::ValueId BuildQwen2(Builder& b, program::ValueId x);
program::ValueId BuildQwen3(Builder& b, program::ValueId x);

}  // namespace weft::model
