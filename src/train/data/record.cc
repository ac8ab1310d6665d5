#include "train/data/record.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/json.h"
#include "model_files/hf/json.h"
#include "train/data/loss_marks.h"
#include "train/data/messages.h"
#include "train/data/packed_ids.h"

namespace weft::train {
namespace {

using RecordJson = chat::OrderedJson;
using Keys = std::initializer_list<const char*>;

constexpr size_t kRecordDepth = 64;
const Keys kCompletion = {"completion", "response"}, kOutput = {"output", "response"};
const Keys kInstruction = {"instruction", "query"};
const Keys kSystem = {"system", "system_prompt", "system_message", "systemPrompt", "systemMessage"};
// Another name of kSystem beside a list of messages, where an instruction has no other meaning.
constexpr const char* kInstructions = "instructions";
const Keys kQuestion = {"question", "QUESTION"};
const Keys kAnswer = {"answer", "long_answer", "LONG_ANSWER"};

// The first of the names that the record has; "": none.
const char* NameIn(const RecordJson& record, Keys keys) {
    for (const char* key : keys) {
        const auto at = record.find(key);
        if (at != record.end() && !at->is_null()) return key;
    }
    return "";
}

const RecordJson* Find(const RecordJson& record, Keys keys) {
    const char* const name = NameIn(record, keys);
    return *name == 0 ? nullptr : &record.at(name);
}

Error WrongType(std::string_view key, std::string_view expected, const RecordJson& value) {
    return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected {}", key, KindOf(value), expected);
}

Result<std::string> StringOf(const RecordJson& record, Keys keys) {
    const RecordJson* value = Find(record, keys);
    if (value == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "no '{}' in the record", *keys.begin());
    }
    if (auto text = TextOfValue(*value)) return *std::move(text);
    return WrongType(NameIn(record, keys), "a string", *value);
}

// "" if the member is absent.
Result<std::string> OptionalString(const RecordJson& record, Keys keys) {
    return Find(record, keys) == nullptr ? Result<std::string>(std::string())
                                         : StringOf(record, keys);
}

Result<std::string> SystemOf(const RecordJson& record) {
    return OptionalString(record, kSystem);
}

// Joins strings with line breaks.
Result<std::string> Joined(const RecordJson& list, std::string_view key) {
    std::string joined;
    for (const RecordJson& each : list) {
        const auto text = TextOfValue(each);
        if (!text) return WrongType(key, "a list of strings", each);
        if (!joined.empty()) joined += '\n';
        joined += *text;
    }
    return joined;
}

Result<std::string> ContextOf(const RecordJson& record) {
    const RecordJson* value = Find(record, {"context", "contexts", "CONTEXTS"});
    if (value == nullptr) return std::string();
    if (value->is_object()) {
        const RecordJson* inner = Find(*value, {"contexts"});
        if (inner == nullptr || !inner->is_array()) {
            return MakeError(ErrorCode::kCorrupt,
                             "'context' is an object; expected a list 'contexts' in it");
        }
        value = inner;
    }
    if (value->is_array()) return Joined(*value, "context");
    if (auto text = TextOfValue(*value)) return *std::move(text);
    return WrongType("context", "a string, a list of strings or {\"contexts\": [...]}", *value);
}

Result<std::vector<int32_t>> IdsOf(const RecordJson& record, const char* key) {
    const RecordJson& ids = record.at(key);
    if (!ids.is_array()) return WrongType(key, "a list of token ids", ids);
    std::vector<int32_t> made;
    made.reserve(ids.size());
    for (const RecordJson& id : ids) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
            return MakeError(ErrorCode::kCorrupt, "'{}' holds {}; expected token ids", key,
                             model_files::hf::Shown(id.dump(-1, ' ', true)));
        }
        made.push_back(id.get<int32_t>());
    }
    return made;
}

// Token ids under `key`.
Result<Record> ParseTokens(const RecordJson& record, const char* key) {
    TokensRecord made;
    WEFT_ASSIGN(made.tokens, IdsOf(record, key));
    WEFT_ASSIGN(made.loss, LossOfTokens(record, made.tokens));
    WEFT_ASSIGN(const auto seen, TokenFlags(record, "attention_mask", made.tokens.size()));
    WEFT_ASSIGN(made.starts, SampleStarts(record, made.tokens.size(), seen));
    if (seen.empty()) return Record(std::move(made));
    const auto begin = std::ranges::find(seen, 1) - seen.begin();
    const auto end = std::ranges::find(seen.rbegin(), seen.rend(), 1).base() - seen.begin();
    const auto kept = std::span(seen).subspan(static_cast<size_t>(begin));
    if (begin < end && std::ranges::count(kept, 1) != end - begin) {
        return MakeError(ErrorCode::kUnsupported,
                         "'attention_mask' has a 0 between ones; expected padding at the ends "
                         "alone");
    }
    const auto cut = [&](auto& list) {
        if (list.empty()) return;
        list.erase(list.begin() + std::max(begin, end), list.end());
        list.erase(list.begin(), list.begin() + std::min(begin, end));
    };
    if (begin >= end) made = {};
    cut(made.tokens);
    cut(made.loss);
    cut(made.starts);
    return Record(std::move(made));
}

// Moves a system message beside a list of messages to the begin of the list.
Status AddSystem(const RecordJson& record, RecordJson& messages) {
    const char* name = NameIn(record, kSystem);
    const auto other = record.find(kInstructions);
    if (*name == 0 && other != record.end() && other->is_string()) name = kInstructions;
    if (*name == 0 || record.at(name) == "") return {};
    const RecordJson* system = &record.at(name);
    const bool parts = system->is_array() && !system->empty() && system->front().is_object();
    const auto text = TextOfValue(*system);
    if (!text && !parts) return WrongType(name, "a string", *system);
    const RecordJson said = text ? RecordJson(*text) : *system;
    const bool has = !messages.empty() && messages[0].is_object() &&
                     messages[0].value("role", RecordJson()) == "system";
    if (!has) {
        messages.insert(messages.begin(), RecordJson{{"role", "system"}, {"content", said}});
        return {};
    }
    if (messages[0].value("content", RecordJson()) == said) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "'{}' differs from the system message in the list. Remove one of them", name);
}

// The conversation in the list `name`.
Result<Record> ParseMessages(const RecordJson& record, const char* name) {
    ChatRecord made;
    WEFT_ASSIGN(made.messages, ListOfMessages(record.at(name), name));
    WEFT_ASSIGN(made.tools, ToolsOf(record));
    WEFT_ASSIGN(made.extra, TemplateVariablesOf(record));
    WEFT_TRY(AddSystem(record, made.messages));
    return Record(std::move(made));
}

// Converts a prompt or a completion to messages; a string becomes one message of `role`.
Status AddMessages(const RecordJson& record, Keys keys, const char* role, RecordJson& messages) {
    const RecordJson* value = Find(record, keys);
    if (value == nullptr) {
        return MakeError(ErrorCode::kCorrupt, "no '{}' in the record", *keys.begin());
    }
    if (!value->is_array()) {
        const auto text = TextOfValue(*value);
        if (!text) return WrongType(NameIn(record, keys), "a string or a list of messages", *value);
        messages.push_back({{"role", role}, {"content", *text}});
        return {};
    }
    WEFT_ASSIGN(RecordJson list, ListOfMessages(*value, *keys.begin()));
    for (RecordJson& message : list) messages.push_back(std::move(message));
    return {};
}

Result<Record> ParsePair(const RecordJson& record) {
    const RecordJson* prompt = Find(record, {"prompt"});
    const RecordJson* completion = Find(record, kCompletion);
    const bool told = (prompt != nullptr && prompt->is_array()) || completion->is_array();
    WEFT_ASSIGN(const std::string system, SystemOf(record));
    if (!told && !system.empty()) {  // an instruction: the system message has no place in a pair
        InstructionRecord made;
        made.system = system;
        WEFT_ASSIGN(made.instruction, StringOf(record, {"prompt"}));
        WEFT_ASSIGN(made.output, StringOf(record, kCompletion));
        WEFT_ASSIGN(made.extra, TemplateVariablesOf(record));
        return Record(std::move(made));
    }
    if (!told) {
        PairRecord made;
        WEFT_ASSIGN(made.prompt, StringOf(record, {"prompt"}));
        WEFT_ASSIGN(made.completion, StringOf(record, kCompletion));
        return Record(std::move(made));
    }
    ChatRecord made;
    made.messages = RecordJson::array();
    WEFT_TRY(AddMessages(record, {"prompt"}, "user", made.messages));
    for (RecordJson& message : made.messages) {
        if (message.is_object()) message[chat::kLossMember] = 0;
    }
    if (completion->is_array() && completion->empty()) {
        return MakeError(ErrorCode::kCorrupt, "'{}' is an empty list; expected messages",
                         NameIn(record, kCompletion));
    }
    WEFT_TRY(AddMessages(record, kCompletion, "assistant", made.messages));
    WEFT_TRY(AddSystem(record, made.messages));
    WEFT_ASSIGN(made.tools, ToolsOf(record));
    WEFT_ASSIGN(made.extra, TemplateVariablesOf(record));
    return Record(std::move(made));
}

Result<Record> ParseInstruction(const RecordJson& record) {
    InstructionRecord made;
    WEFT_ASSIGN(made.instruction, StringOf(record, kInstruction));
    WEFT_ASSIGN(made.output, StringOf(record, kOutput));
    WEFT_ASSIGN(made.input, OptionalString(record, {"input", "context"}));
    WEFT_ASSIGN(made.system, SystemOf(record));
    WEFT_ASSIGN(made.extra, TemplateVariablesOf(record));
    const RecordJson* history = Find(record, {"history"});
    if (history == nullptr) return Record(std::move(made));
    constexpr std::string_view kPairs = "a list of [instruction, answer] pairs";
    if (!history->is_array()) return WrongType("history", kPairs, *history);
    for (const RecordJson& turn : *history) {
        if (!turn.is_array() || turn.size() != 2) return WrongType("history", kPairs, turn);
        auto asked = TextOfValue(turn[0]), answered = TextOfValue(turn[1]);
        if (!asked || !answered) return WrongType("history", kPairs, asked ? turn[1] : turn[0]);
        made.history.emplace_back(*std::move(asked), *std::move(answered));
    }
    return Record(std::move(made));
}

Result<Record> ParseQuestion(const RecordJson& record) {
    WEFT_ASSIGN(const std::string system, SystemOf(record));
    if (!system.empty()) {
        return MakeError(ErrorCode::kUnsupported,
                         "'{}' beside 'question' has no place in the texts of --prompt-type. Write "
                         "'instruction' and 'output' instead of 'question' and 'answer'",
                         NameIn(record, kSystem));
    }
    QuestionRecord made;
    WEFT_ASSIGN(made.question, StringOf(record, kQuestion));
    WEFT_ASSIGN(made.context, ContextOf(record));
    WEFT_ASSIGN(made.answer, StringOf(record, kAnswer));
    return Record(std::move(made));
}

Result<Record> ParseText(const RecordJson& record) {
    TextRecord made;
    WEFT_ASSIGN(made.text, StringOf(record, {"text"}));
    return Record(std::move(made));
}

// A string, or a value in place of a string. (StringOf refuses numbers that have lost digits.)
bool IsString(const RecordJson* value) {
    return value != nullptr && (value->is_string() || value->is_number() || value->is_boolean());
}
bool IsNumbers(const RecordJson* value) {
    return value != nullptr && value->is_array() && !value->empty() &&
           std::ranges::all_of(*value, [](const RecordJson& each) { return each.is_number(); });
}
bool IsMessages(const RecordJson* value) {
    return value != nullptr && IsListOfObjects(*value);
}
bool HasContent(const RecordJson* value) {
    return IsString(value) || IsMessages(value);
}

enum class LearnedPart { kReply, kText, kIds };

struct FormRule {
    Keys marks;  // if one of them is present, the record is meant to have this form
    bool (*fits)(const RecordJson& record);
    Result<Record> (*parse)(const RecordJson& record);
    LearnedPart learned = LearnedPart::kReply;
};

const FormRule kFormRules[] = {
    {{"messages"},
     [](const RecordJson& r) { return IsMessages(Find(r, {"messages"})); },
     [](const RecordJson& r) { return ParseMessages(r, "messages"); }},
    {{"conversations"},
     [](const RecordJson& r) { return IsMessages(Find(r, {"conversations"})); },
     [](const RecordJson& r) { return ParseMessages(r, "conversations"); }},
    {{"tokens"},
     [](const RecordJson& r) { return IsNumbers(Find(r, {"tokens"})); },
     [](const RecordJson& r) { return ParseTokens(r, "tokens"); },
     LearnedPart::kIds},
    {{"input_ids"},
     [](const RecordJson& r) { return IsNumbers(Find(r, {"input_ids"})); },
     [](const RecordJson& r) { return ParseTokens(r, "input_ids"); },
     LearnedPart::kIds},
    {{"completion"},
     [](const RecordJson& r) {
         return HasContent(Find(r, {"prompt"})) && HasContent(Find(r, kCompletion));
     },
     ParsePair},
    {kInstruction,
     [](const RecordJson& r) {
         return IsString(Find(r, kInstruction)) && IsString(Find(r, kOutput));
     },
     ParseInstruction},
    {{"question", "QUESTION"},
     [](const RecordJson& r) { return IsString(Find(r, kQuestion)) && IsString(Find(r, kAnswer)); },
     ParseQuestion},
    {{"text"},
     [](const RecordJson& r) { return IsString(Find(r, {"text"})); },
     ParseText,
     LearnedPart::kText},
    {{"conversation"},
     [](const RecordJson& r) { return IsMessages(Find(r, {"conversation"})); },
     [](const RecordJson& r) { return ParseMessages(r, "conversation"); }},
};

constexpr std::string_view kForms =
    "'messages', 'conversations', 'prompt' and 'completion', 'instruction' and 'output', 'query' "
    "and 'response', 'question' and 'answer', 'text', 'tokens', 'input_ids', or 'conversation'";

Error NoForm(const RecordJson& record) {
    std::string keys;
    size_t left = 8;
    for (const auto& [key, value] : record.items()) {
        if (left-- == 0) {
            keys += ", ...";
            break;
        }
        keys += fmt::format("{}'{}'", keys.empty() ? "" : ", ", model_files::hf::Shown(key));
    }
    std::string hint;
    for (const auto& [key, value] : record.items()) {
        if (!hint.empty() || !IsMessages(&value) || !value.is_array() || value.empty()) continue;
        const std::string name = model_files::hf::Shown(key);
        if (value[0].contains("role") || value[0].contains("from")) {
            hint = fmt::format(". If '{}' is the conversation, rename it to 'messages'", name);
            continue;
        }
        hint = fmt::format(". If the records are in the list '{}', cut it out: jq -c '.[\"{}\"][]'",
                           name, name);
    }
    return MakeError(ErrorCode::kCorrupt, "a record with {}; expected {}{}",
                     keys.empty() ? "no keys" : keys, kForms, hint);
}

// The text with null instead of NaN and infinite numbers, which Python's json.dumps writes; empty:
// it has none.
std::string WithoutNan(std::string_view text) {
    std::string plain;
    size_t taken = 0;
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '"') {
            while (++at < text.size() && text[at] != '"') at += text[at] == '\\' ? 1 : 0;
        }
        for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
            if (at >= text.size() || !text.substr(at).starts_with(word)) continue;
            const size_t end = at + word.size();
            if (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end]))) continue;
            plain.append(text, taken, at - taken).append("null");
            taken = end;
            at = end - 1;
        }
    }
    return taken == 0 ? "" : plain.append(text, taken);
}

// Refuses answers of which one may be a rejected one, in the names of any program
// ("rejected_response", "response_chosen", "is_chosen"). Numbers (scores) do not matter.
Status RefusePreference(const RecordJson& record) {
    constexpr std::string_view kNoPreferences =
        "--loss dpo (or ipo, orpo, kto, simpo) learns preferences";
    if (record.contains("chosen") && record.contains("rejected")) {
        return MakeError(ErrorCode::kUnsupported,
                         "a preference ('chosen' and 'rejected'): {}. To learn the chosen answers, "
                         "rename 'chosen' to 'completion' and remove 'rejected'",
                         kNoPreferences);
    }
    for (const auto& [key, value] : record.items()) {
        std::string name = key;
        std::ranges::transform(name, name.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        });
        const bool named = name.find("rejected") != name.npos || name.find("chosen") != name.npos;
        if (!named || value.is_null() || value.is_number() || value == "") continue;
        return MakeError(ErrorCode::kUnsupported,
                         "'{}' makes the record a preference: {}. To learn the other answer of the "
                         "record, remove '{}'",
                         model_files::hf::Shown(key), kNoPreferences, model_files::hf::Shown(key));
    }
    return {};
}

}  // namespace

Result<RecordJson> ParseRecordJson(std::string_view text) {
    constexpr JsonLimits kLimits{
        .bytes = SIZE_MAX, .depth = kRecordDepth, .values = size_t{1} << 24, .unique = true};
    auto parsed = ParseOrderedJsonText(text, kLimits);
    if (parsed.ok()) return parsed;
    if (const std::string plain = WithoutNan(text); !plain.empty()) {
        parsed = ParseOrderedJsonText(plain, kLimits);
        if (parsed.ok()) return parsed;
    }
    const bool limit = parsed.error().code == ErrorCode::kUnsupported;
    return MakeError(ErrorCode::kCorrupt, "{}: {}", limit ? "too much JSON" : "not valid JSON",
                     parsed.error().message);
}

Result<Record> ParseRecord(std::string_view text) {
    WEFT_ASSIGN(RecordJson record, ParseRecordJson(text));
    return RecordOfObject(std::move(record));
}

// As the null values that programs write for a picture that a record lacks: [null],
// {"bytes": null, "path": null}.
static bool HoldsNothing(const RecordJson& value) {
    if (!value.is_structured()) return value.is_null() || value == "";
    return std::ranges::all_of(value, HoldsNothing);
}

Status RefuseMedia(const RecordJson& record) {
    if (!record.is_object()) return {};
    for (const char* name : {"images", "image", "videos", "video", "audios", "audio"}) {
        const RecordJson* value = Find(record, {name});
        const bool holds = value != nullptr && (value->is_structured() || value->is_string());
        if (!holds || HoldsNothing(*value)) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "it has '{}', and training reads text alone. To learn the text without "
                         "it, remove '{}'",
                         name, name);
    }
    return {};
}

Result<Record> RecordOfObject(chat::OrderedJson record) {
    if (!record.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "a JSON {}; expected an object",
                         std::string_view(record.type_name()));
    }
    WEFT_TRY(RefusePreference(record));
    const auto check = [&](const FormRule& rule) {
        if (rule.learned == LearnedPart::kIds) return Status();
        return CheckRecordMarks(record, rule.learned == LearnedPart::kReply);
    };
    for (const FormRule& rule : kFormRules) {
        if (!rule.fits(record)) continue;
        WEFT_TRY(check(rule));
        return rule.parse(record);
    }
    // Reports the error of the form that the record is meant to have.
    for (const FormRule& rule : kFormRules) {
        if (Find(record, rule.marks) == nullptr) continue;
        auto parsed = rule.parse(record);
        if (!parsed.ok()) {
            return MakeError(parsed.error().code, "{}. A record has {}", parsed.error().message,
                             kForms);
        }
        WEFT_TRY(check(rule));
        return parsed;
    }
    return NoForm(record);
}

}  // namespace weft::train
