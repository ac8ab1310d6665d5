#include "chat/template/chat_template.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json_digits.h"
#include "chat/template/interpreter.h"
#include "chat/template/parser.h"
#include "chat/tool_words.h"

namespace weft::chat {
namespace {

using jinja::Value;

constexpr size_t kMostTemplateBytes = size_t{1} << 20;
constexpr size_t kMostRole = 64;
constexpr int kMostJsonDepth = 150;
constexpr size_t kMostTemplateValues = size_t{1} << 17;  // of messages, tools and variables

bool IsRole(std::string_view role) {
    return !role.empty() && role.size() <= kMostRole &&
           std::all_of(role.begin(), role.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
           });
}

Status CheckMessages(const OrderedJson& messages) {
    if (!messages.is_array() || messages.empty()) {
        return MakeError(ErrorCode::kUsage, "chat: there are no messages");
    }
    for (const OrderedJson& message : messages) {
        const auto role = message.is_object() ? message.find("role") : message.end();
        if (!message.is_object() || role == message.end() || !role->is_string()) {
            return MakeError(ErrorCode::kUsage,
                             "chat: a message is not an object with a 'role' of type string");
        }
        const std::string& name = role->get_ref<const std::string&>();
        if (!IsRole(name)) {
            return MakeError(ErrorCode::kUsage,
                             "chat: '{}' is not a valid role; expected letters, such as system, "
                             "user, assistant or tool",
                             name.substr(0, kMostRole));
        }
    }
    return {};
}

// Converts JSON to values whose texts have `source` (text.h); 0: trusted text.
class Importer {
  public:
    Importer(jinja::Meter& meter, const ChatTemplate::Takes& takes)
        : meter_(meter), takes_(takes) {}

    Value From(const OrderedJson& json, uint32_t source = kOtherWords) {
        const jinja::Level level(meter_);
        meter_.Step();
        CountValue();
        switch (json.type()) {
            case OrderedJson::value_t::null:
            case OrderedJson::value_t::discarded: return Value(jinja::None{});
            case OrderedJson::value_t::binary:
                return IsDigits(json) ? jinja::MakeDigits(meter_, DigitsOf(json), source)
                                      : Value(jinja::None{});
            case OrderedJson::value_t::boolean: return Value(json.get<bool>());
            case OrderedJson::value_t::number_integer: return Value(json.get<int64_t>());
            case OrderedJson::value_t::number_unsigned: {
                const auto number = json.get<uint64_t>();
                if (number > static_cast<uint64_t>(INT64_MAX)) {
                    return jinja::MakeDigits(meter_, std::to_string(number), source);
                }
                return Value(static_cast<int64_t>(number));
            }
            case OrderedJson::value_t::number_float: return Value(json.get<double>());
            case OrderedJson::value_t::string:
                return jinja::MakeText(meter_, json.get_ref<const std::string&>(), source);
            case OrderedJson::value_t::array: return List(json, source);
            case OrderedJson::value_t::object: return Dict(json, source);
        }
        return Value(jinja::None{});
    }

    // Roles are trusted because they were checked; templates build markers from them.
    Value Messages(const OrderedJson& messages, bool results_in_turn) {
        jinja::ListBuilder list(meter_);
        for (size_t i = 0; i < messages.size();) {
            const Turn turn = results_in_turn ? TurnAt(messages, i) : Turn{i, i + 1, i + 1};
            list.Add(Message(messages, turn));
            i = turn.end;
        }
        return std::move(list).Finish();
    }

  private:
    // Messages that the template gets as one: message `at`, the results before `results`, and the
    // answer to them, if it is before `end`.
    struct Turn {
        size_t at, results, end;
    };
    static Turn TurnAt(const OrderedJson& messages, size_t at) {
        Turn turn{at, at + 1, at + 1};
        const OrderedJson& first = messages[at];
        if (!HasRole(first, "assistant") || !HasCalls(first)) return turn;
        while (turn.results < messages.size() && HasRole(messages[turn.results], "tool")) {
            ++turn.results;
        }
        turn.end = turn.results;
        const bool results = turn.results > at + 1 || first.contains(kResponsesMember);
        const auto content = first.find("content");
        const bool open = content == first.end() || content->is_null() || *content == "";
        if (!results || !open || turn.results == messages.size()) return turn;
        const OrderedJson& next = messages[turn.results];
        const bool answers = HasRole(next, "assistant") && !HasCalls(next);
        if (answers && !TextMember(next, "content").empty()) ++turn.end;
        return turn;
    }
    static uint32_t SourceOf(size_t message) {
        return kMessageWords + static_cast<uint32_t>(message);
    }

    // The results that the message has, and those that follow it.
    Value Responses(const OrderedJson& messages, const Turn& turn) {
        jinja::ListBuilder list(meter_);
        const auto given = messages[turn.at].find(kResponsesMember);
        if (given != messages[turn.at].end() && given->is_array()) {
            for (const OrderedJson& each : *given) list.Add(From(each, kOtherWords));
        }
        for (size_t i = turn.at + 1; i < turn.results; ++i) {
            const OrderedJson& result = messages[i];
            const auto response = result.find(kResponseMember);
            const uint32_t source = SourceOf(i);
            jinja::DictBuilder dict(meter_);
            dict.Add(jinja::MakeText(meter_, "name", source),
                     From(TextMember(result, "name"), source));
            dict.Add(jinja::MakeText(meter_, kResponseMember, source),
                     response == result.end() ? From(TextMember(result, "content"), source)
                                              : From(*response, source));
            list.Add(std::move(dict).Finish());
        }
        return std::move(list).Finish();
    }

    Value List(const OrderedJson& json, uint32_t source) {
        CheckDepth();
        jinja::ListBuilder list(meter_);
        for (const OrderedJson& item : json) list.Add(From(item, source));
        --depth_;
        return std::move(list).Finish();
    }

    Value Dict(const OrderedJson& json, uint32_t source) {
        CheckDepth();
        jinja::DictBuilder dict(meter_);
        for (const auto& [key, value] : json.items()) {
            dict.Add(jinja::MakeText(meter_, key, source), From(value, source));
        }
        --depth_;
        return std::move(dict).Finish();
    }

    // A value costs about a hundred times more in a template than in a request.
    void CountValue() {
        if (++values_ <= kMostTemplateValues) return;
        throw jinja::Failure{
            MakeError(ErrorCode::kUsage,
                      "chat: the template's messages, tools and variables have more than {} values",
                      kMostTemplateValues)};
    }

    void CheckDepth() {
        if (++depth_ <= kMostJsonDepth) return;
        throw jinja::Failure{MakeError(
            ErrorCode::kUsage, "chat: messages or tools nest deeper than {}", kMostJsonDepth)};
    }

    bool TakesParts(const OrderedJson& message) const {
        const OrderedJson& role = message.at("role");
        if (role == "assistant") return takes_.assistant_parts;
        if (role == "tool") return takes_.tool_parts;
        return role == "system" ? takes_.system_parts : takes_.user_parts;
    }

    Value Content(const OrderedJson& message, const std::string& text, uint32_t source) {
        CountValue();
        const auto sizes = message.find(kPartsMember);
        const std::vector<std::string_view> parts =
            sizes == message.end() ? std::vector<std::string_view>{} : PartsOf(text, *sizes);
        if (parts.empty() || !TakesParts(message)) return jinja::MakeContent(meter_, text, source);
        return jinja::MakeContent(meter_, parts, source);
    }

    // Returns no parts if the sizes do not match the text.
    std::vector<std::string_view> PartsOf(std::string_view text, const OrderedJson& sizes) {
        std::vector<std::string_view> parts;
        for (const OrderedJson& each : sizes) {
            CountValue();
            const auto bytes = each.is_number_unsigned() ? each.get<uint64_t>() : UINT64_MAX;
            if (bytes > text.size()) return {};
            parts.push_back(text.substr(0, bytes));
            text.remove_prefix(bytes);
        }
        if (!text.empty()) parts.clear();
        return parts;
    }

    // Passes reasoning under all names that templates use.
    Value Message(const OrderedJson& messages, const Turn& turn) {
        const OrderedJson& message = messages[turn.at];
        const uint32_t source = SourceOf(turn.at);
        const bool results = turn.results > turn.at + 1, answered = turn.end > turn.results;
        const OrderedJson* reasoning = nullptr;
        for (const char* name : kReasoningMembers) {
            const auto found = message.find(name);
            if (reasoning == nullptr && found != message.end() && !found->is_null()) {
                reasoning = &*found;
            }
        }
        jinja::DictBuilder dict(meter_);
        const auto add = [&](std::string_view key, Value value) {
            dict.Add(jinja::MakeText(meter_, key, source), std::move(value));
        };
        for (const auto& [key, value] : message.items()) {
            if ((reasoning != nullptr && key == kReasoningMembers[0]) || key == kLossMember)
                continue;
            if (key == kPartsMember || (key == "content" && answered)) continue;
            if (key == kResponsesMember) {
                if (!results) add(key, From(value, kOtherWords));
            } else if (key == "content" && value.is_string()) {
                add(key, Content(message, value.get_ref<const std::string&>(), source));
            } else {
                add(key, From(value, key == "role" ? 0 : source));
            }
        }
        if (results) add(kResponsesMember, Responses(messages, turn));
        if (answered) {
            const OrderedJson& answer = messages[turn.results];
            add("content", Content(answer, TextMember(answer, "content"), SourceOf(turn.results)));
        }
        if (reasoning != nullptr) {
            add(kReasoningMembers[0], From(*reasoning, source));
            if (!message.contains(kReasoningMembers[1]))
                add(kReasoningMembers[1], From(*reasoning, source));
        }
        return std::move(dict).Finish();
    }

    jinja::Meter& meter_;
    const ChatTemplate::Takes& takes_;
    size_t values_ = 0;
    int depth_ = 0;
};

Value Context(jinja::Meter& meter, const ChatInput& input,
              const std::vector<std::pair<std::string, std::string>>& tokens,
              const ChatTemplate::Takes& takes) {
    Importer importer(meter, takes);
    jinja::DictBuilder context(meter);
    const auto set = [&](std::string_view name, Value value) {
        context.Set(jinja::MakeText(meter, name), std::move(value));
    };
    for (const auto& [name, text] : tokens) set(name, jinja::MakeText(meter, text));
    set("documents", Value(jinja::None{}));
    if (input.extra.is_object()) {
        for (const auto& [name, value] : input.extra.items()) set(name, importer.From(value));
    }
    set("messages", importer.Messages(input.messages, input.results_in_turn));
    const bool tools = !takes.tools_left_out || !input.tools.is_null();
    if (tools) set("tools", importer.From(input.tools));
    set("add_generation_prompt", Value(input.add_generation_prompt));
    return std::move(context).Finish();
}

int64_t Now() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

}  // namespace

struct ChatTemplate::Tree {
    jinja::Body body;
};

ChatTemplate::ChatTemplate(std::string source, std::unique_ptr<const Tree> tree)
    : source_(std::move(source)), tree_(std::move(tree)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view text) {
    if (text.size() > kMostTemplateBytes) {
        return MakeError(ErrorCode::kUnsupported,
                         "chat template: {} bytes; at most {} are supported", text.size(),
                         kMostTemplateBytes);
    }
    try {
        auto tree = std::make_unique<const Tree>(Tree{jinja::ParseTemplate(text)});
        return ChatTemplate(std::string(text), std::move(tree));
    } catch (const jinja::Failure& failure) {
        return failure.error;
    }
}

Result<Text> ChatTemplate::Render(const ChatInput& input,
                                  const std::vector<std::pair<std::string, std::string>>& tokens,
                                  const RenderLimits& limits) const {
    WEFT_TRY(CheckMessages(input.messages));
    try {
        jinja::Meter meter(limits);
        Value context = Context(meter, input, tokens, takes_);
        jinja::Interpreter interpreter(meter, std::move(context),
                                       input.now_s == 0 ? Now() : input.now_s);
        return interpreter.Run(tree_->body);
    } catch (const jinja::Failure& failure) {
        return failure.error;
    }
}

}  // namespace weft::chat
