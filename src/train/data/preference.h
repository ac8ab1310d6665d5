// Preferences, and prompts to complete, in TRL's forms:
//   {"prompt": P, "chosen": C, "rejected": R}       a pair; without `prompt`, the prompt is the
//        common beginning of both answers
//   {"prompt": P, "completion": C, "label": true}   a single answer, for KTO; `response` is the
//        same as `completion`, `kto_tag` the same as `label`. KTO makes two single answers of a
//        pair
// P, C and R are strings or lists of messages (as in record.h), beside which `tools`, `system` and
// `chat_template_kwargs` are allowed. Other members are ignored.
//
// Errors: kCorrupt (the message names the member and the expected value, but not the record's
// position), and those of RecordOfObject and Encoder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "train/data/encoder.h"
#include "train/data/loss_kind.h"
#include "train/data/sample.h"

namespace weft::train {

struct PreferenceRecord {
    struct Answer {
        chat::OrderedJson completion;
        bool wanted = true;
    };
    chat::OrderedJson prompt, beside;  // beside: the members that belong to a conversation
    std::vector<Answer> answers;       // of a pair: the chosen one first
    double margin = 0;                 // of a pair (reward)
};

Result<PreferenceRecord> PreferenceOfObject(const chat::OrderedJson& record, LossKind loss);

// The prompt of a record {"prompt": P}, as a Sample with the role kPrompt. Other members are not
// read, except those of a conversation beside messages.
Result<Sample> EncodePrompt(const Encoder& encoder, const chat::OrderedJson& record);

// The text of such a prompt and a completion, as --loss reward learns it.
Result<Sample> EncodeJudged(const Encoder& encoder, const chat::OrderedJson& record,
                            const std::string& completion);

// The answers of a record as one Sample with roles. before: the record whose answers are the
// mismatched ones (kto).
Result<Sample> EncodePreference(const Encoder& encoder, LossKind loss,
                                const PreferenceRecord& record, const PreferenceRecord* before);

}  // namespace weft::train
