#include "train/data/preference.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "chat/tool_words.h"
#include "train/data/messages.h"
#include "train/data/record.h"
#include "train/data/text_record.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

constexpr const char* kBeside[] = {
    "tools",         "functions",    "tool_choice",    "function_call", "system",
    "system_prompt", "systemPrompt", "system_message", "systemMessage", "chat_template_kwargs"};

const OrderedJson* Member(const OrderedJson& record, const char* name) {
    const auto at = record.find(name);
    return at == record.end() || at->is_null() ? nullptr : &*at;
}

OrderedJson BesideOf(const OrderedJson& record) {
    OrderedJson beside = OrderedJson::object();
    for (const char* name : kBeside) {
        if (const OrderedJson* value = Member(record, name)) beside[name] = *value;
    }
    return beside;
}

std::string_view Expected(LossKind loss) {
    return TakesPairs(loss) ? "'chosen' and 'rejected', and usually 'prompt'"
                            : "'prompt', 'completion' and 'label', or 'chosen' and 'rejected'";
}

Error Lacks(const char* name, LossKind loss) {
    return MakeError(ErrorCode::kCorrupt, "no '{}' in the record; --loss {} expects {}", name,
                     LossName(loss), Expected(loss));
}

// A string, or a list of messages with OpenAI's names.
Result<OrderedJson> TextOrMessages(const OrderedJson& value, const char* name) {
    if (auto made = TextOfValue(value)) return OrderedJson(*std::move(made));
    const bool objects = value.is_array() && std::ranges::all_of(value, [](const auto& each) {
                             return each.is_object();
                         });
    if (!objects) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected a string or a list of messages",
                         name, value.is_array() ? "a list of other values" : KindOf(value));
    }
    if (!value.empty()) return ListOfMessages(value, name);
    return MakeError(ErrorCode::kCorrupt, "'{}' is an empty list; expected messages", name);
}

Result<OrderedJson> AnswerOf(const OrderedJson& record, const char* name, LossKind loss) {
    const OrderedJson* value = Member(record, name);
    if (value == nullptr) return Lacks(name, loss);
    return TextOrMessages(*value, name);
}

// The length of the common part of two strings, not within a character, without a blank at its end
// (as TRL's extract_prompt).
size_t CommonText(const std::string& a, const std::string& b) {
    auto same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    while (same > 0 && same < a.size() && (a[same] & 0xC0) == 0x80) --same;
    return same > 0 && a[same - 1] == ' ' ? same - 1 : same;
}

// Takes what both answers begin with from them.
Result<OrderedJson> TakePrompt(OrderedJson& chosen, OrderedJson& rejected) {
    if (chosen.is_string() != rejected.is_string()) {
        return MakeError(ErrorCode::kCorrupt,
                         "one of 'chosen' and 'rejected' is a string, the other one a list; "
                         "expected the same form");
    }
    if (chosen == rejected) {
        return MakeError(ErrorCode::kCorrupt,
                         "'chosen' and 'rejected' are equal, so there is no preference");
    }
    if (chosen.is_string()) {
        auto &a = chosen.get_ref<std::string&>(), &b = rejected.get_ref<std::string&>();
        const size_t same = CommonText(a, b);
        OrderedJson prompt = a.substr(0, same);
        a.erase(0, same);
        b.erase(0, same);
        return prompt;
    }
    const auto same = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
    const auto count = static_cast<size_t>(same);
    if (count == 0 || count >= chosen.size() || count >= rejected.size()) {
        return MakeError(ErrorCode::kCorrupt,
                         "no 'prompt', and 'chosen' and 'rejected' have {} first messages in "
                         "common, of {} and {}; expected the same first messages in both, and then "
                         "other answers",
                         count, chosen.size(), rejected.size());
    }
    OrderedJson prompt(chosen.begin(), chosen.begin() + same);
    chosen.erase(chosen.begin(), chosen.begin() + same);
    rejected.erase(rejected.begin(), rejected.begin() + same);
    return prompt;
}

Status ReadPair(const OrderedJson& record, LossKind loss, PreferenceRecord& made) {
    WEFT_ASSIGN(OrderedJson chosen, AnswerOf(record, "chosen", loss));
    WEFT_ASSIGN(OrderedJson rejected, AnswerOf(record, "rejected", loss));
    const OrderedJson* prompt = Member(record, "prompt");
    // (A string beside conversations repeats their first message.)
    const bool repeated = prompt != nullptr && prompt->is_string() && chosen.is_array() &&
                          chat::TextMember(chosen[0], "role") != "assistant";
    if (prompt == nullptr || repeated) {
        WEFT_ASSIGN(made.prompt, TakePrompt(chosen, rejected));
    } else {
        WEFT_ASSIGN(made.prompt, TextOrMessages(*prompt, "prompt"));
    }
    made.answers.push_back({std::move(chosen), true});
    made.answers.push_back({std::move(rejected), false});
    return {};
}

// Tables have a label as text.
Result<bool> LabelOf(const OrderedJson& record, LossKind loss) {
    const char* const name = Member(record, "label") != nullptr ? "label" : "kto_tag";
    const OrderedJson* value = Member(record, name);
    if (value == nullptr) return Lacks("label", loss);
    if (value->is_boolean()) return value->get<bool>();
    if (*value == 0 || *value == 1) return *value == 1;
    const std::string text =
        value->is_string() ? LowerCase(value->get_ref<const std::string&>()) : "";
    if (text == "true" || text == "false") return text == "true";
    return MakeError(ErrorCode::kCorrupt,
                     "'{}' is {}; expected true (the answer is wanted) or false", name,
                     value->is_string() ? "another text" : value->type_name());
}

Status ReadSingle(const OrderedJson& record, LossKind loss, PreferenceRecord& made) {
    const OrderedJson* prompt = Member(record, "prompt");
    if (prompt == nullptr) return Lacks("prompt", loss);
    WEFT_ASSIGN(made.prompt, TextOrMessages(*prompt, "prompt"));
    const char* const name = Member(record, "completion") != nullptr ? "completion" : "response";
    if (Member(record, name) == nullptr) return Lacks("completion", loss);
    WEFT_ASSIGN(OrderedJson completion, AnswerOf(record, name, loss));
    WEFT_ASSIGN(const bool wanted, LabelOf(record, loss));
    made.answers.push_back({std::move(completion), wanted});
    return {};
}

class Joiner {
  public:
    Joiner(const Encoder& encoder, const PreferenceRecord& record, LossKind loss)
        : encoder_(encoder), record_(record), loss_(loss) {
        made_.label = record.margin;
    }

    Status Add(const OrderedJson& completion, SampleRole role) {
        OrderedJson object = record_.beside;
        object["prompt"] = record_.prompt;
        object["completion"] = completion;
        WEFT_ASSIGN(const Record joined, RecordOfObject(std::move(object)));
        WEFT_ASSIGN(Sample sample, encoder_.Encode(joined));
        // (As in TRL, ORPO also learns the prompt of the chosen answer.)
        if (loss_ == LossKind::kOrpo && role == SampleRole::kChosen) {
            std::ranges::replace(sample.loss, uint8_t{0}, Sample::kPromptLoss);
        }
        if (loss_ == LossKind::kReward) MarkScore(encoder_, sample);
        made_.Append(sample, role);
        return {};
    }
    Sample Take() { return std::move(made_); }

  private:
    const Encoder& encoder_;
    const PreferenceRecord& record_;
    const LossKind loss_;
    Sample made_;
};

}  // namespace

Result<PreferenceRecord> PreferenceOfObject(const OrderedJson& record, LossKind loss) {
    if (!record.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "a JSON {}; expected an object with {}",
                         std::string_view(record.type_name()), Expected(loss));
    }
    PreferenceRecord made;
    made.beside = BesideOf(record);
    if (loss == LossKind::kReward) {
        WEFT_ASSIGN(made.margin, MarginOf(record));
    }
    const bool pair = Member(record, "chosen") != nullptr || Member(record, "rejected") != nullptr;
    if (pair || TakesPairs(loss)) {
        WEFT_TRY(ReadPair(record, loss, made));
    } else {
        WEFT_TRY(ReadSingle(record, loss, made));
    }
    return made;
}

Result<Sample> EncodePrompt(const Encoder& encoder, const OrderedJson& record) {
    const OrderedJson* prompt = record.is_object() ? Member(record, "prompt") : nullptr;
    if (prompt == nullptr) {
        return MakeError(ErrorCode::kCorrupt,
                         "no 'prompt' in the record; --loss grpo expects a string or a list of "
                         "messages, and members for the rewards");
    }
    WEFT_ASSIGN(const OrderedJson read, TextOrMessages(*prompt, "prompt"));
    Sample sample;
    // (The forms are the same as for a record with an answer.)
    OrderedJson object = BesideOf(record);
    object["prompt"] = read;
    object["completion"] = "-";
    if (!read.is_string()) object["completion"] = {{{"role", "assistant"}, {"content", "-"}}};
    WEFT_ASSIGN(Record joined, RecordOfObject(std::move(object)));
    if (const auto* text = std::get_if<PairRecord>(&joined)) {
        WEFT_ASSIGN(sample, encoder.EncodePrompt(text->prompt));
    } else if (const auto* told = std::get_if<InstructionRecord>(&joined)) {
        WEFT_ASSIGN(sample, encoder.EncodePrompt(*told));
    } else {
        auto* chat = std::get_if<ChatRecord>(&joined);
        WEFT_CHECK(chat != nullptr);
        chat->messages.erase(chat->messages.size() - 1);
        if (chat::TextMember(chat->messages.back(), "role") == "assistant") {
            return MakeError(ErrorCode::kCorrupt,
                             "'prompt' ends with a message of the assistant; expected a message to "
                             "answer");
        }
        WEFT_ASSIGN(sample, encoder.EncodePrompt(*chat));
    }
    if (sample.tokens.empty()) {
        return MakeError(ErrorCode::kCorrupt, "'prompt' has no token");
    }
    sample.tokens.push_back(sample.tokens.back());
    sample.loss.assign(sample.tokens.size(), 0);
    sample.loss.back() = 1;
    sample.roles = {SampleRole::kPrompt};
    return sample;
}

Result<Sample> EncodeJudged(const Encoder& encoder, const OrderedJson& record,
                            const std::string& completion) {
    WEFT_CHECK(record.is_object() && Member(record, "prompt") != nullptr);  // EncodePrompt read it
    OrderedJson object = BesideOf(record);
    WEFT_ASSIGN(object["prompt"], TextOrMessages(*Member(record, "prompt"), "prompt"));
    if (object["prompt"].is_string()) {
        object["completion"] = completion;
    } else {
        object["completion"] = {{{"role", "assistant"}, {"content", completion}}};
    }
    WEFT_ASSIGN(const Record joined, RecordOfObject(std::move(object)));
    return encoder.Encode(joined);
}

Result<Sample> EncodePreference(const Encoder& encoder, LossKind loss,
                                const PreferenceRecord& record, const PreferenceRecord* before) {
    Joiner joiner(encoder, record, loss);
    for (const PreferenceRecord::Answer& answer : record.answers) {
        WEFT_TRY(joiner.Add(answer.completion,
                            answer.wanted ? SampleRole::kChosen : SampleRole::kRejected));
    }
    if (before == nullptr) return joiner.Take();
    for (const PreferenceRecord::Answer& answer : before->answers) {
        WEFT_TRY(joiner.Add(answer.completion, SampleRole::kMismatched));
    }
    return joiner.Take();
}

}  // namespace weft::train
