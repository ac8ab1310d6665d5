// Checks a file's vocabulary, so that other code can rely on it.
#include <cmath>

#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

// Longer special tokens are not real markers; they would slow down the scan.
constexpr size_t kMostSpecialBytes = 4096;

int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

int ByteOfHexToken(std::string_view text) {
    if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
    const int high = HexDigit(text[3]), low = HexDigit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string UnmarkSpaces(std::string_view text) {
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
        const bool mark = text.substr(at).starts_with(kSpaceMark);
        bytes += mark ? ' ' : text[at];
        at += mark ? kSpaceMark.size() : 1;
    }
    return bytes;
}

std::vector<int32_t> FindByteTokens(const Vocabulary& vocabulary) {
    static constexpr const char* kHex = "0123456789ABCDEF";
    std::vector<int32_t> ids;
    ids.reserve(256);
    for (size_t byte = 0; byte < 256; ++byte) {
        const char text[] = {'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'};
        const int32_t id = vocabulary.Find(std::string_view(text, sizeof text));
        const TokenType type = vocabulary.Type(id);
        ids.push_back(IsPlain(type) || type == TokenType::kByte ? id : -1);
    }
    return ids;
}

Result<std::unique_ptr<Vocabulary>> Vocabulary::Make(TokenizerData data) {
    std::unique_ptr<Vocabulary> made(new Vocabulary(std::move(data)));
    const size_t count = made->data_.tokens.size();
    if (count == 0 || count > INT32_MAX) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: tokenizer.ggml.tokens has {} tokens; expected 1 to {}", count,
                         INT32_MAX);
    }
    made->outside_.assign(count, false);
    WEFT_TRY(made->CheckTypesAndScores());
    WEFT_TRY(made->CheckIds());
    WEFT_TRY(made->IndexTokens());
    return made;
}

TokenType Vocabulary::Type(int32_t id) const {
    if (!Has(id)) return TokenType::kUnused;
    return static_cast<TokenType>(data_.types[static_cast<size_t>(id)]);
}

int32_t Vocabulary::Find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
}

int32_t Vocabulary::FindPlain(std::string_view text) const {
    const int32_t id = Find(text);
    return id >= 0 && IsPlain(Type(id)) && !outside_[static_cast<size_t>(id)] ? id : -1;
}

Status Vocabulary::CheckTypesAndScores() {
    const size_t count = data_.tokens.size();
    if (data_.types.empty()) data_.types.assign(count, static_cast<int32_t>(TokenType::kNormal));
    if (data_.types.size() != count) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: tokenizer.ggml.token_type has {} entries for {} tokens",
                         data_.types.size(), count);
    }
    const bool scored = data_.model == "llama" || data_.model == "t5" || !data_.scores.empty();
    if (scored && data_.scores.size() != count) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: tokenizer.ggml.scores has {} entries for {} tokens",
                         data_.scores.size(), count);
    }
    for (size_t id = 0; id < count; ++id) {
        if (data_.types[id] < 1 || data_.types[id] > 6) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: tokenizer.ggml.token_type[{}] is {}; expected 1 to 6", id,
                             data_.types[id]);
        }
        if (scored && std::isnan(data_.scores[id])) {
            return MakeError(ErrorCode::kCorrupt, "tokenizer: tokenizer.ggml.scores[{}] is NaN",
                             id);
        }
    }
    return {};
}

Status Vocabulary::CheckIds() const {
    for (const auto* list : {&data_.ends, &data_.prefix, &data_.suffix, &data_.middle}) {
        for (const int32_t id : *list) {
            if (Has(id)) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: a special token has the id {}; the vocabulary has {} "
                             "tokens",
                             id, size());
        }
    }
    const struct {
        const char* key;
        int32_t id;
    } named[] = {{"bos", data_.bos}, {"eos", data_.eos},     {"eot", data_.eot},
                 {"eom", data_.eom}, {"unknown", data_.unk}, {"padding", data_.pad}};
    for (const auto& [key, id] : named) {
        if (id == -1 || Has(id)) continue;
        return MakeError(
            ErrorCode::kCorrupt,
            "tokenizer: tokenizer.ggml.{}_token_id is {}; the vocabulary has {} tokens", key, id,
            size());
    }
    if ((data_.add_bos && data_.bos < 0) || (data_.add_eos && data_.eos < 0)) {
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: tokenizer.ggml.add_{0}_token is true, but there is no "
                         "tokenizer.ggml.{0}_token_id",
                         data_.add_bos && data_.bos < 0 ? "bos" : "eos");
    }
    return {};
}

Status Vocabulary::IndexTokens() {
    ids_.reserve(data_.tokens.size());
    for (int32_t id = 0; id < size(); ++id) {
        const std::string& text = Text(id);
        if (text.empty()) continue;  // a gap in the vocabulary: never matched, decodes to nothing
        const auto [other, added] = ids_.emplace(text, id);
        if (!added) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: tokens {} and {} are both '{}'; texts must be distinct",
                             other->second, id, text.substr(0, 80));
        }
        const TokenType type = Type(id);
        const bool marker = type == TokenType::kControl || type == TokenType::kUserDefined ||
                            type == TokenType::kUnknown;
        if (marker && text.size() > kMostSpecialBytes) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: special token {} is {} bytes long; expected at most {}",
                             id, text.size(), kMostSpecialBytes);
        }
    }
    return {};
}

}  // namespace weft::tokenizer
