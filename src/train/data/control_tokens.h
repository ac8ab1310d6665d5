// Control tokens that stand as text in a record: data sets of rendered conversations write
// "<|im_start|>user\n..." into `text`, `prompt` and `completion`.
//
// Thread: any; a note is given once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

namespace weft::train {

enum class ControlMode {
    kAuto,  // as control tokens if the chat template writes all of them, else as letters
    kParse,
    kLetters,
};
// auto, parse or letters. kUsage: another word.
Result<ControlMode> ControlModeOf(const std::string& word);

class ControlTokens {
  public:
    // chat: null where the model has no template; then only a begin token in front of a text and an
    // end token behind it are taken for control tokens. Borrows both.
    ControlTokens(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat, ControlMode mode);

    struct Text {
        std::vector<int32_t> ids;  // without what goes around a text
        bool parsed = false;       // it has control tokens, and they were read as such
    };
    // The tokens of a text of a record. A text without control tokens is tokenized once.
    Text Read(std::string_view text) const;
    // The tokens with or without control tokens.
    std::vector<int32_t> Encode(std::string_view text, bool parse) const;
    // Looks for control tokens in a text of a message, an instruction or a question, where they are
    // letters in any mode: for the note.
    void Look(std::string_view text) const;

    // What was found in the texts so far, for people; each finding once, empty otherwise.
    std::string TakeNote() const;

  private:
    enum Finding { kParsed, kUnexpected, kInWords, kForeign, kFindings };
    struct Notes {
        std::array<std::atomic<bool>, kFindings> found{};
        std::mutex lock;
        std::array<std::string, kFindings> token{};  // the first one
        std::array<bool, kFindings> told{};
    };

    bool IsControl(int32_t id) const {
        return tokenizer_->Type(id) == tokenizer::TokenType::kControl;
    }
    // Where the template writes it, or at an end of the text.
    bool IsExpected(const std::vector<int32_t>& ids, size_t at) const;
    // Notes markers in brackets: control tokens of the model (own), and those of other models.
    void LookForMarkers(std::string_view text, bool own) const;
    bool IsForeign(std::string_view marker) const;
    void Note(Finding finding, std::string_view token) const;
    std::string NoteText(Finding finding, std::string_view token) const;

    const tokenizer::Tokenizer* tokenizer_;
    const chat::Chat* chat_;
    ControlMode mode_;
    std::vector<bool> written_;  // by id: the chat template writes it
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // of all copies
};

}  // namespace weft::train
