// Filling in the middle: the tokens by which a model was trained to say what stands between a
// prefix and a suffix, and prompts made of them.
//
// Where they come from: GGUF's tokenizer.ggml.fim_pre_token_id and its like, or the older
// prefix_token_id, suffix_token_id, middle_token_id; else the vocabulary, by the names that
// families of models give them. Mistral's have no token for the middle: the suffix comes first.
// Sources: Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"; for
// prompts of several files Hui et al. 2024, "Qwen2.5-Coder Technical Report".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "model_files/metadata.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

// Ids; -1: the model has no such token.
struct FimTokens {
    int32_t prefix = -1, suffix = -1, middle = -1;
    int32_t pad = -1, repo = -1, file = -1;
    bool suffix_first = false;

    bool ok() const { return prefix >= 0 && suffix >= 0 && (middle >= 0 || suffix_first); }
};

FimTokens FindFim(const model_files::Metadata& meta, const tokenizer::Tokenizer& tokenizer);

using FimFile = std::pair<std::string, std::string>;  // its name, its text

// What a model is to fill in.
struct FimText {
    std::vector<int32_t> prefix, suffix;
    std::vector<int32_t> begun{};               // of the middle
    std::vector<std::vector<int32_t>> files{};  // others, as FileTokens has them
};

// Texts have no markers: no word of theirs becomes one.
std::vector<int32_t> PlainTokens(const tokenizer::Tokenizer& tokenizer, const std::string& text);
// One of the other files, as it stands in a prompt.
std::vector<int32_t> FileTokens(const FimTokens& fim, const tokenizer::Tokenizer& tokenizer,
                                const FimFile& file);
// fim: ok.
std::vector<int32_t> FimPrompt(const FimTokens& fim, const tokenizer::Tokenizer& tokenizer,
                               const FimText& text);
// The answer ends where the model begins another file, or another gap.
void EndAtFim(const FimTokens& fim, engine::Request& request);

}  // namespace weft::serve
