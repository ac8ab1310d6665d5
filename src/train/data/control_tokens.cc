#include "train/data/control_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace weft::train {
namespace {

// Conversations that show tokens which a template composes from pieces.
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
    : tokenizer_(&tokenizer), chat_(chat), mode_(mode) {
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
    return at + 1 == ids.size() && tokenizer_->EndsMessage(id);
}

ControlTokens::Text ControlTokens::Read(std::string_view text) const {
    if (mode_ == ControlMode::kLetters) return {Encode(text, false), false};
    LookForMarkers(text, false);
    Text read{Encode(text, true), false};
    int32_t first = -1;
    bool unknown = false;
    for (size_t at = 0; at < read.ids.size(); ++at) {
        const int32_t id = read.ids[at];
        unknown = unknown || tokenizer_->Type(id) == tokenizer::TokenType::kUnknown;
        if (!IsControl(id)) continue;
        if (!IsExpected(read.ids, at)) {
            Note(kUnexpected, tokenizer_->Piece(id));
            return {Encode(text, false), false};
        }
        if (first < 0) first = id;
    }
    if (first < 0) return unknown ? Text{Encode(text, false), false} : std::move(read);
    Note(kParsed, tokenizer_->Piece(first));
    read.parsed = true;
    return read;
}

void ControlTokens::Look(std::string_view text) const {
    LookForMarkers(text, true);
}

void ControlTokens::LookForMarkers(std::string_view text, bool own) const {
    constexpr size_t kMostBytes = 64;  // of a marker
    const bool own_known = !own || notes_->found[kInWords];
    if (mode_ == ControlMode::kLetters || (own_known && notes_->found[kForeign])) return;
    for (size_t at = 0; (at = text.find('<', at)) != text.npos; ++at) {
        const std::string_view rest = text.substr(at, kMostBytes);
        const std::string_view marker = rest.substr(0, rest.find('>') + 1);
        if (marker.size() < 3) continue;
        const int32_t id = tokenizer_->Find(marker);
        if (id < 0 && IsForeign(marker)) Note(kForeign, marker);
        if (id >= 0 && own && IsControl(id)) Note(kInWords, marker);
    }
    for (const std::string_view marker : {"[INST]", "[/INST]"}) {
        if (text.find(marker) == text.npos) continue;
        const int32_t id = tokenizer_->Find(marker);
        if (id < 0 && IsForeign(marker)) Note(kForeign, marker);
        if (id >= 0 && own && IsControl(id)) Note(kInWords, marker);
    }
}

// Whether it looks like a control token of a chat template: <|user|>, DeepSeek's with wide bars,
// Gemma's or Mistral's. The model's own template may write it as plain text (Llama 2's).
bool ControlTokens::IsForeign(std::string_view marker) const {
    constexpr std::string_view kOthers[] = {"<start_of_turn>", "<end_of_turn>", "[INST]",
                                            "[/INST]"};
    constexpr std::string_view kWideBar = "\xEF\xBD\x9C";
    const auto barred = [&](std::string_view bar) {
        const size_t around = 2 * (bar.size() + 1);
        if (marker.size() <= around || marker.substr(1, bar.size()) != bar) return false;
        if (!marker.substr(0, marker.size() - 1).ends_with(bar)) return false;
        const std::string_view name = marker.substr(bar.size() + 1, marker.size() - around);
        return std::ranges::all_of(name, [](unsigned char c) {
            return std::isalnum(c) != 0 || c == '_' || c == '-' || c >= 0x80;
        });
    };
    const bool known = std::ranges::find(kOthers, marker) != std::end(kOthers);
    if (!known && !barred("|") && !barred(kWideBar)) return false;
    return chat_ == nullptr || chat_->source().find(marker) == std::string::npos;
}

void ControlTokens::Note(Finding finding, std::string_view token) const {
    if (notes_->found[finding]) return;
    const std::lock_guard lock(notes_->lock);
    if (notes_->found[finding]) return;
    notes_->token[finding] = token;
    notes_->found[finding] = true;
}

std::string ControlTokens::TakeNote() const {
    if (mode_ == ControlMode::kLetters) return "";
    const std::lock_guard lock(notes_->lock);
    for (const Finding finding : {kParsed, kUnexpected, kInWords, kForeign}) {
        if (!notes_->found[finding] || std::exchange(notes_->told[finding], true)) continue;
        const std::string note = NoteText(finding, notes_->token[finding]);
        if (!note.empty()) return note;
    }
    return "";
}

std::string ControlTokens::NoteText(Finding finding, std::string_view token) const {
    switch (finding) {
        case kParsed:
            if (mode_ == ControlMode::kParse) return "";  // the user requested it
            return fmt::format(
                "texts hold control tokens such as {}, and they are read as control tokens: the "
                "chat template writes the same ones. --control-tokens letters reads them as "
                "letters",
                token);
        case kUnexpected:
            return fmt::format(
                "texts hold control tokens such as {} that the chat template does not write; the "
                "control tokens of these texts are read as letters. --control-tokens parse reads "
                "them as control tokens",
                token);
        case kInWords:
            return fmt::format(
                "messages, instructions or questions hold control tokens such as {}, and they are "
                "read as letters there, so that no text can forge a turn. No flag changes that; "
                "put rendered texts into 'text', or into 'prompt' and 'completion', "
                "where --control-tokens parse reads them as control tokens. --control-tokens "
                "letters silences this note",
                token);
        case kForeign:
            return fmt::format(
                "records hold {}, which looks like a control token of another model's chat "
                "template; this model has no such token, so it is read as letters. No flag changes "
                "that; give the conversations as 'messages', which this model's template renders. "
                "--control-tokens letters silences this note",
                token);
        case kFindings: break;
    }
    return "";
}

}  // namespace weft::train
