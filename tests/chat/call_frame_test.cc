// Call frames found in templates: which ones, and that calls written in them are parsed back for
// any arguments.
#include "chat/call_frame.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "base/file.h"
#include "chat/answer_calls.h"
#include "chat/tool_types.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

using Arguments = CallFrame::Arguments;

CallFrame FrameOf(const std::string& source) {
    static const auto words = tokenizer::Tokenizer::Make(tokenizer::TinySpm({"a"})).value();
    const auto chat = Chat::Make(source, *words);
    EXPECT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
    const TemplateCapabilities form = FindCapabilities(*chat, true);
    return FindCallFrame(*chat, form, CallFamily(FamilyOf(*chat), form));
}

CallFrame FrameOfFile(const std::string& name) {
    return FrameOf(ReadTextFile(support::TestData("/chat/" + name + ".jinja")).value());
}

// A call as a model constrained to the frame writes it.
std::string InFrame(const CallFrame& frame, const OrderedJson& arguments) {
    std::string text = frame.before + "get_weather" + frame.middle;
    if (frame.arguments == Arguments::kJson) return text + arguments.dump() + frame.after;
    bool first = true;
    for (const auto& [key, value] : arguments.items()) {
        if (!first) text += frame.between;
        first = false;
        const bool bare = value.is_string() && frame.arguments != Arguments::kValues;
        text += frame.before_key + key + frame.before_value;
        text += bare ? frame.quote + value.get<std::string>() + frame.quote : value.dump();
        text += frame.behind_value;
    }
    return text + frame.after;
}

const OrderedJson kArguments[] = {
    OrderedJson::object(),
    {{"city", "Ulm"}},
    {{"city", "01234"}, {"days", -3}},
    {{"days", 3}, {"city", "S\xC3\xA3o \"Paulo\", {x}"}, {"warm", true}},
    {{"deep", {{"list", {1, 2.5, "three", nullptr}}, {"no", false}}}, {"city", "Bonn"}},
    {{"warm", false}, {"deep", OrderedJson::object()}},
};

OrderedJson FrameTools() {
    const OrderedJson parameters{{"type", "object"},
                                 {"properties",
                                  {{"city", {{"type", "string"}}},
                                   {"days", {{"type", "integer"}}},
                                   {"warm", {{"type", "boolean"}}},
                                   {"deep", {{"type", "object"}}}}}};
    return OrderedJson::array(
        {{{"type", "function"},
          {"function", {{"name", "get_weather"}, {"parameters", parameters}}}}});
}

const std::map<std::string, Arguments> kOwnFrames = {
    {"coder", Arguments::kTexts},
    {"deepseek", Arguments::kJson},
    {"gemma4", Arguments::kQuoted},
    {"glm", Arguments::kTexts},
    {"harmony", Arguments::kJson},
    {"kimi", Arguments::kJson},
    {"llama3", Arguments::kJson},
    {"minimax", Arguments::kTexts},
    {"mistral", Arguments::kJson},
    {"olmo3", Arguments::kValues},
    {"granite", Arguments::kJson},
    {"phi4mini", Arguments::kJson},
    {"cohere2", Arguments::kJson},
    {"lfm2", Arguments::kValues},
    {"solar", Arguments::kJson},
    {"seed", Arguments::kTexts},
    {"hy3", Arguments::kTexts},
    {"mimo", Arguments::kTexts},
    {"gigachat", Arguments::kJson},
    {"apriel", Arguments::kJson},
    {"glm4", Arguments::kJson},
    {"interns1", Arguments::kJson},
    {"hunyuan", Arguments::kJson},
    {"xlam", Arguments::kJson},
    {"commandr", Arguments::kJson},
    {"minicpm5", Arguments::kTexts},
    {"functiongemma", Arguments::kQuoted},
};

TEST(CallFrame, IsFoundInTemplates) {
    for (const auto& [name, arguments] : kOwnFrames) {
        const CallFrame frame = FrameOfFile(name);
        EXPECT_NE(frame, CallFrame()) << name;
        EXPECT_EQ(frame.arguments, arguments) << name;
        // The frame contains no text of the probe call. (Only the parser sees the text that closes
        // the JSON.)
        const bool json = arguments == Arguments::kJson;
        for (const std::string& part :
             {frame.before, frame.middle, frame.between, json ? "" : frame.after}) {
            EXPECT_EQ(part.find("framed"), part.npos) << name << ": " << part;
            EXPECT_EQ(part.find("\"id\""), part.npos) << name << ": " << part;
        }
    }
    // Templates without calls, or with the default format; their end marker may be missing.
    for (const char* name :
         {"chatml", "gemma", "llama2", "olmo", "phi3", "vicuna", "qwen", "dsml"}) {
        const CallFrame frame = FrameOfFile(name);
        EXPECT_EQ(frame.family, ToolCallFormat::kQwen) << name;
        EXPECT_EQ(TrimBlanks(frame.before), CallFrame().before) << name;
        EXPECT_EQ(frame.middle, CallFrame().middle) << name;
        EXPECT_TRUE(CallFrame().after.starts_with(frame.after)) << name << ": " << frame.after;
        EXPECT_EQ(frame.arguments, Arguments::kJson) << name;
    }
    const CallFrame coder = FrameOfFile("coder");
    EXPECT_EQ(coder.family, ToolCallFormat::kQwenCoder);
    EXPECT_EQ(coder.before, "<tool_call>\n<function=");
}

TEST(CallFrame, CallsInAFrameParseBack) {
    const auto types = std::make_shared<const ToolTypes>(FrameTools());
    for (const auto& [name, _] : kOwnFrames) {
        const CallFrame frame = FrameOfFile(name);
        for (const OrderedJson& arguments : kArguments) {
            const std::string text = InFrame(frame, arguments);
            AnswerParser parser(frame.family, false, false, types);
            AnswerDelta all = parser.Push(text);
            const AnswerDelta rest = parser.Finish();
            for (const ToolCall& call : rest.tool_calls) all.tool_calls.push_back(call);
            ASSERT_EQ(all.tool_calls.size(), 1u) << name << ": " << text;
            EXPECT_EQ(all.tool_calls[0].name, "get_weather") << name << ": " << text;
            EXPECT_EQ(all.tool_calls[0].arguments, arguments) << name << ": " << text;
            EXPECT_EQ(all.content + rest.content, "") << name << ": " << text;
        }
    }
}

// A call cut off anywhere keeps its name and the arguments so far, without markers.
TEST(CallFrame, UnfinishedCalls) {
    const ToolTypes types(FrameTools());
    for (const auto& [file, _] : kOwnFrames) {
        const CallFrame frame = FrameOfFile(file);
        const size_t behind = (frame.middle.empty() ? frame.before_key : frame.middle).size();
        const size_t named = frame.before.size() + std::string("get_weather").size() + behind;
        for (const OrderedJson& arguments : kArguments) {
            const std::string whole = InFrame(frame, arguments);
            for (size_t size = 0; size + frame.after.size() < whole.size(); ++size) {
                const auto begun = BegunCall(frame, whole.substr(0, size), types);
                ASSERT_EQ(begun.has_value(), size >= named) << file << size;
                if (!begun) continue;
                EXPECT_EQ(begun->name, "get_weather");
                EXPECT_TRUE(begun->begins && !begun->ends);
                if (frame.arguments == Arguments::kJson) {
                    EXPECT_TRUE(arguments.dump().starts_with(begun->arguments)) << file;
                    continue;
                }
                const OrderedJson some = ReadJson(begun->arguments + "}");
                ASSERT_TRUE(some.is_object()) << file << ": " << begun->arguments;
                auto at = arguments.begin();
                for (const auto& [key, value] : some.items()) {
                    EXPECT_EQ(key, at.key()) << file;
                    EXPECT_EQ(value, *at++) << file;
                }
            }
        }
    }
}

// A format that no parser reads gives the default frame.
TEST(CallFrame, UnknownFormatsUseTheDefault) {
    EXPECT_EQ(FrameOf("{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
                      "{% for c in m.tool_calls or [] %}~~{{ c.function.name }}~~"
                      "{{ c.function.arguments | tojson }}~~{% endfor %}{% endfor %}"
                      "{% if add_generation_prompt %}<assistant>{% endif %}"),
              CallFrame());
}

// A template may write any amount of text after a call: no frame, in little time.
TEST(CallFrame, HostileTemplates) {
    for (const std::string behind : {"}", "{", "<|x|>", " ", "\n}", "\\"}) {
        const CallFrame frame = FrameOf(
            "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n"
            "{\"name\": \"{{ c.function.name }}\", "
            "\"arguments\": {{ c.function.arguments | tojson }}{{ " +
            OrderedJson(behind).dump() +
            " * 400000 }}{% endfor %}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}");
        EXPECT_EQ(frame, CallFrame()) << behind;
    }
}

// A model may write invalid UTF-8.
TEST(CallFrame, InvalidUtf8) {
    const ToolTypes types(FrameTools());
    for (const auto& [file, _] : kOwnFrames) {
        const CallFrame frame = FrameOfFile(file);
        if (frame.arguments == Arguments::kJson) continue;
        const std::string text = frame.before + "get_weather" + frame.middle + frame.before_key +
                                 "city" + frame.before_value + frame.quote + "\xC3(\xFF" +
                                 frame.quote + frame.behind_value;
        const auto begun = BegunCall(frame, text, types);
        ASSERT_TRUE(begun.has_value()) << file;
        EXPECT_EQ(begun->name, "get_weather") << file;
        EXPECT_FALSE(begun->arguments.find('\xFF') != std::string::npos) << file;
    }
}

}  // namespace
}  // namespace weft::chat
