// One training record: a JSON object or a row of a table, in one of these forms. The first form
// applies whose members are all present and have the right types; other members are ignored:
//   {"messages": [{"role", "content"}, ...]}        OpenAI's; optional `system` and `tools`
//   {"conversations": [{"from", "value"}, ...]}     ShareGPT's; optional `system` and `tools`.
//        Both lists accept either spelling of members and roles, and may be JSON texts. `system`
//        (or `system_prompt`) becomes the first message; it may not differ from a system message in
//        the list. `chat_template_kwargs` has variables of the template, here and in the next forms
//        that it renders
//   {"tokens": [ids]} or {"input_ids": [ids]}       with optional masks of learned tokens
//        (loss_marks.h); without: all; `attention_mask` 0 is padding, allowed at the ends only,
//        and is removed; a packed record is several samples (packed_ids.h)
//   {"prompt": ..., "completion": ...}              strings, or lists of messages (TRL's); the
//        completion is learned; `response` is the same as `completion`; strings with `system` are
//        an instruction and its output
//   {"instruction": "...", "input": "...", "output": "..."}   Alpaca's; `input` (or `context`) is
//        optional, `response` is the same as `output`, `query` the same as `instruction`
//        (ms-swift); `system` and `history` as in LLaMA-Factory
//   {"question": "...", "context": ..., "answer": "..."}
//        `context`: a string, a list of strings, {"contexts": [strings]}, or absent; `long_answer`
//        is used if there is no `answer`; also PubMedQA's capitalized names
//   {"text": "..."}
//   {"conversation": [{"role", "content"}, ...]}    WildChat's and LMSYS's; as `messages`
//
// Errors: kCorrupt: not a JSON object, nested more than 64 deep, none of the forms, a role that is
// not known, or a value of the wrong type; kUnsupported: a preference (`chosen` and `rejected`).
// The message does not have the record's place. Hostile input: parsing needs at most about 40 times
// the memory of the text, whose size RecordFile limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"

namespace weft::train {

struct TokensRecord {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> loss;    // one per token: 1 if it is learned; empty: all are learned
    std::vector<uint8_t> starts;  // as in Sample
};
struct ChatRecord {
    chat::OrderedJson messages, tools, extra;  // as in ChatInput
};
struct PairRecord {
    std::string prompt, completion;
};
struct InstructionRecord {
    std::string system, instruction, input, output;
    chat::OrderedJson extra;                                   // as in ChatInput
    std::vector<std::pair<std::string, std::string>> history;  // earlier instructions and answers
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
// The JSON value of a record.
Result<chat::OrderedJson> ParseRecordJson(std::string_view json);
// Refuses pictures, sounds and films in members of a record or of one of its messages: a model that
// is trained without them learns to invent their content.
Status RefuseMedia(const chat::OrderedJson& record);
// Converts an object.
Result<Record> RecordOfObject(chat::OrderedJson record);

}  // namespace weft::train
