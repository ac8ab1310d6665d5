// Fill-in-the-middle (FIM): a model's FIM tokens, and prompts made with them.
//
// The tokens come from GGUF metadata: tokenizer.ggml.fim_pre_token_id and similar, or the older
// prefix_token_id, suffix_token_id and middle_token_id. Otherwise they are found in the vocabulary
// by the names that model families use. Mistral models have no middle token; their suffix comes
// first.
// Sources: Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle";
// prompts with several files: Hui et al. 2024, "Qwen2.5-Coder Technical Report".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "model_files/metadata.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

// Token ids; -1: the model has no such token.
struct FimTokens {
    int32_t prefix = -1, suffix = -1, middle = -1;
    int32_t pad = -1, repo = -1, file = -1;
    bool suffix_first = false;

    bool ok() const { return prefix >= 0 && suffix >= 0 && (middle >= 0 || suffix_first); }
};

FimTokens FindFim(const model_files::Metadata& meta, const tokenizer::Tokenizer& tokenizer);

using FimFile = std::pair<std::string, std::string>;  // name, text

// Input of a FIM prompt.
struct FimText {
    std::vector<int32_t> prefix, suffix;
    std::vector<int32_t> begun{};               // beginning of the middle
    std::vector<std::vector<int32_t>> files{};  // context files, each from FileTokens
};

// Tokenizes text without recognizing special tokens.
std::vector<int32_t> PlainTokens(const tokenizer::Tokenizer& tokenizer, const std::string& text);
// A context file with its FIM markers.
std::vector<int32_t> FileTokens(const FimTokens& fim, const tokenizer::Tokenizer& tokenizer,
                                const FimFile& file);
// Precondition: fim.ok().
std::vector<int32_t> FimPrompt(const FimTokens& fim, const tokenizer::Tokenizer& tokenizer,
                               const FimText& text);
// Adds stop tokens: generation ends where the model begins another file or another gap.
void EndAtFim(const FimTokens& fim, engine::Request& request);

}  // namespace weft::serve
