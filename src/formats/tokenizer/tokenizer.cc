#include "formats/tokenizer/tokenizer.h"

#include <algorithm>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/special.h"

namespace weft::formats {
namespace {

// Texts that end a generation in the model families around, whatever the file's ids say. The first
// kSureEndTexts are control tokens even where a file calls them normal; the others are found in
// the text of web pages, and count only where the file says that they are control tokens.
constexpr size_t kSureEndTexts = 12;
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "_<EOT>",
    "<\xEF\xBD\x9C"  // DeepSeek's wide bars and SPM spaces
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "</s>",
    "<eos>",
    "<EOT>",
};

bool IsEndText(std::string_view text, bool control) {
    const auto* end = control ? std::end(kEndTexts) : std::begin(kEndTexts) + kSureEndTexts;
    return std::find(std::begin(kEndTexts), end, text) != end;
}

void TypeEndTokens(TokenizerData& data) {
    for (size_t id = 0; id < data.tokens.size() && id < data.types.size(); ++id) {
        const bool normal = data.types[id] == static_cast<int32_t>(TokenType::kNormal);
        if (normal && IsEndText(data.tokens[id], false)) {
            data.types[id] = static_cast<int32_t>(TokenType::kControl);
        }
    }
}

std::unique_ptr<const SpecialScanner> MakeScanner(const Vocabulary& vocabulary, bool all) {
    std::vector<SpecialScanner::Entry> entries;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        const TokenType type = vocabulary.Type(id);
        const bool wanted = type == TokenType::kUserDefined ||
                            (all && (type == TokenType::kControl || type == TokenType::kUnknown));
        if (wanted && !vocabulary.Text(id).empty()) entries.push_back({vocabulary.Text(id), id});
    }
    return std::make_unique<SpecialScanner>(std::move(entries));
}

std::string MakePiece(const Vocabulary& vocabulary, const TokenModel& model, int32_t id) {
    const std::string& text = vocabulary.Text(id);
    switch (vocabulary.Type(id)) {
        case TokenType::kNormal: return model.Bytes(text);
        case TokenType::kUnknown:
        case TokenType::kControl:
        case TokenType::kUserDefined: return text;
        case TokenType::kUnused: return {};
        case TokenType::kByte: {
            const int byte = ByteOfHexToken(text);
            return byte < 0 ? text : std::string(1, static_cast<char>(byte));
        }
    }
    return {};
}

// Special tokens from left to right: user-defined ones anywhere, the others only outside of
// `plain`.
class SpecialWalk {
  public:
    SpecialWalk(std::string_view text, const SpecialScanner& always,
                const SpecialScanner& on_request, std::span<const TextRange> plain)
        : text_(text), always_(always), on_request_(on_request), plain_(plain) {}

    // The first token at or after `from`, which never goes back; of two, the longer.
    SpecialScanner::Found Next(size_t from) {
        if (plain_.empty()) return on_request_.Next(text_, from);
        if (anywhere_.at < from || !begun_) anywhere_ = always_.Next(text_, from);
        if (outside_.at < from || !begun_) outside_ = NextOutside(from);
        begun_ = true;
        if (outside_.at != anywhere_.at) {
            return outside_.at < anywhere_.at ? outside_ : anywhere_;
        }
        return outside_.size > anywhere_.size ? outside_ : anywhere_;
    }

  private:
    SpecialScanner::Found NextOutside(size_t from) {
        for (; range_ < plain_.size(); ++range_) {
            const TextRange& range = plain_[range_];
            if (from < range.begin) {
                const auto found = on_request_.Next(text_.substr(0, range.begin), from);
                if (found.id >= 0) return found;
            }
            from = std::max(from, range.end);
        }
        return on_request_.Next(text_, from);
    }

    std::string_view text_;
    const SpecialScanner& always_;
    const SpecialScanner& on_request_;
    std::span<const TextRange> plain_;
    size_t range_ = 0;
    bool begun_ = false;
    SpecialScanner::Found anywhere_{}, outside_{};
};

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Make(TokenizerData data) {
    std::unique_ptr<Tokenizer> made(new Tokenizer);
    if (data.model != "gpt2" && data.model != "llama") {
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: tokenizer.ggml.model '{}' is not supported; supported: gpt2 "
                         "(byte-level BPE), llama (SentencePiece BPE)",
                         data.model.substr(0, 80));
    }
    TypeEndTokens(data);
    WEFT_ASSIGN(made->vocabulary_, Vocabulary::Make(std::move(data)));
    const Vocabulary& vocabulary = *made->vocabulary_;
    const bool bytes = vocabulary.data().model == "gpt2";
    WEFT_ASSIGN(made->model_, bytes ? MakeBytePairModel(vocabulary) : MakeSpmModel(vocabulary));
    made->vocabulary_->DropMerges();
    made->always_ = MakeScanner(vocabulary, false);
    made->on_request_ = MakeScanner(vocabulary, true);
    made->pieces_.reserve(vocabulary.data().tokens.size());
    const TokenizerData& known = vocabulary.data();
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        made->pieces_.push_back(MakePiece(vocabulary, *made->model_, id));
        made->eog_.push_back(id == known.eos || id == known.eot || id == known.eom ||
                             IsEndText(vocabulary.Text(id), made->IsSpecial(id)));
    }
    return made;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
    WEFT_CHECK(text.size() <= size_t{1} << 30);
    std::vector<int32_t> ids;
    const TokenizerData& data = vocabulary_->data();
    if (options.add_special && data.add_bos) ids.push_back(data.bos);
    SpecialWalk walk(text, *always_, options.parse_special ? *on_request_ : *always_,
                     options.plain);
    for (size_t at = 0; at < text.size();) {
        const SpecialScanner::Found found = walk.Next(at);
        if (found.at > at) model_->Encode(text.substr(at, found.at - at), ids);
        if (found.id >= 0) ids.push_back(found.id);
        at = found.at + found.size;
    }
    if (options.add_special && data.add_eos) ids.push_back(data.eos);
    return ids;
}

std::string_view Tokenizer::Piece(int32_t id) const {
    return vocabulary_->Has(id) ? std::string_view(pieces_[static_cast<size_t>(id)]) : "";
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
    std::string text;
    bool leading = vocabulary_->data().add_space_prefix;
    for (const int32_t id : ids) {
        if (IsSpecial(id)) {
            if (!skip_special) text += Piece(id);
            continue;
        }
        std::string_view piece = Piece(id);
        if (leading && piece.starts_with(' ')) piece.remove_prefix(1);
        leading = false;
        text += piece;
    }
    return text;
}

int32_t Tokenizer::vocab_size() const {
    return vocabulary_->size();
}

TokenType Tokenizer::Type(int32_t id) const {
    return vocabulary_->Type(id);
}

bool Tokenizer::IsSpecial(int32_t id) const {
    const TokenType type = Type(id);
    return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::IsEog(int32_t id) const {
    return vocabulary_->Has(id) && eog_[static_cast<size_t>(id)];
}

int32_t Tokenizer::Find(std::string_view text) const {
    return vocabulary_->Find(text);
}

const TokenizerData& Tokenizer::data() const {
    return vocabulary_->data();
}

}  // namespace weft::formats
