// Multi-token prediction heads (DeepSeek-V3, GLM-4.5 and later, Qwen3-Next, Qwen 3.5): one more
// layer after the last, which predicts the token after the next one. Used to draft tokens for
// speculative decoding (engine/draft_head.h).
//
// Row i of the head reads the model's final norm output at position i and the embedding of token i
// + 1. Both are normed, and a matrix projects them to one row. The layer has its own KV cache, on
// the same pages. A norm and the model's output matrix give the logits of token i + 2. To draft
// further tokens, the head reads its own normed row in place of the model's. vLLM, SGLang and
// llama.cpp do the same, except that vLLM omits that norm for DeepSeek and GLM, and embeds zeros at
// position 0.
//
// Tensor names are those of llama.cpp's converter:
// blk.N.nextn.{enorm,hnorm,eh_proj,shared_head_norm}, with N the number of layers, in addition to
// the layer's own tensors. The embedding and the output matrix are the model's, unless the file has
// nextn.embed_tokens or nextn.shared_head_head.
// Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.2.
#pragma once

#include <string_view>

#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::model {

// Parts of a Program with a draft head (BuildOptions::draft_head). The last stage computes the
// head; on earlier stages only rank 0 has a part, which receives the logits. On ranks without a
// part, `first` and `next` are empty, and `step` is the whole Program.
struct DraftHeadOps {
    program::OpRange step;   // the model
    program::OpRange first;  // the head, for the rows of the step that has just run
    program::OpRange next;   // as `first`, without the op that computes `state`: the caller has
                             // written it
    // state [T, hidden]: the head's input. made [R, hidden]: the head's output at the output rows,
    // which is the `state` of the next run. logits [R, vocab]: on the last stage and rank 0.
    program::ValueId state = program::kNoValue, made = program::kNoValue,
                     logits = program::kNoValue;
};
DraftHeadOps DraftHeadOf(const program::Program& program);

}  // namespace weft::model
