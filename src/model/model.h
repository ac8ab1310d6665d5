// The supported model architectures, and the Program of one rank's shard of a model.
//
// Each family of models has a file (llama.cc, qwen2.cc, gemma.cc, ...) with a function that reads
// like the paper about the models. kArchitectures in model.cc lists the families.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.h"

namespace weft::model {

// Facts about an architecture: a row of docs/models.md.
struct Family {
    std::string_view architecture;  // general.architecture in its files
    std::string_view models;        // "Llama 1-3.x, Mistral"
    std::string_view features;      // features in addition to attention and a gated MLP
    std::string_view tested;        // test cases compared with an independent implementation
};
std::vector<Family> Families();

// The architectures that BuildProgram supports, as "gemma2, gemma3, ...".
std::string SupportedArchitectures();
bool IsSupported(const std::string& architecture);
// Whether BuildProgram supports the multi-token prediction head of this architecture
// (draft_head.h).
bool KnowsDraftHead(const std::string& architecture);
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

// Bytes of one slot of recurrent state in all layers, on one rank that holds the whole model; 0:
// the model has none. Errors: those of BuildProgram.
Result<int64_t> StateBytesPerSlot(const Hyper& hyper, const model_files::ModelSource& source);

// Each of these functions emits this stage's layers; it takes the residual stream before them and
// returns the residual stream after them.
program::ValueId BuildLlama(Builder& b, program::ValueId x);
program::ValueId BuildLlama4(Builder& b, program::ValueId x);
program::ValueId BuildDeepSeek2(Builder& b, program::ValueId x);
program::ValueId BuildDeepSeek4(Builder& b, program::ValueId x);
program::ValueId BuildCohere2(Builder& b, program::ValueId x);
program::ValueId BuildExaone4(Builder& b, program::ValueId x);
program::ValueId BuildExaoneMoe(Builder& b, program::ValueId x);
program::ValueId BuildGlm4(Builder& b, program::ValueId x);
program::ValueId BuildHunyuan(Builder& b, program::ValueId x);
program::ValueId BuildKimiLinear(Builder& b, program::ValueId x);
program::ValueId BuildLfm2(Builder& b, program::ValueId x);
program::ValueId BuildAfmoe(Builder& b, program::ValueId x);
program::ValueId BuildMuseGlimmer(Builder& b, program::ValueId x);
program::ValueId BuildLaguna(Builder& b, program::ValueId x);
program::ValueId BuildMimo2(Builder& b, program::ValueId x);
program::ValueId BuildStep35(Builder& b, program::ValueId x);
program::ValueId BuildQwen2(Builder& b, program::ValueId x);
program::ValueId BuildQwen3(Builder& b, program::ValueId x);
program::ValueId BuildQwen3Next(Builder& b, program::ValueId x);
program::ValueId BuildGlm4Moe(Builder& b, program::ValueId x);
program::ValueId BuildGptOss(Builder& b, program::ValueId x);
program::ValueId BuildMiniMaxM2(Builder& b, program::ValueId x);
program::ValueId BuildDeci(Builder& b, program::ValueId x);
program::ValueId BuildGemma1(Builder& b, program::ValueId x);
program::ValueId BuildGemma2(Builder& b, program::ValueId x);
program::ValueId BuildGemma3(Builder& b, program::ValueId x);
program::ValueId BuildGemma4(Builder& b, program::ValueId x);
program::ValueId BuildGranite(Builder& b, program::ValueId x);
program::ValueId BuildNemotronH(Builder& b, program::ValueId x);
program::ValueId BuildFalconH1(Builder& b, program::ValueId x);
program::ValueId BuildOlmo2(Builder& b, program::ValueId x);
program::ValueId BuildPhi3(Builder& b, program::ValueId x);
program::ValueId BuildSmolLm3(Builder& b, program::ValueId x);

}  // namespace weft::model
