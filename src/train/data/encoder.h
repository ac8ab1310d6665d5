// Encodes a record as tokens and a mask of learned tokens.
//
// A template, one of six, renders question records (Q, C, A: question, context, answer; without a
// context, its line is omitted):
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
// is on the assistant's turns (chat_turns.h), except turns that a mark excludes (loss_marks.h).
//
// A text is tokenized whole. The prompt ends where its tokens, tokenized alone, stop agreeing with
// the text's tokens; so a token that spans the border is learned. A bos token is prepended if the
// model wants one. Control tokens in messages, questions and answers are plain text; in texts,
// prompts and completions they are handled as in control_tokens.h. If the last control token of a
// text ends a generation, no end token is added.
//
// A model without a tokenizer trains on tokens only. Ids from the tokenizer's size up to the rows
// of the embedding are valid, because embeddings are padded.
//
// Errors, without the place: kCorrupt: an empty or too long sample, an id beyond the embedding's
// rows; kUnsupported: text without a tokenizer, a conversation without a template or whose turns
// can't be told apart; those of the template.
// Thread: an Encoder is immutable. It borrows tokenizer and chat, which must outlive it.
#pragma once

#include <cstdint>
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
    std::string no_chat = "the model has no chat template";  // why it is missing, for errors
    ControlMode control = ControlMode::kAuto;                // for texts, prompts and completions
};

class Encoder {
  public:
    // chat: null if the model has no usable template. rows: of the model's embedding; 0: the
    // tokenizer's size. kUsage: unknown prompt_type.
    static Result<Encoder> Make(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                                int prompt_type, int64_t rows = 0,
                                const EncoderOptions& options = {});
    // Without a tokenizer: accepts only records of tokens.
    static Encoder OfIds(int64_t rows);

    Result<Sample> Encode(const Record& record) const;
    // A note for the user about the records so far, once; otherwise empty.
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
    bool EndsGeneration(const std::vector<int32_t>& ids) const;
    Status CheckIds(const Sample& sample) const;

    const tokenizer::Tokenizer* tokenizer_;  // null: the model has none
    std::optional<ChatTurns> turns_;
    std::optional<ControlTokens> control_;
    std::string no_chat_;
    int prompt_type_;
    int32_t rows_;
};

// The text of a question record before the answer, for templates 0 to 4.
std::string PromptText(const QuestionRecord& record, int prompt_type);

}  // namespace weft::train
