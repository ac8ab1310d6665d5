#include "tokenizer/read_tiktoken.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "tokenizer/base64.h"
#include "tokenizer/byte_spelling.h"
#include "tokenizer/families.h"
#include "tokenizer/frame.h"
#include "tokenizer/parts.h"
#include "tokenizer/pipeline.h"

namespace weft::tokenizer {
namespace {

constexpr size_t kMostTokenBytes = 1024;

struct KnownToken {
    std::string_view text;
    int32_t behind;  // id minus the number of ranks
};
constexpr KnownToken kLlama[] = {{"<|begin_of_text|>", 0},   {"<|end_of_text|>", 1},
                                 {"<|start_header_id|>", 6}, {"<|end_header_id|>", 7},
                                 {"<|eom_id|>", 8},          {"<|eot_id|>", 9},
                                 {"<|python_tag|>", 10}};
constexpr KnownToken kLlama4[] = {
    {"<|begin_of_text|>", 0}, {"<|end_of_text|>", 1}, {"<|header_start|>", 5},
    {"<|header_end|>", 6},    {"<|eom|>", 7},         {"<|eot|>", 8},
    {"<|python_start|>", 16}, {"<|python_end|>", 17}, {"<|finetune_right_pad|>", 18}};
constexpr KnownToken kQwen[] = {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}};
constexpr KnownToken kO200k[] = {{"<|endoftext|>", 1}, {"<|return|>", 4}, {"<|constrain|>", 5},
                                 {"<|channel|>", 7},   {"<|start|>", 8},  {"<|end|>", 9},
                                 {"<|message|>", 10},  {"<|call|>", 14}};
constexpr KnownToken kKimi[] = {{"[BOS]", 0}, {"[EOS]", 1}, {"<|im_end|>", 2}};

struct FileFamily {
    std::string_view name;        // name in families.h
    std::string_view model_type;  // prefix of config.json's model_type
    size_t ranks;
    std::span<const KnownToken> known;
    size_t reserved;      // ids after the ranks that are special tokens, named or not
    bool begins = false;  // the first two of these begin and end a text
};
// (Of two prefixes of a model_type, the longer one comes first.)
constexpr FileFamily kFamilies[] = {{"kimi-k2", "kimi", 163584, kKimi, 256},
                                    {"o200k", "llama4", 200000, kLlama4, 2048, true},
                                    {"llama-bpe", "llama", 128000, kLlama, 256, true},
                                    {"o200k", "gpt_oss", 199998, kO200k, 0},
                                    {"qwen", "qwen", 151643, kQwen, 0}};
// A file of as many tokens belongs to a published model.
constexpr size_t kLeastPublished = 100'000;

// A later model of a type may split words by other rules (Qwen3.5): a large file counts only if its
// number of tokens is known, too. (CheckSize compares this number with the family's number.)
Result<const FileFamily*> FindFamily(const TokenizerHints& hints, size_t ranks) {
    std::string known;
    const bool sized =
        ranks < kLeastPublished || std::ranges::count(kFamilies, ranks, &FileFamily::ranks) > 0;
    for (const FileFamily& family : kFamilies) {
        const bool typed = sized && hints.model_type.starts_with(family.model_type);
        if (hints.model_type.empty() ? ranks == family.ranks : typed) return &family;
        known += fmt::format("{}{} ({} tokens)", known.empty() ? "" : ", ", family.model_type,
                             family.ranks);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "tiktoken file of {} tokens, model_type '{}': its pre-tokenizer is unknown; "
                     "known families: {}",
                     ranks, hints.model_type.substr(0, 80), known);
}

// A tiktoken file of another model would give wrong ids without an error. So its number of tokens
// must not be the number of another family, and must fit the model's embedding, which may have
// spare rows.
Status CheckSize(const FileFamily& family, const TokenizerHints& hints, size_t ranks) {
    constexpr size_t kMostSpare = 4096;
    const auto* other = std::ranges::find(kFamilies, ranks, &FileFamily::ranks);
    const bool of_other = other != std::end(kFamilies) && other->ranks != family.ranks;
    const auto rows = static_cast<size_t>(hints.vocab_size);
    const bool fits = rows == 0 || (ranks + family.reserved <= rows && rows - ranks <= kMostSpare);
    if (!of_other && fits) return {};
    return MakeError(
        ErrorCode::kCorrupt,
        "tiktoken file of {} tokens{}; the model ({}) has {} rows in its embedding, and "
        "files of its family have {} tokens. Get the model's own file",
        ranks, of_other ? fmt::format(", as {} has", other->model_type) : "",
        hints.model_type.substr(0, 80), hints.vocab_size, family.ranks);
}

Status ReadLine(std::string_view line, size_t number, std::vector<std::string>& tokens) {
    const auto wrong = [&](std::string_view what) {
        return MakeError(ErrorCode::kCorrupt,
                         "line {}: {}; expected a token in base64 and its "
                         "rank",
                         number, what);
    };
    const size_t space = line.find(' ');
    std::string bytes;
    if (space == line.npos || !DecodeBase64(line.substr(0, space), bytes)) {
        return wrong("no base64");
    }
    if (bytes.empty() || bytes.size() > kMostTokenBytes) {
        return wrong(fmt::format("the token has {} bytes", bytes.size()));
    }
    size_t rank = 0;
    const char* end = line.data() + line.size();
    const auto read = std::from_chars(line.data() + space + 1, end, rank);
    if (read.ec != std::errc() || read.ptr != end) return wrong("no rank");
    if (rank >= static_cast<size_t>(kMostTokens) || rank > 2 * number + 4096) {
        return wrong(fmt::format("rank {}", rank));
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) return wrong(fmt::format("rank {} occurs twice", rank));
    AppendSpelled(bytes, tokens[rank]);
    return {};
}

Result<std::vector<std::string>> ReadRanks(std::string_view text) {
    std::vector<std::string> tokens;
    size_t number = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        ++number;
        if (!line.empty()) WEFT_TRY(ReadLine(line, number, tokens));
    }
    return tokens;
}

Status AddSpecial(const AddedToken& token, size_t ranks, TokenizerData& data) {
    const auto at = static_cast<size_t>(token.id);
    if (at < ranks || at > ranks + 65536) {
        return MakeError(ErrorCode::kCorrupt,
                         "special token '{}' has the id {}; expected an id after the {} ranks",
                         token.text.substr(0, 80), token.id, ranks);
    }
    if (at >= data.tokens.size()) {
        data.tokens.resize(at + 1);
        data.types.resize(at + 1, static_cast<int32_t>(TokenType::kUnused));
    }
    data.tokens[at] = token.text;
    data.types[at] = static_cast<int32_t>(TokenType::kControl);
    return {};
}

Status AddSpecials(const FileFamily& family, const TokenizerHints& hints, TokenizerData& data) {
    const size_t ranks = data.tokens.size();
    std::vector<AddedToken> added = hints.added;
    if (added.empty()) {
        for (const auto& [text, behind] : family.known) {
            added.push_back({static_cast<int32_t>(ranks) + behind, std::string(text), true});
        }
    }
    for (const AddedToken& token : added) WEFT_TRY(AddSpecial(token, ranks, data));
    for (size_t i = 0; i < family.reserved; ++i) {
        const size_t at = ranks + i;
        if (at < data.tokens.size() && !data.tokens[at].empty()) continue;
        const std::string name = fmt::format("<|reserved_token_{}|>", at);
        WEFT_TRY(AddSpecial({static_cast<int32_t>(at), name, true}, ranks, data));
    }
    return {};
}

}  // namespace

bool LooksLikeTiktoken(std::string_view text) {
    const size_t end = text.find('\n');
    if (end == text.npos || end > 4096) return false;
    std::vector<std::string> tokens;
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return ReadLine(line, 1, tokens).ok();
}

Result<std::unique_ptr<Tokenizer>> ReadTiktoken(std::string_view text,
                                                const TokenizerHints& hints) {
    TokenizerData data;
    data.model = "tiktoken";
    WEFT_ASSIGN(data.tokens, ReadRanks(text));
    const size_t ranks = data.tokens.size();
    data.types.assign(ranks, static_cast<int32_t>(TokenType::kNormal));
    WEFT_ASSIGN(const FileFamily* family, FindFamily(hints, ranks));
    WEFT_TRY(CheckSize(*family, hints, ranks));
    WEFT_TRY(AddSpecials(*family, hints, data));
    WEFT_TRY(SetFrame(nullptr, hints, data));
    if (family->begins && !hints.add_bos && data.bos < 0) {
        data.bos = static_cast<int32_t>(ranks);
        data.eos = data.bos + 1;
        data.add_bos = true;
    }

    TokenizerParts parts;
    WEFT_ASSIGN(parts.vocabulary, Vocabulary::Make(std::move(data)));
    const Vocabulary& vocabulary = *parts.vocabulary;
    std::vector<PairMerge> merges;
    for (size_t rank = 0; rank < ranks; ++rank) {
        AppendSplits(vocabulary, static_cast<int32_t>(rank), merges);
    }
    WEFT_ASSIGN(Family words, MakeTiktokenFamily(family->name));
    PipelineParts pipeline;
    pipeline.words = std::move(words.words);
    WEFT_ASSIGN(pipeline.model, MakeBytePairModel(vocabulary, merges, true));
    parts.model = MakePipeline(std::move(pipeline));
    parts.on_request = SpecialEntries(vocabulary, {TokenType::kControl});
    return Tokenizer::Assemble(std::move(parts));
}

}  // namespace weft::tokenizer
