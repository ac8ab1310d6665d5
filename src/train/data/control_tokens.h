// Handles control tokens that are written as text in a record. Data sets of rendered conversations
// have texts such as "<|im_start|>user
// ..." in `text`, `prompt` and `completion`.
//
// Thread: any.
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
    kAuto,  // parse them if the chat template writes all of a text's control tokens, else keep
            // plain text
    kParse,
    kLetters,
};
// Parses auto, parse or letters. kUsage: another word.
Result<ControlMode> ControlModeOf(const std::string& word);

class ControlTokens {
  public:
    // chat: null if the model has no template; then kAuto expects only a begin token before a text
    // and an end token after it. `tokenizer` and `chat` must outlive this object.
    ControlTokens(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat, ControlMode mode);

    struct Text {
        std::vector<int32_t> ids;  // without added begin and end tokens
        bool parsed = false;       // the text has control tokens, and they were parsed
    };
    // The tokens of a record's text. Most texts are tokenized once; a text whose control tokens
    // stay plain text is tokenized again.
    Text Read(std::string_view text) const;
    // The tokens, with control tokens parsed or as plain text.
    std::vector<int32_t> Encode(std::string_view text, bool parse) const;
    // Looks for control tokens in a message, an instruction or a question, for TakeNote. In these
    // texts, control tokens are plain text in any mode.
    void Look(std::string_view text) const;

    // Returns a message for the user about one finding in the texts so far; "" if there is no new
    // finding. Each finding is reported once.
    std::string TakeNote() const;

  private:
    enum Finding { kParsed, kUnexpected, kInWords, kForeign, kFindings };
    struct Notes {
        std::array<std::atomic<bool>, kFindings> found{};
        std::mutex lock;
        std::array<std::string, kFindings> token{};  // the first token found
        std::array<bool, kFindings> told{};
    };

    bool IsControl(int32_t id) const {
        return tokenizer_->Type(id) == tokenizer::TokenType::kControl;
    }
    // Whether a control token is expected at place `at`: the template writes it, or it begins or
    // ends the text.
    bool IsExpected(const std::vector<int32_t>& ids, size_t at) const;
    // Finds texts such as <|user|> or [INST], and notes those that look like control tokens of
    // other models; with `own`, also the model's own control tokens.
    void LookForMarkers(std::string_view text, bool own) const;
    bool IsForeign(std::string_view marker) const;
    void Note(Finding finding, std::string_view token) const;
    std::string NoteText(Finding finding, std::string_view token) const;

    const tokenizer::Tokenizer* tokenizer_;
    const chat::Chat* chat_;
    ControlMode mode_;
    std::vector<bool> written_;  // by id: whether the chat template writes the token
    std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();  // shared by all copies
};

}  // namespace weft::train
