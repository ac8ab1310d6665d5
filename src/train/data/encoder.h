// Encodes a record as tokens and a mask of learned tokens: those whose predictions count in the
// loss.
//
// One of six templates (prompt_type) renders question records. Q, C and A are question, context and
// answer; without a context, its line is omitted:
//   0  Question: Q \n Answer: A                              the question alone
//   1  Context: C \n\n Question: Q \n Answer: A
//   2  Question: Q \n Context: C \n Answer: A
//   3  C \n\n Q \n A                                         no added words
//   4  Answer the question from the context. \n\n ### Context \n C \n\n ### Question \n Q \n\n
//      ### Answer \n A
//   5  the model's chat template: "C \n\n Q" is the user's turn, A the assistant's
// The loss is on the answer and on the end-of-text token after it.
//
// Instructions become a conversation of the model's chat template, or, without a chat template, the
// prompt of Stanford's Alpaca. The loss is on the output and on the answers of the history.
//
// Prompt and completion are concatenated; the loss is on the completion and the end token.
// Text: the loss is on all tokens and the end token. Tokens are used unchanged.
// Chat: the conversation is prepared and rendered as in the server (chat/conversation.h). The loss
// is on the assistant's turns (chat_turns.h), except turns that the record excludes (loss_marks.h).
//
// A text is tokenized whole. To find the end of the prompt, the prompt is also tokenized alone; it
// ends where its tokens begin to differ from the text's. So a token that spans the border is
// learned. A bos token is prepended if the model requires it. Control tokens in messages, questions
// and answers are plain text; in texts, prompts and completions they are handled as in
// control_tokens.h. If a text already ends with an end-of-generation token, no end token is added.
//
// A model without a tokenizer trains only on records of tokens. Embeddings may be padded, so ids
// from the tokenizer's size up to the number of the embedding's rows are valid.
//
// Errors (the messages do not have the record's place): kCorrupt: an empty or too long sample, or
// an id beyond the embedding's rows; kUnsupported: text but no tokenizer, a conversation but no
// template, or turns that can't be distinguished; errors of the template.
// Thread: any; an Encoder is immutable. The tokenizer and the chat must outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "tokenizer/tokenizer.h"
#include "train/data/chat_turns.h"
#include "train/data/control_tokens.h"
#include "train/data/record.h"
#include "train/data/sample.h"

namespace weft::train {

inline constexpr int kPromptTypes = 6;
inline constexpr size_t kMostMessages = 10'000;

struct EncoderOptions {
    std::string no_chat = "the model has no chat template";  // for errors
    ControlMode control = ControlMode::kAuto;                // for texts, prompts and completions
    int64_t now_s = 1;                                       // ChatInput::now_s (day.h)
};

class Encoder {
  public:
    // chat: null if the model has no usable template. rows: number of rows of the model's
    // embedding; 0: the tokenizer's size. kUsage: unknown prompt_type.
    static Result<Encoder> Make(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                                int prompt_type, int64_t rows = 0,
                                const EncoderOptions& options = {});
    // An encoder without a tokenizer, which accepts only records of tokens.
    static Encoder OfIds(int64_t rows);

    void SetNow(int64_t now_s) { now_s_ = now_s; }

    Result<Sample> Encode(const Record& record) const;
    // The tokens of a prompt to complete, with a begin token if the model requires it; a
    // conversation or an instruction ends with the header of the answer. The loss is empty.
    Result<Sample> EncodePrompt(const std::string& text) const;
    Result<Sample> EncodePrompt(const ChatRecord& record) const;
    Result<Sample> EncodePrompt(const InstructionRecord& record) const;
    // The tokens of a text with those that the tokenizer puts around it. most: the end of a longer
    // text is cut off; 0: no limit. The loss is empty.
    Result<Sample> EncodeText(const std::string& text, int64_t most) const;
    // The token that pads batches in transformers: the tokenizer's padding token, else the token
    // that ends a sequence; -1: neither exists.
    int32_t padding() const;
    // Returns a new note for the user about the records so far; "": no new note.
    std::string TakeNote() const;
    // The text of a conversation, rendered as in the server.
    Result<chat::Text> Render(const ChatRecord& record) const;
    // Upper bound of all ids.
    int32_t vocab_size() const { return rows_; }

  private:
    Encoder(const tokenizer::Tokenizer* tokenizer, int prompt_type, int32_t rows)
        : tokenizer_(tokenizer), prompt_type_(prompt_type), rows_(rows) {}

    Result<Sample> Of(const TokensRecord& record) const;
    Result<Sample> Of(const ChatRecord& record) const;
    Result<Sample> Of(const PairRecord& record) const;
    Result<Sample> Of(const InstructionRecord& record) const;
    Result<Sample> Of(const QuestionRecord& record) const;
    Result<Sample> Of(const TextRecord& record) const;
    Result<Sample> Pair(const std::string& prompt, const std::string& completion,
                        bool may_parse) const;
    Result<Sample> PromptOf(const ControlTokens::Text& read) const;
    Sample Begun(const ControlTokens::Text& read) const;
    Result<chat::ChatInput> CheckedInput(const ChatRecord& record) const;
    bool EndsGeneration(const std::vector<int32_t>& ids) const;
    Status CheckIds(const Sample& sample) const;

    struct EmptyAnswers {
        std::atomic<uint64_t> count = 0;
        std::atomic<bool> told = false;
    };

    const tokenizer::Tokenizer* tokenizer_;  // null: the model has none
    std::optional<ChatTurns> turns_;
    std::optional<ControlTokens> control_;
    std::string no_chat_;
    int prompt_type_;
    int32_t rows_;
    int64_t now_s_ = 1;
    // Shared by all copies.
    std::shared_ptr<EmptyAnswers> empty_answers_ = std::make_shared<EmptyAnswers>();
};

// The text of a question record before the answer, for templates 0 to 4.
std::string PromptText(const QuestionRecord& record, int prompt_type);

}  // namespace weft::train
