#include "train/data/control_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::train {
namespace {

// Conversations that show the tokens which a template puts together from pieces.
std::vector<chat::ChatInput> Samples() {
    chat::ChatInput plain = chat::OneQuestion("", "Do it.");
    plain.messages.push_back({{"role", "assistant"}, {"content", "Done."}});
    plain.messages.push_back({{"role", "user"}, {"content", "Again."}});
    plain.now_s = 1;
    chat::ChatInput system = plain;
    system.messages.insert(system.messages.begin(),
                           chat::OrderedJson{{"role", "system"}, {"content", "Be kind."}});
    return {std::move(plain), std::move(system)};
}

}  // namespace

Result<ControlMode> ControlModeOf(const std::string& word) {
    if (word == "auto") return ControlMode::kAuto;
    if (word == "parse") return ControlMode::kParse;
    if (word == "letters") return ControlMode::kLetters;
    return MakeError(ErrorCode::kUsage, "--control-tokens '{}'; expected auto, parse or letters",
                     word);
}

ControlTokens::ControlTokens(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                             ControlMode mode)
    : tokenizer_(&tokenizer), mode_(mode) {
    if (chat == nullptr || mode != ControlMode::kAuto) return;
    written_.resize(static_cast<size_t>(tokenizer.vocab_size()));
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string_view text = tokenizer.Piece(id);
        written_[static_cast<size_t>(id)] =
            IsControl(id) && !text.empty() && chat->source().find(text) != std::string::npos;
    }
    for (const chat::ChatInput& input : Samples()) {
        const auto ids = chat->Encode(input);
        if (!ids.ok()) continue;
        for (const int32_t id : *ids) {
            if (IsControl(id)) written_[static_cast<size_t>(id)] = true;
        }
    }
}

std::vector<int32_t> ControlTokens::Encode(std::string_view text, bool parse) const {
    return tokenizer_->Encode(text, {.add_special = false, .parse_special = parse});
}

bool ControlTokens::IsExpected(const std::vector<int32_t>& ids, size_t at) const {
    const int32_t id = ids[at];
    if (mode_ == ControlMode::kParse) return true;
    if (!written_.empty() && written_[static_cast<size_t>(id)]) return true;
    if (at == 0 && id == tokenizer_->data().bos) return true;
    return at + 1 == ids.size() && tokenizer_->IsEog(id);
}

ControlTokens::Text ControlTokens::Read(std::string_view text) const {
    if (mode_ == ControlMode::kLetters) return {Encode(text, false), false};
    Text read{Encode(text, true), false};
    int32_t first = -1;
    bool unknown = false;
    for (size_t at = 0; at < read.ids.size(); ++at) {
        const int32_t id = read.ids[at];
        unknown = unknown || tokenizer_->Type(id) == tokenizer::TokenType::kUnknown;
        if (!IsControl(id)) continue;
        if (!IsExpected(read.ids, at)) {
            Note(false, id);
            return {Encode(text, false), false};
        }
        if (first < 0) first = id;
    }
    if (first < 0) return unknown ? Text{Encode(text, false), false} : std::move(read);
    Note(true, first);
    read.parsed = true;
    return read;
}

void ControlTokens::Note(bool parsed, int32_t id) const {
    int32_t none = -1;
    (parsed ? notes_->parsed : notes_->letters).compare_exchange_strong(none, id);
}

std::string ControlTokens::TakeNote() const {
    if (mode_ != ControlMode::kAuto) return "";
    const int32_t parsed = notes_->parsed, letters = notes_->letters;
    if (parsed >= 0 && !notes_->told_parsed.exchange(true)) {
        return fmt::format(
            "texts hold control tokens such as {}, and they are read as control "
            "tokens: the chat template writes the same ones. --control-tokens "
            "letters reads them as letters",
            tokenizer_->Piece(parsed));
    }
    if (letters >= 0 && !notes_->told_letters.exchange(true)) {
        return fmt::format(
            "texts hold control tokens such as {} that the chat template does not "
            "write; the control tokens of these texts are read as letters. "
            "--control-tokens parse reads them as control tokens",
            tokenizer_->Piece(letters));
    }
    return "";
}

}  // namespace weft::train
