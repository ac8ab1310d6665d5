// One training record: what its JSON says, whichever of six forms it has. The first form whose
// keys are there counts:
//   {"tokens": [ids], "loss": [0 or 1, ...]}       ids as they are; `loss` may be left out
//   {"input_ids": [ids], "labels": [ids or -100]}  the same as transformers' data sets have it:
//        labels stand at the places of their own ids, -100 where nothing is learnt; both `labels`
//        and `attention_mask` (0: padding, at the ends alone) may be left out
//   {"messages": [{"role", "content"}, ...]}       a conversation; `tools` may stand beside it
//   {"prompt": "...", "completion": "..."}
//   {"question": "...", "context": ..., "answer": "..."}
//        `context`: a string, a list of strings, {"contexts": [strings]}, or left out;
//        `long_answer` where there is no `answer`; PubMedQA's capital spellings, too
//   {"text": "..."}
// Other keys are let be.
//
// Errors: kCorrupt, without the place: no JSON object, nested too deep (64), none of the forms, or
// a value of another type (the key, what is expected, what is there).
// Hostile input: memory is at most some 40 times the text, which RecordFile bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

struct TokensRecord {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> loss;  // empty: all; else one for each token
};
struct ChatRecord {
    chat::OrderedJson messages, tools;
};
struct PairRecord {
    std::string prompt, completion;
};
struct QuestionRecord {
    std::string question, context, answer;
};
struct TextRecord {
    std::string text;
};

using Record = std::variant<TokensRecord, ChatRecord, PairRecord, QuestionRecord, TextRecord>;

Result<Record> ParseRecord(std::string_view json);

}  // namespace weft::train
