// Fuzzes function calls. The chat template that defines their format, the functions and the model's
// output are all hostile. The first line defines the rest: "template", then a template; or the name
// of a frame below, then functions (OpenAI's "tools"), a line "---", and an answer of that form,
// whole, in pieces and cut off.
//     build-fuzz/fuzz/calls_fuzz -max_total_time=60 -malloc_limit_mb=512 fuzz/corpus/calls
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "chat/answer.h"
#include "chat/call_frame.h"
#include "chat/call_stream.h"
#include "chat/tool_types.h"
#include "serve/api/constraint.h"
#include "support/grammar_probe.h"

namespace weft {
namespace {

using chat::CallFrame;
using chat::ToolCallFormat;
using Arguments = CallFrame::Arguments;

const CallFrame kCoder{.family = ToolCallFormat::kQwenCoder,
                       .before = "<tool_call>\n<function=",
                       .middle = ">\n",
                       .after = "</function>\n</tool_call>",
                       .arguments = Arguments::kTexts,
                       .before_key = "<parameter=",
                       .before_value = ">\n",
                       .behind_value = "\n</parameter>\n"};
const CallFrame kGemma{.family = ToolCallFormat::kGemma,
                       .before = "<|tool_call>call:",
                       .middle = "{",
                       .after = "}<tool_call|>",
                       .arguments = Arguments::kQuoted,
                       .before_value = ":",
                       .between = ",",
                       .quote = "<|\"|>"};
const CallFrame kValues{.family = ToolCallFormat::kOlmo,
                        .before = "<function_calls>",
                        .middle = "(",
                        .after = ")</function_calls>",
                        .arguments = Arguments::kValues,
                        .before_value = "=",
                        .between = ", "};

const tokenizer::Tokenizer& Words() {
    static const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair()).value();
    return *words;
}

// Whether rendering a conversation with a call costs little. Examining a template renders many of
// them, each within limits that are far longer than a fuzzer waits.
bool CostsLittle(std::string_view source) {
    const auto parsed = chat::ChatTemplate::Parse(source);
    if (!parsed.ok()) return true;
    chat::ChatInput input;
    input.messages = chat::OrderedJson::parse(R"([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function",
         "function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "tool", "tool_call_id": "call00001", "content": "{}"}])");
    input.tools = chat::OrderedJson::parse(
        R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");
    const auto text = parsed->Render(
        input, {},
        {.steps = 50'000, .live_bytes = 4 << 20, .made_bytes = 16 << 20, .output_bytes = 1 << 20});
    return text.ok() || text.error().message.find(" than ") == std::string::npos;
}

void CheckTemplate(std::string_view source) {
    if (!CostsLittle(source)) return;
    const auto chat = chat::Chat::Make(source, Words());
    if (!chat.ok()) return WEFT_CHECK(!chat.error().message.empty());
    const ToolCallFormat family = chat::FamilyOf(*chat);
    for (const bool tools : {false, true}) {
        const chat::TemplateCapabilities form = chat::FindCapabilities(*chat, tools);
        if (!tools) continue;
        const CallFrame frame = chat::FindCallFrame(*chat, form, chat::CallFamily(family, form));
        WEFT_CHECK(!frame.before.empty() || !frame.middle.empty());
    }
}

// Arguments that a client gets are JSON, or the begin of it.
void CheckBegun(const std::string& arguments, bool pairs) {
    if (pairs) WEFT_CHECK(nlohmann::json::accept(arguments.empty() ? "{}" : arguments + "}"));
}

void CheckAnswer(const CallFrame& frame, const std::shared_ptr<const chat::ToolTypes>& types,
                 std::string_view text) {
    chat::AnswerParser whole(frame.family, false, false, types);
    chat::AnswerParser parts(frame.family, false, false, types);
    chat::AnswerDelta at_once = whole.Push(text), all;
    const auto add = [](chat::AnswerDelta& to, const chat::AnswerDelta& delta) {
        to.content += delta.content;
        to.tool_calls.insert(to.tool_calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
    };
    add(at_once, whole.Finish());
    for (size_t at = 0; at < text.size(); at += 2) add(all, parts.Push(text.substr(at, 2)));
    add(all, parts.Finish());
    WEFT_CHECK(all.content == at_once.content);
    WEFT_CHECK(all.tool_calls.size() == at_once.tool_calls.size());
    for (size_t size = 0; size <= text.size(); size += 1 + size / 8) {
        const auto begun = chat::BegunCall(frame, text.substr(0, size), *types);
        if (begun) CheckBegun(begun->arguments, frame.arguments != Arguments::kJson);
    }
    chat::CallStream stream;
    std::string arguments;
    for (size_t size = 0; size <= text.size(); ++size) stream.Take(text.substr(0, size), arguments);
    if (stream.done()) WEFT_CHECK(arguments.starts_with('{') && arguments.ends_with('}'));
}

// The constraint that demands a call of these functions compiles or gives an error; strict or not.
void CheckConstraint(const serve::Json& tools, const CallFrame& frame) {
    static std::map<std::string, std::unique_ptr<serve::Constraints>> known;
    auto& constraints = known[frame.before];
    if (!constraints) constraints = std::make_unique<serve::Constraints>(Words(), frame);
    for (const std::string name : {"*", "f"}) {
        const serve::DemandedCall call = serve::CallConstraint(tools, name, frame);
        if (frame != CallFrame() && !serve::PlainNames(tools, name)) continue;
        std::string left_out;
        const auto matcher = constraints->Compile(call.constraint, "", &left_out);
        if (!matcher.ok()) WEFT_CHECK(!matcher.error().message.empty());
    }
    for (const bool strict : {false, true}) {
        const serve::ConstraintText either = serve::OrCallConstraint(
            tools, {"json_schema", R"({"type":"object"})", "response_format", strict}, frame);
        const auto matcher = constraints->Compile(either);
        if (!matcher.ok()) WEFT_CHECK(!matcher.error().message.empty());
    }
}

void Check(std::string_view kind, std::string_view rest) {
    if (kind == "template") return CheckTemplate(rest);
    const CallFrame frame = kind == "coder"    ? kCoder
                            : kind == "gemma"  ? kGemma
                            : kind == "values" ? kValues
                                               : CallFrame();
    const size_t cut = std::min(rest.find("\n---\n"), rest.size());
    const auto read = ParseOrderedJsonText(rest.substr(0, cut), {.depth = 50, .values = 5000});
    serve::Json tools = serve::Json::array();
    if (read.ok() && read->is_array()) {
        for (const serve::Json& tool : *read) {
            // (What requests have is checked to this.)
            const auto& function =
                tool.is_object() && tool.contains("function") ? tool["function"] : serve::Json();
            if (!function.is_object() || !function.contains("name")) continue;
            if (!function["name"].is_string() || function["name"] == "") continue;
            const bool described = !function.contains("parameters") ||
                                   function["parameters"].is_object() ||
                                   function["parameters"].is_null();
            if (described) tools.push_back(tool);
        }
    }
    const auto types = std::make_shared<const chat::ToolTypes>(tools);
    if (!tools.empty()) CheckConstraint(tools, frame);
    if (cut < rest.size()) CheckAnswer(frame, types, rest.substr(cut + 5));
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t line = std::min(input.find('\n'), size);
    weft::Check(input.substr(0, line), input.substr(std::min(line + 1, size)));
    return 0;
}
