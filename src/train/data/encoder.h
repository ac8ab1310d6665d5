// From a record to tokens and a mask of what is learnt.
//
// Question records become text by one of six templates (Q, C, A: question, context, answer; without
// a context its line is left out):
//   0  Question: Q \n Answer: A                              the question alone
//   1  Context: C \n\n Question: Q \n Answer: A
//   2  Question: Q \n Context: C \n Answer: A
//   3  C \n\n Q \n A                                         no words around them
//   4  Answer the question from the context. \n\n ### Context \n C \n\n ### Question \n Q \n\n
//      ### Answer \n A
//   5  the model's chat template: "C \n\n Q" is the user's turn, A the assistant's
// The loss is on the answer and on the end-of-text token behind it.
//
// Instructions become a conversation of the model's chat template, or (it has none) the text that
// Stanford's Alpaca was trained on; the loss is on the output, and on the answers of the history.
//
// Prompt and completion: the two joined as they are; loss on the completion and the end token.
// Text: loss on all, and the end token. Tokens: as they are, nothing is added.
// Chat: the conversation is prepared and rendered as the server does it (chat/conversation.h), and
// the loss is on the assistant's turns (chat_turns.h), but for those that a mark leaves out
// (loss_marks.h).
//
// A text is tokenized whole; the prompt's share is what it has in common with the tokens of the
// prompt alone, so a token that spans the border is learned. bos goes in front if the model wants
// one. Control tokens in messages, questions and answers are letters; those in texts, prompts and
// completions are read as control_tokens.h says. A text whose last control token ends a generation
// gets no end token of its own.
//
// A model without a tokenizer is trained on tokens alone. Ids from the tokenizer's size up to the
// rows of the embedding are ids like others: embeddings are padded.
//
// Errors, without the place: kCorrupt: an empty or too long sample, ids that the embedding has no
// row for; kUnsupported: text without a tokenizer, a conversation without a template, or one whose
// turns can't be told apart; those of the template.
// Thread: an Encoder never changes. It borrows tokenizer and chat, which must outlive it.
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
    std::string no_chat = "the model has no chat template";  // why there is none, for errors
    ControlMode control = ControlMode::kAuto;                // of texts, prompts and completions
};

class Encoder {
  public:
    // chat: null where the model has no template that can be used. rows: of the model's embedding;
    // 0: as many as the tokenizer has tokens. kUsage: no such prompt_type.
    static Result<Encoder> Make(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                                int prompt_type, int64_t rows = 0,
                                const EncoderOptions& options = {});
    // Without a tokenizer: records of tokens alone.
    static Encoder OfIds(int64_t rows);

    Result<Sample> Encode(const Record& record) const;
    // Something to tell the user about the records so far, once; else empty.
    std::string TakeNote() const;
    // The text of a conversation, as the model is asked in the server.
    Result<chat::Text> Render(const ChatRecord& record) const;
    // Ids are below.
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

    const tokenizer::Tokenizer* tokenizer_;  // null: there is none
    std::optional<ChatTurns> turns_;
    std::optional<ControlTokens> control_;
    std::string no_chat_;
    int prompt_type_;
    int32_t rows_;
};

// The text of a question record up to the answer, by templates 0 to 4.
std::string PromptText(const QuestionRecord& record, int prompt_type);

}  // namespace weft::train
