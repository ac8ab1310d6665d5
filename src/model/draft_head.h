// Multi-token prediction heads (DeepSeek-V3, GLM-4.5 and later, Qwen3-Next, Qwen 3.5): one more
// layer after the last one, which predicts the token after the next one. It drafts tokens for
// speculative decoding (engine/drafts/draft_head.h).
//
// Row i of the head reads the output of the model's final norm at position i and the embedding of
// token i + 1. A norm is applied to each of them, and a matrix projects both to one row. The layer
// has its own KV cache, on the same pages. A norm and the model's output matrix give the logits of
// token i + 2. To draft further tokens, the head reads its own output row, after its norm, in place
// of the model's. vLLM, SGLang and llama.cpp do the same, with these exceptions: for DeepSeek and
// GLM, vLLM omits that norm, and it uses zeros as the embedding at position 0.
//
// Tensor names are those of llama.cpp's converter:
// blk.N.nextn.{enorm,hnorm,eh_proj,shared_head_norm}, with N the number of layers, in addition to
// the layer's own tensors. The head uses the embedding and the output matrix of the model, unless
// the file has nextn.embed_tokens or nextn.shared_head_head.
// Source: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.2.
//
// A separate head (model_files/draft_source.h) takes its place. There are two kinds.
//
// EAGLE-3:
// Row i reads `state` and the embedding of token i + 1. The first state is the product of fc and
// the residual streams before Hyper::reads at position i, side by side; further states are the
// layer's own output. Queries, keys and values read the normed embedding beside the normed state;
// the layer adds to the state, or to the normed state. A norm and the head's own output matrix give
// logits over the head's vocabulary, which the engine maps to the model's (d2t).
// Sources: Li et al. 2025, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
// Training-Time Test"; llama_eagle3.py of vLLM and of SGLang.
//
// DFlash: drafts a block of tokens in one run. After a step of the model, each layer of the head
// writes keys and values of each row to its cache; all layers compute them from one row, the normed
// product of fc and the residual streams before Hyper::reads. A draft then runs the layers over a
// block: the embeddings of the last token and of Hyper::block - 1 mask tokens, which see the cache
// and, in the layers Hyper::ahead, each other. A norm and the model's output matrix (or the head's)
// give the logits of the masked tokens.
// Sources: Chen et al. 2026, "DFlash: Block Diffusion for Flash Speculative Decoding"; the readers
// of z-lab, vLLM and SGLang.
#pragma once

#include <string_view>

#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::model {

// Parts of a Program with a draft head (BuildOptions::draft_head). The last stage computes the
// head. On earlier stages, only rank 0 has ops for the head: they receive the logits. On ranks
// without such ops, `first` and `next` are empty, and `step` is the whole Program.
struct DraftHeadOps {
    program::OpRange step;   // the model
    program::OpRange first;  // the head, for the rows of the step that has just run
    program::OpRange next;   // as `first`, without the ops up to the one that computes `state`: the
                             // caller has written it. Of a DFlash head: the draft of blocks, and
                             // `first` has no logits
    // state [T, hidden]: the head's input. made [R, hidden]: the head's output at the output rows;
    // it is the `state` of the head's next run. logits [R, vocab]: only on the last stage and on
    // rank 0. (hidden and vocab are the head's.) A DFlash head has only logits.
    program::ValueId state = program::kNoValue, made = program::kNoValue,
                     logits = program::kNoValue;
    // The last value of `first` of a DFlash head. A caller that runs `first` and `next` apart
    // keeps it (CompileOptions::keep), so that no call serves ops of both.
    program::ValueId between = program::kNoValue;
};
DraftHeadOps DraftHeadOf(const program::Program& program);

}  // namespace weft::model
