#include "serve/api/openai/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/utf8.h"

namespace weft::serve {
namespace {

// Replaces -infinity, which JSON cannot represent.
constexpr double kLeast = -9999;

double Finite(float logprob) {
    return std::max(static_cast<double>(logprob), kLeast);
}

// Replaces invalid UTF-8 by U+FFFD, as in the text.
std::string Shown(std::string_view piece) {
    return Json::parse(Quoted(piece)).get<std::string>();
}

// The token's text as a name: tokens that are parts of characters have names of their own.
std::string NameOf(const tokenizer::Tokenizer& tokenizer, int32_t id, TokenNames names) {
    if (names == TokenNames::kIds) return fmt::format("token_id:{}", id);
    const std::string_view piece = tokenizer.Piece(id);
    if (IsUtf8(piece)) return std::string(piece);
    std::string name = "bytes:";
    for (const char c : piece) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return name;
}

Json ChanceJson(const tokenizer::Tokenizer& tokenizer, const engine::TokenChance& chance,
                TokenNames names) {
    const std::string_view piece = tokenizer.Piece(chance.id);
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    const bool ids = names == TokenNames::kIds;
    return {{"token", ids ? NameOf(tokenizer, chance.id, names) : std::string(piece)},
            {"logprob", Finite(chance.logprob)},
            {"bytes", std::move(bytes)}};
}

}  // namespace

TokenNames ReadTokenNames(Fields& fields) {
    return fields.Bool("return_tokens_as_token_ids", false) ? TokenNames::kIds : TokenNames::kTexts;
}

Json TokenJson(const tokenizer::Tokenizer& tokenizer, const engine::GeneratedToken& token,
               TokenNames names) {
    Json json = ChanceJson(tokenizer, token.chance, names);
    Json best = Json::array();
    for (const engine::TokenChance& chance : token.best) {
        best.push_back(ChanceJson(tokenizer, chance, names));
    }
    json["top_logprobs"] = std::move(best);
    return json;
}

std::string ChatLogprobs(const tokenizer::Tokenizer& tokenizer,
                         std::span<const engine::GeneratedToken> tokens, TokenNames names) {
    std::string out = R"({"content":[)";
    for (const engine::GeneratedToken& token : tokens) {
        if (&token != tokens.data()) out += ',';
        out += Dump(TokenJson(tokenizer, token, names));
    }
    out += R"(],"refusal":null})";
    return out;
}

int64_t Characters(std::string_view text) {
    return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

int64_t Characters(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> tokens) {
    int64_t characters = 0;
    for (const int32_t token : tokens) characters += Characters(tokenizer.Piece(token));
    return characters;
}

std::string TextLogprobs(const tokenizer::Tokenizer& tokenizer,
                         std::span<const engine::GeneratedToken> tokens, int64_t& begin,
                         TokenNames names) {
    std::string texts, logprobs, best, offsets;
    for (const engine::GeneratedToken& token : tokens) {
        if (&token != tokens.data()) {
            for (std::string* list : {&texts, &logprobs, &best, &offsets}) *list += ',';
        }
        texts += Quoted(NameOf(tokenizer, token.chance.id, names));
        const bool first = std::isnan(token.chance.logprob);
        logprobs += first ? "null" : Dump(Finite(token.chance.logprob));
        Json of_token = Json::object();
        for (const engine::TokenChance& chance : token.best) {
            of_token.emplace(NameOf(tokenizer, chance.id, names), Finite(chance.logprob));
        }
        best += first ? "null" : Dump(of_token);
        offsets += std::to_string(std::max<int64_t>(begin, 0));
        begin += Characters(tokenizer.Piece(token.chance.id));
    }
    return fmt::format(
        R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})",
        offsets, logprobs, texts, best);
}

std::string PromptLogprobs(const tokenizer::Tokenizer& tokenizer,
                           std::span<const engine::GeneratedToken> prompt) {
    std::string list = "[";
    for (const engine::GeneratedToken& token : prompt) {
        if (list.size() > 1) list += ',';
        if (std::isnan(token.chance.logprob)) {
            list += "null";
            continue;
        }
        Json logprobs = Json::object();
        const auto add = [&](const engine::TokenChance& chance, int64_t rank) {
            logprobs[std::to_string(chance.id)] = {
                {"logprob", Finite(chance.logprob)},
                {"rank", rank},
                {"decoded_token", Shown(tokenizer.Piece(chance.id))}};
        };
        add(token.chance, token.rank);
        int64_t rank = 0;
        for (const engine::TokenChance& chance : token.best) {
            ++rank;
            if (chance.id != token.chance.id) add(chance, rank);
        }
        list += Dump(logprobs);
    }
    list += ']';
    return list;
}

Json UsageJson(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.generated_tokens},
            {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

}  // namespace weft::serve
