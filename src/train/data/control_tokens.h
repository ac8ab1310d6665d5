// Control tokens that stand as text in a record: data sets of rendered conversations write
// "<|im_start|>user\n..." into `text`, `prompt` and `completion`.
//
// Thread: any; a note is given once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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
    // end token behind it are taken for control tokens.
    ControlTokens(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat, ControlMode mode);

    struct Text {
        std::vector<int32_t> ids;  // without what goes around a text
        bool parsed = false;       // it has control tokens, and they were read as such
    };
    // The tokens of a text of a record. A text without control tokens is tokenized once.
    Text Read(std::string_view text) const;
    // The tokens with or without control tokens.
    std::vector<int32_t> Encode(std::string_view text, bool parse) const;

    // What was found in the texts so far, for people; each finding once, empty otherwise.
    std::string TakeNote() const;

  private:
    bool IsControl(int32_t id) const {
        return tokenizer_->Type(id) == tokenizer::TokenType::kControl;
    }
    // Where the template writes it, or at an end of the text.
    bool IsExpected(const std::vector<int32_t>& ids, size_t at) const;
    void Note(bool parsed, int32_t id) const;

    // An id for each finding, -1: none.
    struct Notes {
        std::atomic<int32_t> parsed = -1, letters = -1;
        std::atomic<bool> told_parsed = false, told_letters = false;
    };

    const tokenizer::Tokenizer* tokenizer_;
    ControlMode mode_;
    std::vector<bool> written_;  // by id: the chat template writes it
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // of all copies
};

}  // namespace weft::train
