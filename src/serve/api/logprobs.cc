#include "serve/api/logprobs.h"

#include <algorithm>

namespace weft::serve {
namespace {

// JSON has no infinity.
constexpr double kLeast = -9999;

double Finite(float logprob) {
    return std::max(static_cast<double>(logprob), kLeast);
}

// With invalid UTF-8 as U+FFFD, as the text itself would have it.
std::string Shown(std::string_view piece) {
    return Json::parse(Quoted(piece)).get<std::string>();
}

Json ChanceJson(const tokenizer::Tokenizer& tokenizer, const engine::TokenChance& chance) {
    const std::string_view piece = tokenizer.Piece(chance.id);
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    return {{"token", std::string(piece)},
            {"logprob", Finite(chance.logprob)},
            {"bytes", std::move(bytes)}};
}

}  // namespace

Json ChatLogprobs(const tokenizer::Tokenizer& tokenizer,
                  std::span<const engine::SaidToken> tokens) {
    Json content = Json::array();
    for (const engine::SaidToken& token : tokens) {
        Json json = ChanceJson(tokenizer, token.chance);
        Json best = Json::array();
        for (const engine::TokenChance& chance : token.best) {
            best.push_back(ChanceJson(tokenizer, chance));
        }
        json["top_logprobs"] = std::move(best);
        content.push_back(std::move(json));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json TextLogprobs(const tokenizer::Tokenizer& tokenizer, std::span<const engine::SaidToken> tokens,
                  int64_t& begin) {
    Json texts = Json::array(), chances = Json::array(), best = Json::array(),
         offsets = Json::array();
    for (const engine::SaidToken& token : tokens) {
        const std::string text = Shown(tokenizer.Piece(token.chance.id));
        texts.push_back(text);
        chances.push_back(Finite(token.chance.logprob));
        Json of_token = Json::object();
        for (const engine::TokenChance& chance : token.best) {
            of_token[Shown(tokenizer.Piece(chance.id))] = Finite(chance.logprob);
        }
        best.push_back(std::move(of_token));
        offsets.push_back(begin);
        begin += std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
    }
    return {{"text_offset", std::move(offsets)},
            {"token_logprobs", std::move(chances)},
            {"tokens", std::move(texts)},
            {"top_logprobs", std::move(best)}};
}

Json UsageJson(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.said_tokens},
            {"total_tokens", usage.prompt_tokens + usage.said_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

}  // namespace weft::serve
