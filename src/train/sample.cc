#include "train/sample.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/sampling/logits_row.h"
#include "engine/sampling/sampler.h"
#include "tokenizer/stream.h"

namespace weft::train {
namespace {

constexpr size_t kMostPrompts = 256;
constexpr size_t kMostFileBytes = 16 << 20;
constexpr int64_t kMostTokens = 1 << 20;

}  // namespace

Status CheckSampleOptions(const SampleOptions& words) {
    if (words.every < 0 || words.tokens < 1 || words.tokens > kMostTokens) {
        return MakeError(ErrorCode::kUsage,
                         "--sample-every {} --sample-tokens {}: expected 0 (at each evaluation) or "
                         "more, and 1 to {}",
                         words.every, words.tokens, kMostTokens);
    }
    if (!(words.temperature >= 0 && words.temperature <= 100)) {
        return MakeError(ErrorCode::kUsage, "--sample-temperature {}: expected 0 to 100",
                         words.temperature);
    }
    for (const std::string& prompt : words.prompts) {
        if (IsUtf8(prompt)) continue;
        return MakeError(ErrorCode::kUsage, "--sample: a prompt of {} bytes is not UTF-8",
                         prompt.size());
    }
    if (words.prompts.size() <= kMostPrompts) return {};
    return MakeError(ErrorCode::kUsage, "{} prompts to be sampled: expected at most {}",
                     words.prompts.size(), kMostPrompts);
}

Result<std::vector<std::string>> ReadPrompts(const std::string& path) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kMostFileBytes));
    std::vector<std::string> prompts;
    int64_t number = 0;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        std::string line = text.substr(begin, end - begin);
        begin = end + 1;
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) continue;
        if (line.front() == '"') {
            const auto parsed = JsonOrDiscarded(line);
            if (!parsed.is_string()) {
                return MakeError(
                    ErrorCode::kUsage,
                    "--sample-file {}: line {} begins with \", but is not a JSON string", path,
                    number);
            }
            line = parsed.get<std::string>();
        }
        prompts.push_back(std::move(line));
    }
    if (!prompts.empty()) return prompts;
    return MakeError(ErrorCode::kUsage, "--sample-file {}: expected one prompt per line", path);
}

Result<TextSampler> TextSampler::Make(const SampleOptions& words,
                                      const tokenizer::Tokenizer& tokenizer, int64_t vocab,
                                      int64_t sequence, uint64_t seed) {
    TextSampler sampler(words, tokenizer, sequence, seed);
    for (const std::string& text : words.prompts) {
        Prompt prompt{text, tokenizer.Encode(text, {.parse_special = true})};
        const auto count = static_cast<int64_t>(prompt.tokens.size());
        if (count < 1 || count >= sequence) {
            return MakeError(ErrorCode::kUsage,
                             "--sample '{}': {} tokens; expected 1 to {}, because prompt and text "
                             "must fit into one sequence (--seq-len {})",
                             text, count, sequence - 1, sequence);
        }
        if (*std::ranges::max_element(prompt.tokens) >= vocab) {
            return MakeError(ErrorCode::kCorrupt,
                             "--sample '{}': the tokenizer has token {}, the model a vocabulary of "
                             "{}: they do not belong together",
                             text, *std::ranges::max_element(prompt.tokens), vocab);
        }
        sampler.prompts_.push_back(std::move(prompt));
    }
    return sampler;
}

Result<std::vector<SampleText>> TextSampler::Say(Trainer& trainer) const {
    std::vector<SampleText> all;
    for (size_t i = 0; i < prompts_.size(); ++i) {
        WEFT_ASSIGN(std::optional<std::string> text, Continue(trainer, prompts_[i], seed_ + i));
        if (!text) break;
        all.push_back({prompts_[i].text, *std::move(text)});
    }
    return all;
}

Result<std::optional<std::string>> TextSampler::Continue(Trainer& trainer, const Prompt& prompt,
                                                         uint64_t seed) const {
    engine::SamplerOptions options;
    options.temperature = static_cast<float>(words_.temperature);
    options.seed = seed;
    engine::Sampler sampler(options);
    tokenizer::StreamDecoder decoder(*tokenizer_);
    std::vector<int32_t> tokens = prompt.tokens;
    std::string text;
    for (int64_t said = 0; said < words_.tokens; ++said) {
        if (static_cast<int64_t>(tokens.size()) >= sequence_) break;
        WEFT_ASSIGN(const std::optional<int32_t> token,
                    trainer.NextToken(tokens, [&](std::span<const float> logits) {
                        return sampler.Sample(logits, tokens);
                    }));
        if (!token) return std::optional<std::string>();
        if (tokenizer_->IsEog(*token)) break;
        text += decoder.Push(*token);
        tokens.push_back(*token);
    }
    return std::optional(text + decoder.Flush());
}

}  // namespace weft::train
