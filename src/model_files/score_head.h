// How a reranker computes the score of a query and a document.
//
// A model "...ForSequenceClassification" has a matrix of one row per label, "cls.output", and
// often another before it: "cls" (tanh; ModernBERT: GELU, then the LayerNorm "cls.norm"). It reads
// the first token's state, or the last one's in causal models. A folder's config.json may name the
// activation (sentence-transformers); default: sigmoid, as for the single label that Weft supports.
//
// A causal language model scores by the logits of two tokens, as LogitScore of
// sentence-transformers and vLLM do. llama.cpp stores the two rows of Qwen3-Reranker's output
// matrix as "cls.output"; the softmax over them is the sigmoid of their difference.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "model_files/embedding_head.h"
#include "model_files/model_file.h"

namespace weft::model_files {

// The tensors of such a matrix, which no Program reads.
bool IsOfScoreHead(std::string_view tensor);
bool HasScoreHead(const ModelSource& source);

// Whether the model reads a pair as messages, if its chat template supports them: a folder of
// sentence-transformers states this in sentence_bert_config.json (modality_config).
Result<bool> ReadsMessages(const ModelSource& source);

// Sets the poolings, steps and activation of `head`. Errors: kUnsupported (several labels, an
// activation), kCorrupt (shapes), and errors of reading.
Status ReadScoreHead(const ModelSource& source, EmbeddingHead& head);

// Makes `head` score by the logits of these tokens: rows of the model's output matrix. Errors:
// kUnsupported (no such row), and errors of reading.
Status SetScoreTokens(const ModelSource& source, ScoreTokens tokens, EmbeddingHead& head);

}  // namespace weft::model_files
