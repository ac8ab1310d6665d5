// The Program of one rank's shard of a model of a supported architecture (architecture.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/builder.h"

namespace weft::model {

std::vector<Family> Families();  // by name

// The architectures that BuildProgram supports, as "gemma2, gemma3, ...".
std::string SupportedArchitectures();
bool IsSupported(const std::string& architecture);
// Whether BuildProgram supports the multi-token prediction head of this architecture
// (draft_head.h).
bool SupportsDraftHead(const std::string& architecture);
// Checks that the model has a multi-token prediction head that Weft supports. Errors: kUsage.
Status CheckDraftHead(const Hyper& hyper, const std::string& model);

// Builds the Program of `shard`. The Program's inputs are "tokens", "positions" and "output_rows".
// Rank 0 (in training, each rank of the last stage) gets the outputs: "logits" [R, vocab], or the
// values that BuildOptions::outputs names. Errors: kUnsupported (architecture), kCorrupt (tensors).
Result<program::Program> BuildProgram(const Hyper& hyper, const Shard& shard,
                                      const model_files::ModelSource& source,
                                      const BuildOptions& options);

// Bytes per position of a sequence in the KV caches of all layers, on one rank that holds the whole
// model. draft_head: add the cache of the draft head. Errors: those of BuildProgram.
Result<int64_t> CacheBytesPerToken(const Hyper& hyper, const model_files::ModelSource& source,
                                   KvTypes kv_dtype, bool draft_head = false);

}  // namespace weft::model
