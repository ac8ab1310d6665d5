// One training record: what a JSON object or a row of a table says, in one of these forms. The
// first form counts whose members are there and have its types, so unrelated members never hinder:
//   {"messages": [{"role", "content"}, ...]}        OpenAI's; `tools` may stand beside it
//   {"conversations": [{"from", "value"}, ...]}     ShareGPT's; `system` and `tools` beside it.
//   Both
//        lists may have either spelling of members and roles, and may be texts of JSON
//   {"tokens": [ids]} or {"input_ids": [ids]}       with masks of what is learned (loss_marks.h),
//        none: all; what `attention_mask` calls padding (0, at the ends alone) is left out
//   {"prompt": ..., "completion": ...}              strings, or lists of messages (TRL's), of which
//        the completion is learned; `response` is the same as `completion`
//   {"instruction": "...", "input": "...", "output": "..."}   Alpaca's; `input` (or `context`) may
//   be
//        left out, `response` is the same as `output`; `system` and `history` as LLaMA-Factory has
//        them
//   {"question": "...", "context": ..., "answer": "..."}
//        `context`: a string, a list of strings, {"contexts": [strings]}, or left out;
//        `long_answer` where there is no `answer`; PubMedQA's capital spellings, too
//   {"text": "..."}
//
// Errors: kCorrupt, without the place: no JSON object, nested too deep (64), none of the forms, or
// a value of another type (the member, what is expected, what is there).
// Hostile input: memory is at most some 40 times the text, which RecordFile bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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
struct InstructionRecord {
    std::string system, instruction, input, output;
    std::vector<std::pair<std::string, std::string>> history;  // instructions and answers before it
};
struct QuestionRecord {
    std::string question, context, answer;
};
struct TextRecord {
    std::string text;
};

using Record = std::variant<TokensRecord, ChatRecord, PairRecord, InstructionRecord, QuestionRecord,
                            TextRecord>;

Result<Record> ParseRecord(std::string_view json);
// Of an object.
Result<Record> RecordOfObject(chat::OrderedJson record);

}  // namespace weft::train
