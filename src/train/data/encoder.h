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
// Prompt and completion: the two joined as they are; loss on the completion and the end token.
// Text: loss on all, and the end token. Tokens: as they are, nothing is added.
// Chat: the model's template writes the conversation once, and the loss is on what the assistant
// would generate: from where the template, asked for an answer at that place, stops, to the token
// that ends the turn. An assistant's turn that nothing comes before has no loss.
//
// A text is tokenized whole; the prompt's share is what it has in common with the tokens of the
// prompt alone, so a token that spans the border is learnt. No text of a record ever becomes a
// control token; bos goes in front where the model wants one.
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
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "tokenizer/tokenizer.h"
#include "train/data/record.h"

namespace weft::train {

struct Sample {
    std::vector<int32_t> tokens;  // two at least
    std::vector<uint8_t> loss;    // one a token: 1 where the token is to be predicted
};

inline constexpr int kPromptTypes = 6;
inline constexpr size_t kMostMessages = 512;

class Encoder {
  public:
    // chat: null where the model has no template. rows: of the model's embedding; 0: as many as
    // the tokenizer has tokens. kUsage: no such prompt_type.
    static Result<Encoder> Make(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                                int prompt_type, int64_t rows = 0);
    // Without a tokenizer: records of tokens alone.
    static Encoder OfIds(int64_t rows);

    Result<Sample> Encode(const Record& record) const;
    // Ids are below.
    int32_t vocab_size() const { return rows_; }

  private:
    Encoder(const tokenizer::Tokenizer* tokenizer, const chat::Chat* chat, int prompt_type,
            int32_t rows)
        : tokenizer_(tokenizer), chat_(chat), prompt_type_(prompt_type), rows_(rows) {}

    Result<Sample> Of(const TokensRecord& record) const;
    Result<Sample> Of(const ChatRecord& record) const;
    Result<Sample> Of(const PairRecord& record) const;
    Result<Sample> Of(const QuestionRecord& record) const;
    Result<Sample> Of(const TextRecord& record) const;
    Result<Sample> Pair(std::string prompt, const std::string& completion) const;
    Result<chat::Text> Render(std::span<const chat::OrderedJson> messages, const ChatRecord& record,
                              bool asks) const;
    Status MarkTurn(const ChatRecord& record, size_t turn, const chat::Text& whole,
                    Sample& sample) const;
    Status CheckIds(const Sample& sample) const;
    std::vector<int32_t> Plain(std::string_view text) const;

    const tokenizer::Tokenizer* tokenizer_;  // null: there is none
    const chat::Chat* chat_;
    int prompt_type_;
    int32_t rows_;
};

// The text of a question record up to the answer, by templates 0 to 4.
std::string PromptText(const QuestionRecord& record, int prompt_type);

}  // namespace weft::train
