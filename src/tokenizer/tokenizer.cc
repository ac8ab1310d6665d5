#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/model.h"
#include "tokenizer/parts.h"
#include "tokenizer/special.h"

namespace weft::tokenizer {
namespace {

// Texts of end tokens in current model families, used in addition to the file's ids (for
// kMessageEnd see below). The first kSureEndTexts are control tokens even if a file types them as
// normal. The other texts occur in web pages and count only if the file types them as control.
constexpr size_t kSureEndTexts = 16;
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
    "<|flush|>",
    "<|calls|>",
    "<turn|>",
    "[e~[",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",  // DeepSeek's wide bars and SPM's spaces
    "</s>",
    "<eos>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<|tool_response>",
};

bool IsEndText(std::string_view text, bool control) {
    const auto* end = control ? std::end(kEndTexts) : std::begin(kEndTexts) + kSureEndTexts;
    return std::find(std::begin(kEndTexts), end, text) != end;
}

// In vocabularies of families whose turn is a list of messages (gpt-oss, Solar-Open), the first
// text ends a message; the others end the turn.
constexpr std::string_view kMessageEnd = "<|end|>";
constexpr std::string_view kTurnEnds[] = {"<|return|>", "<|call|>", "<|calls|>", "<|flush|>"};

// Texts that begin a text or a turn, or name a role. The first kSureTurnTexts are control tokens
// even if a file types them as normal; the others, if it types them as user-defined.
constexpr size_t kSureTurnTexts = 14;
constexpr std::string_view kTurnTexts[] = {
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<|im_start|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<start_of_turn>",
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|start_of_role|>",
    "<|end_of_role|>",
    "<|header_start|>",
    "<|header_end|>",
    "<|eot|>",
    "<|start|>",
    "<|message|>",
    "<|channel|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|turn>",
    "<s>",
    "<bos>",
    "[BOS]",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "]~b]",
    "]~!b[",
    // DeepSeek's wide bars and SPM's spaces.
    "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>",
    "<\uFF5CUser\uFF5C>",
    "<\uFF5CAssistant\uFF5C>",
};

bool IsTurnText(std::string_view text, bool user_defined) {
    const auto* end = user_defined ? std::end(kTurnTexts) : std::begin(kTurnTexts) + kSureTurnTexts;
    return std::find(std::begin(kTurnTexts), end, text) != end;
}

// Whether the text looks like a marker, since an end token may also be a plain line end.
bool LooksLikeMarker(std::string_view text) {
    return text.size() >= 3 && std::string_view("<[]").find(text[0]) != text.npos &&
           text.find_first_of(" \t\r\n") == text.npos;
}

bool IsMarker(const TokenizerData& data, int32_t id, bool user_defined) {
    const std::string& text = data.tokens[static_cast<size_t>(id)];
    if (IsEndText(text, user_defined) || IsTurnText(text, user_defined)) return true;
    const bool named = id == data.bos || id == data.eos || id == data.eot || id == data.eom ||
                       std::find(data.ends.begin(), data.ends.end(), id) != data.ends.end();
    return named && LooksLikeMarker(text);
}

std::string MakePiece(const Vocabulary& vocabulary, const TokenModel& model, bool user_by_model,
                      int32_t id) {
    const std::string& text = vocabulary.Text(id);
    switch (vocabulary.Type(id)) {
        case TokenType::kNormal: return model.Bytes(text);
        case TokenType::kUnknown:
        case TokenType::kControl: return text;
        case TokenType::kUserDefined: return user_by_model ? model.Bytes(text) : text;
        case TokenType::kUnused: return {};
        case TokenType::kByte: {
            const int byte = ByteOfHexToken(text);
            return byte < 0 ? text : std::string(1, static_cast<char>(byte));
        }
    }
    return {};
}

// Finds special tokens from left to right: user-defined ones anywhere, others only outside of
// `plain`.
class SpecialWalk {
  public:
    SpecialWalk(std::string_view text, const SpecialScanner& always,
                const SpecialScanner& on_request, std::span<const TextRange> plain)
        : text_(text), always_(always), on_request_(on_request), plain_(plain) {}

    // The first token at or after `from`, which must not decrease; the longer of two at one place.
    // White space before a token that belongs to it begins at or after `floor`.
    SpecialScanner::Found Next(size_t from, size_t floor) {
        if (plain_.empty()) return on_request_.Next(text_, from, floor);
        if (anywhere_.at < from || !begun_) anywhere_ = always_.Next(text_, from, floor);
        if (outside_.at < from || !begun_) outside_ = NextOutside(from, floor);
        begun_ = true;
        if (outside_.at != anywhere_.at) {
            return outside_.at < anywhere_.at ? outside_ : anywhere_;
        }
        return outside_.size > anywhere_.size ? outside_ : anywhere_;
    }

  private:
    SpecialScanner::Found NextOutside(size_t from, size_t floor) {
        for (; range_ < plain_.size(); ++range_) {
            const TextRange& range = plain_[range_];
            if (from < range.begin) {
                const auto found = on_request_.Next(text_.substr(0, range.begin), from, floor);
                if (found.id >= 0) return found;
            }
            from = std::max(from, range.end);
            floor = std::max(floor, range.end);
        }
        return on_request_.Next(text_, from, floor);
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

void TypeMarkers(TokenizerData& data, bool normal_ones) {
    for (size_t id = 0; id < data.tokens.size() && id < data.types.size(); ++id) {
        const bool user_defined = data.types[id] == static_cast<int32_t>(TokenType::kUserDefined);
        const bool normal = data.types[id] == static_cast<int32_t>(TokenType::kNormal);
        if (!user_defined && !(normal && normal_ones)) continue;
        if (IsMarker(data, static_cast<int32_t>(id), user_defined)) {
            data.types[id] = static_cast<int32_t>(TokenType::kControl);
        }
    }
}

void AddFlags(const AddedToken& token, TokenizerData& data) {
    if (token.takes_left) data.lstrip.push_back(token.id);
    if (token.takes_right) data.rstrip.push_back(token.id);
    if (token.single_word) data.single_word.push_back(token.id);
}

std::vector<SpecialScanner::Entry> SpecialEntries(const Vocabulary& vocabulary,
                                                  std::initializer_list<TokenType> types) {
    std::vector<SpecialScanner::Entry> entries;
    std::vector<size_t> place(vocabulary.data().tokens.size(), SIZE_MAX);  // in entries, by id
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        const bool wanted = std::ranges::find(types, vocabulary.Type(id)) != types.end();
        if (!wanted || vocabulary.Text(id).empty()) continue;
        place[static_cast<size_t>(id)] = entries.size();
        entries.push_back({vocabulary.Text(id), id});
    }
    const auto mark = [&](const std::vector<int32_t>& ids, bool SpecialScanner::Entry::*flag) {
        for (const int32_t id : ids) {
            if (vocabulary.Has(id) && place[static_cast<size_t>(id)] != SIZE_MAX) {
                entries[place[static_cast<size_t>(id)]].*flag = true;
            }
        }
    };
    mark(vocabulary.data().lstrip, &SpecialScanner::Entry::takes_left);
    mark(vocabulary.data().rstrip, &SpecialScanner::Entry::takes_right);
    mark(vocabulary.data().single_word, &SpecialScanner::Entry::single_word);
    return entries;
}

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::Assemble(TokenizerParts parts) {
    std::unique_ptr<Tokenizer> made(new Tokenizer);
    parts.vocabulary->DropMerges();
    made->vocabulary_ = std::move(parts.vocabulary);
    made->model_ = std::move(parts.model);
    made->always_ = std::make_unique<SpecialScanner>(std::move(parts.always));
    made->on_request_ = std::make_unique<SpecialScanner>(std::move(parts.on_request));
    const Vocabulary& vocabulary = *made->vocabulary_;
    made->pieces_.reserve(vocabulary.data().tokens.size());
    const TokenizerData& known = vocabulary.data();
    made->message_end_ = vocabulary.Find(kMessageEnd);
    const bool lists = std::ranges::any_of(
        kTurnEnds, [&](std::string_view end) { return vocabulary.Find(end) >= 0; });
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
        made->pieces_.push_back(
            MakePiece(vocabulary, *made->model_, parts.user_bytes_by_model, id));
        made->eog_.push_back(id == known.eos || id == known.eot || id == known.eom ||
                             (IsEndText(vocabulary.Text(id), made->IsSpecial(id)) &&
                              !(lists && id == made->message_end_)));
    }
    for (const int32_t id : known.ends) {
        if (vocabulary.Has(id)) made->eog_[static_cast<size_t>(id)] = true;
    }
    return made;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
    WEFT_CHECK(text.size() <= size_t{1} << 30);
    std::vector<int32_t> ids;
    const TokenizerData& data = vocabulary_->data();
    const bool framed = !data.prefix.empty() || !data.suffix.empty();
    std::vector<int32_t> head;  // special tokens before the text
    if (options.add_special) head = data.prefix;
    if (options.add_special && !framed && data.add_bos) head.push_back(data.bos);
    ids = head;
    SpecialWalk walk(text, *always_, options.parse_special ? *on_request_ : *always_,
                     options.plain);
    for (size_t at = 0, from = 0; at < text.size();) {
        const SpecialScanner::Found found = walk.Next(from, at);
        if (found.at > at) model_->Encode(text.substr(at, found.at - at), at == 0, ids);
        if (found.id >= 0) {
            if (options.marks != nullptr) options.marks->push_back({found.at, ids.size()});
            ids.push_back(found.id);
        }
        at = std::max(at, found.at + found.size);
        from = found.next;
    }
    // A text that begins with the special tokens gets them once.
    const auto text_ids = std::span(ids).subspan(head.size());
    if (!head.empty() &&
        std::ranges::equal(head, text_ids.first(std::min(head.size(), text_ids.size())))) {
        ids.erase(ids.begin(), ids.begin() + std::ssize(head));
        if (options.marks != nullptr) {
            for (SpecialMark& mark : *options.marks) mark.token -= head.size();
        }
    }
    if (options.add_special) {
        if (!framed && data.add_eos) ids.push_back(data.eos);
        ids.insert(ids.end(), data.suffix.begin(), data.suffix.end());
    }
    return ids;
}

Tokenizer::Pair Tokenizer::EncodePair(std::span<const int32_t> first,
                                      std::span<const int32_t> second, int64_t most) const {
    const TokenizerData& data = vocabulary_->data();
    Pair pair;
    pair.ids = data.prefix;
    std::vector<int32_t> suffix = data.suffix;
    const bool framed = !data.prefix.empty() || !data.suffix.empty();
    if (!framed && data.add_bos) pair.ids.push_back(data.bos);
    if (!framed && data.add_eos) suffix.push_back(data.eos);
    const size_t around = pair.ids.size() + data.middle.size() + suffix.size();
    size_t count = first.size(), count2 = second.size();
    if (most > 0) {
        const size_t room = static_cast<size_t>(most) - std::min(static_cast<size_t>(most), around);
        size_t& shorter = count <= count2 ? count : count2;
        size_t& longer = count <= count2 ? count2 : count;
        longer = std::min(longer, std::max(shorter, room - std::min(room, shorter)));
        if (shorter + longer > room) {
            shorter = std::min(shorter, room / 2);
            longer = room - shorter;
        }
    }
    const auto add = [&](std::span<const int32_t> ids) {
        pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
    };
    add(first.first(count));
    add(data.middle);
    pair.second = pair.ids.size();
    add(second.first(count2));
    add(suffix);
    return pair;
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

bool Tokenizer::EndsMessage(int32_t id) const {
    return IsEog(id) || (id >= 0 && id == message_end_);
}

int32_t Tokenizer::Find(std::string_view text) const {
    return vocabulary_->Find(text);
}

const TokenizerData& Tokenizer::data() const {
    return vocabulary_->data();
}

}  // namespace weft::tokenizer
