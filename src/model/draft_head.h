// Multi-token prediction heads (DeepSeek-V3, GLM-4.5 and later, Qwen3-Next, Qwen 3.5): one more
// layer behind the last, which predicts the token after the next one. Drafts come from it
// (engine/draft_head.h).
//
// Row i of the head takes what the model's final norm made of position i, and the embedding of the
// token at i + 1; both are normed, and a matrix makes one row of the two. The layer has a KV cache
// of its own, on the same pages. A norm and the model's output matrix give the logits of token
// i + 2. To go on from there, the head takes its own normed row in place of the model's. vLLM,
// SGLang and llama.cpp do the same, but that vLLM leaves out that norm for DeepSeek and GLM, and
// embeds zeros at position 0.
//
// Names are those of llama.cpp's converter: blk.N.nextn.{enorm,hnorm,eh_proj,shared_head_norm}, N
// the number of layers, beside the layer's own tensors. The embedding and the output matrix are the
// model's, unless the file has nextn.embed_tokens or nextn.shared_head_head.
// Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.2.
#pragma once

#include <string_view>

#include "program/chunks.h"
#include "program/program.h"

namespace weft::model {

// Parts of a Program with a draft head (BuildOptions::draft_head), which the last stage has; of
// earlier stages rank 0 gets the logits. Where a rank has no part in it, `first` and `next` are
// empty, and `step` is all of the Program.
struct DraftHeadOps {
    program::OpRange step;   // the model
    program::OpRange first;  // the head, behind rows of the step that has just run
    program::OpRange next;   // the same, but for the op that makes `state`: a caller has written it
    // [T, hidden]: what the head continues; [R, hidden]: what it made of the output rows, to be the
    // state of the next run; [R, vocab]: of the last stage, and of rank 0.
    program::ValueId state = program::kNoValue, made = program::kNoValue,
                     logits = program::kNoValue;
};
DraftHeadOps DraftHeadOf(const program::Program& program);

}  // namespace weft::model
