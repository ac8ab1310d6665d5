// One training record: a JSON object or a row of a table, in one of these forms. The first form
// whose members are present with its types applies, so unrelated members do not matter:
//   {"messages": [{"role", "content"}, ...]}        OpenAI's; optional `tools`
//   {"conversations": [{"from", "value"}, ...]}     ShareGPT's; optional `system` and `tools`.
//        Both lists accept either spelling of members and roles, and may be JSON texts
//   {"tokens": [ids]} or {"input_ids": [ids]}       with optional masks of learned tokens
//        (loss_marks.h); without: all; `attention_mask` 0 is padding, allowed at the ends only,
//        and is removed
//   {"prompt": ..., "completion": ...}              strings, or lists of messages (TRL's); the
//        completion is learned; `response` is the same as `completion`
//   {"instruction": "...", "input": "...", "output": "..."}   Alpaca's; `input` (or `context`) is
//        optional, `response` is the same as `output`; `system` and `history` as in LLaMA-Factory
//   {"question": "...", "context": ..., "answer": "..."}
//        `context`: a string, a list of strings, {"contexts": [strings]}, or absent;
//        `long_answer` if there is no `answer`; also PubMedQA's capitalized names
//   {"text": "..."}
//
// Errors: kCorrupt, without the place: not a JSON object, nested too deep (64), none of the forms,
// or a value of another type (the member, the expected and the actual type).
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
    std::vector<uint8_t> loss;  // empty: all; otherwise one per token
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
// Converts an object.
Result<Record> RecordOfObject(chat::OrderedJson record);

}  // namespace weft::train
