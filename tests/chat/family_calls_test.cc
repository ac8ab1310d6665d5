// Voluntary calls of each family: one or several, beside text and after reasoning, cut off,
// malformed, with markers inside strings; in pieces of any size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "chat/answer.h"
#include "chat/call_manners.h"
#include "chat/tool_types.h"

namespace weft::chat {
namespace {

using enum ToolCallFormat;

std::shared_ptr<const ToolTypes> Offered() {
    const OrderedJson text{{"type", "string"}}, number{{"type", "integer"}};
    const OrderedJson parameters{{"type", "object"},
                                 {"properties", {{"city", text}, {"days", number}}}};
    return std::make_shared<const ToolTypes>(OrderedJson::array(
        {{{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", parameters}}}}}));
}

ToolCall Weather(const std::string& city, int days) {
    return {"weather", OrderedJson{{"city", city}, {"days", days}}};
}

struct Heard {
    std::string content, reasoning;
    std::vector<ToolCall> calls;
    size_t ends = 0;  // of calls that were received in parts

    bool operator==(const Heard&) const = default;
};

// Collects complete calls, sent at once or in parts.
class Listener {
  public:
    void Take(AnswerDelta delta) {
        heard_.content += delta.content;
        heard_.reasoning += delta.reasoning;
        for (const CallPart& part : delta.call_parts) {
            if (part.begins) {
                name_ = part.name;
                arguments_.clear();
            }
            arguments_ += part.arguments;
            if (!part.ends) continue;
            heard_.calls.push_back({name_, OrderedJson::parse(arguments_)});
        }
        for (ToolCall& call : delta.tool_calls) heard_.calls.push_back(std::move(call));
    }
    const Heard& heard() const { return heard_; }

  private:
    Heard heard_;
    std::string name_, arguments_;
};

Heard Hear(ToolCallFormat family, const std::string& text, bool parts, size_t most_bytes,
           uint32_t seed, std::shared_ptr<const ToolTypes> tools = Offered(), bool ended = false) {
    std::mt19937 random(seed);
    AnswerParser parser(family, false, parts, std::move(tools));
    Listener listener;
    for (size_t at = 0; at < text.size();) {
        const size_t size = most_bytes == 1 ? 1 : 1 + random() % most_bytes;
        listener.Take(parser.Push(std::string_view(text).substr(at, size)));
        at += size;
    }
    listener.Take(parser.Finish(ended));
    return listener.heard();
}

// Splits the text in any way, with calls in parts and complete.
void ExpectHeard(const Manner& manner, const std::string& text, const Heard& expected) {
    for (const bool parts : {false, true}) {
        for (const size_t most : {size_t{1}, size_t{4}, size_t{23}, text.size() + 1}) {
            const Heard heard = Hear(manner.family, text, parts, most, 5);
            EXPECT_EQ(heard.content, expected.content) << manner.name << ": " << text;
            EXPECT_EQ(heard.reasoning, expected.reasoning) << manner.name << ": " << text;
            EXPECT_TRUE(heard.calls == expected.calls)
                << manner.name << " gave " << heard.calls.size() << ": " << text
                << (heard.calls.empty() ? "" : heard.calls[0].arguments.dump());
        }
    }
}

TEST(FamilyCalls, OneAndSeveral) {
    for (const Manner& m : Manners()) {
        const std::string one = m.begin + m.call("Paris", 3) + m.end;
        const std::string two =
            m.begin + m.call("Paris", 3) + m.between + m.call("Rome", 12) + m.end;
        const ToolCall paris = Weather("Paris", 3), rome = Weather("Rome", 12);
        ExpectHeard(m, one, {"", "", {paris}});
        ExpectHeard(m, one + m.last, {"", "", {paris}});
        ExpectHeard(m, two + m.last, {"", "", {paris, rome}});
        ExpectHeard(m, "I look.\n" + two + m.last, {"I look.", "", {paris, rome}});
        ExpectHeard(m, m.think + "Hm, Paris?" + m.thought + one + m.last,
                    {"", "Hm, Paris?", {paris}});
        ExpectHeard(m, m.think + "Hm" + m.thought + "I look.\n\n" + two + m.last,
                    {"I look.", "Hm", {paris, rome}});
        ExpectHeard(m, m.think + "Hm" + m.thought + "It is fine." + m.last,
                    {"It is fine.", "Hm", {}});
    }
}

// A marker, quote or bracket inside a string belongs to the string.
TEST(FamilyCalls, MarkersWithinTexts) {
    const char* const words[] = {"</tool_call>",
                                 "a </tool_call> b",
                                 "<tool_call>",
                                 "<|tool_call_end|>",
                                 "</minimax:tool_call>",
                                 "</invoke>",
                                 "<tool_call|>",
                                 "</function_calls>",
                                 "[TOOL_CALLS]",
                                 "</s>",
                                 "<think>",
                                 "<|im_end|>",
                                 "it's {a} [b] (c)",
                                 "}]}",
                                 "a\\b",
                                 "12345",
                                 "true",
                                 "\xC3\xA9\xE6\x97\xA5\xF0\x9F\x99\x82",
                                 "<b>&amp;</b>",
                                 "line\n",
                                 "\n\nline",
                                 " \t\n",
                                 ""};
    for (const Manner& m : Manners()) {
        for (const char* word : words) {
            const std::string text =
                m.begin + m.call(word, -1) + m.between + m.call("Rome", 0) + m.end + m.last;
            ExpectHeard(m, text, {"", "", {Weather(word, -1), Weather("Rome", 0)}});
        }
        if (m.family == kGemma) continue;  // cannot be written in this format
        const std::string quoted = "say \"hi\"";
        ExpectHeard(m, m.begin + m.call(quoted, 1) + m.end, {"", "", {Weather(quoted, 1)}});
    }
}

// Answers cut off anywhere: the result does not depend on the split, and no call is invented.
TEST(FamilyCalls, CutOff) {
    for (const Manner& m : Manners()) {
        const std::string text = "I look.\n" + m.begin + m.call("Paris", 3) + m.between +
                                 m.call("Rome", 12) + m.end + m.last;
        for (size_t cut = 0; cut <= text.size(); ++cut) {
            const std::string some = text.substr(0, cut);
            const Heard whole = Hear(m.family, some, false, some.size() + 1, 1);
            EXPECT_TRUE(Hear(m.family, some, false, 1, 1) == whole) << m.name << ": " << some;
            EXPECT_LE(whole.calls.size(), 2u);
            if (!whole.calls.empty()) {
                EXPECT_EQ(whole.calls[0].name, "weather") << m.name << ": " << some;
                EXPECT_EQ(whole.calls[0].arguments.value("city", ""), "Paris") << some;
            }
            EXPECT_TRUE(whole.content.starts_with("I look.") || cut < 8) << m.name << some;
            // Heard in parts, the calls are the same; a call that has begun is not content.
            const Heard parts = Hear(m.family, some, true, 3, cut);
            EXPECT_TRUE(parts.calls == whole.calls) << m.name << ": " << some;
        }
    }
}

// Malformed calls are shown as written, and the answer continues after them.
TEST(FamilyCalls, Malformed) {
    const std::pair<ToolCallFormat, const char*> broken[] = {
        {kQwen, "<tool_call>{\"name\": weather}</tool_call>"},
        {kQwen, "<tool_call>{\"arguments\": {}}</tool_call>"},
        {kQwen, "<tool_call>[]</tool_call>"},
        {kGlm, "<tool_call></tool_call>"},
        {kGlm, "<tool_call>two words<arg_key>a</arg_key></tool_call>"},
        {kGlm, "<tool_call>f<arg_key>a</arg_key>1</tool_call>"},
        {kKimi, "<|tool_call_begin|>functions.f:0{}<|tool_call_end|>"},
        {kKimi, "<|tool_call_begin|>f<|tool_call_argument_begin|>{\"a\":}<|tool_call_end|>"},
        {kMiniMax, "<minimax:tool_call>hello</minimax:tool_call>"},
        {kMiniMax, "<minimax:tool_call></minimax:tool_call>"},
        {kGemma, "<|tool_call>call:f{a:1<tool_call|>"},
        {kGemma, "<|tool_call>f{}<tool_call|>"},
        {kOlmo, "<function_calls>f(1)</function_calls>"},
        {kOlmo, "<function_calls>f(a=b)</function_calls>"},
        {kLfm2, "<|tool_call_start|>[f(a)]<|tool_call_end|>"},
        {kGranite, "<|tool_call|>{\"names\": \"f\"}"},
        {kPhi, "functools[1]"},
        {kNemotron, "<TOOLCALL>[1]</TOOLCALL>"},
        {kApertus, "<|tools_prefix|>[{\"f\": 1}]<|tools_suffix|>"},
        {kApertus, "<|tools_prefix|>[]<|tools_suffix|>"},
        {kMistral, "[TOOL_CALLS][{\"name\": 1}]"},
        {kCohere, "<|START_ACTION|>[{\"tool_name\": 1}]<|END_ACTION|>"},
        {kCohere, "<|START_ACTION|><|END_ACTION|>"},
        {kLfm2, "<|tool_call_start|>[f(1)]<|tool_call_end|>"},
        {kLfm2, "<|tool_call_start|>[f(a=b)]<|tool_call_end|>"},
        {kNemotron, "<TOOLCALL>[{]</TOOLCALL>"},
        {kSolar, "<|tool_call:begin|>a<|tool_call:args|>{}<|tool_call:end|>"},
        {kSolar, "<|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|>{a}<|tool_call:end|>"},
        {kHunyuanA13b, "<tool_calls>none</tool_calls>"},
        {kJamba, "<tool_calls>none</tool_calls>"},
        {kLongcat, "<longcat_tool_call>f<longcat_arg_key>a</longcat_arg_key>1</longcat_tool_call>"},
        {kMiniMaxM3, "]<]minimax[>[<tool_call>f]<]minimax[>[</tool_call>"},
        {kMiniMaxM3, "]<]minimax[>[<tool_call>]<]minimax[>[</tool_call>"},
        {kMiniMaxM3,
         "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>1]<]minimax[>["
         "</b>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>"},
    };
    for (const auto& [family, text] : broken) {
        for (const size_t most : {size_t{1}, size_t{7}, size_t{1000}}) {
            const Heard heard = Hear(family, std::string(text) + " and on", false, most, 2);
            EXPECT_EQ(heard.content, std::string(text) + " and on");
            EXPECT_TRUE(heard.calls.empty()) << text;
        }
    }
}

// An unbalanced quote hides the end marker until the answer ends; then it counts, and so do the
// calls after it.
TEST(FamilyCalls, UnbalancedQuotes) {
    const std::string bad = "<tool_call>{\"name\": \"f, \"arguments\": {}}</tool_call>";
    for (const size_t most : {size_t{1}, size_t{9}, size_t{1000}}) {
        const Heard heard =
            Hear(kQwen, bad + "\n<tool_call>" + JsonCall("Rome", 1) + "</tool_call>\nDone.", false,
                 most, 3);
        ASSERT_EQ(heard.calls.size(), 1u);
        EXPECT_EQ(heard.calls[0], Weather("Rome", 1));
        EXPECT_EQ(heard.content, bad + "Done.");
    }
}

// Models forget to end a call, to escape line ends, and to give arguments if there are none.
TEST(FamilyCalls, CommonMistakes) {
    const std::string call = JsonCall("Paris", 3);
    const std::vector<ToolCall> two = {Weather("Paris", 3), Weather("Paris", 3)};
    for (const bool parts : {false, true}) {
        EXPECT_TRUE(Hear(kQwen, "<tool_call>" + call + "\n<tool_call>" + call, parts, 5, 1).calls ==
                    two);
        // Wrong text behind the arguments.
        const std::string harmony = "<|channel|>commentary to=functions.weather<|message|>";
        for (const char* wrong : {"}", "}}", "\n```", " done"}) {
            const std::string text = harmony + JsonArguments("Paris", 3) + wrong + "<|call|>";
            const Heard heard = Hear(kHarmony, text, parts, 4, 1);
            EXPECT_TRUE(heard.calls == std::vector<ToolCall>{Weather("Paris", 3)}) << text;
            EXPECT_EQ(heard.content, "") << text;
        }
        const Heard lines = Hear(
            kQwen, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\tz\"}}</tool_call>",
            parts, 1, 1);
        ASSERT_EQ(lines.calls.size(), 1u) << lines.content;
        EXPECT_EQ(lines.calls[0].arguments["a"], "x\ny\tz");
        for (const auto& [family, text] : std::vector<std::pair<ToolCallFormat, std::string>>{
                 {kQwen, "<tool_call>{\"name\": \"now\"}</tool_call>"},
                 {kQwen, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>"},
                 {kQwen, "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>"},
                 {kQwen, "<tool_call>{\"name\": \"now\", \"arguments\": \"\"}</tool_call>"},
                 {kQwenCoder, "<tool_call>\n<function=now>\n</function>\n</tool_call>"},
                 {kGlm, "<tool_call>now\n</tool_call>"},
                 {kKimi,
                  "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|><|tool_call_end|"
                  ">"},
                 {kMiniMax,
                  "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>\n"
                  "</minimax:tool_call>"},
                 {kGemma, "<|tool_call>call:now{}<tool_call|>"},
                 {kGranite, "<|tool_call|>[{\"name\": \"now\"}]"},
                 {kOlmo, "<function_calls>now()</function_calls>"},
                 {kLfm2, "<|tool_call_start|>[now()]<|tool_call_end|>"},
                 {kLfm2, "<|tool_call_start|>[{\"name\": \"now\"}]<|tool_call_end|>"},
                 {kMistral, "[TOOL_CALLS]now[ARGS]{}"},
                 {kHarmony, "<|channel|>commentary to=functions.now<|message|><|call|>"}}) {
            const Heard heard = Hear(family, text, parts, 6, 1);
            ASSERT_EQ(heard.calls.size(), 1u) << text;
            EXPECT_EQ(heard.calls[0], (ToolCall{"now", OrderedJson::object()})) << text;
            EXPECT_EQ(heard.content, "");
            EXPECT_EQ(Hear(family, text, parts, 6, 1, Offered(), true), heard) << text;
        }
        // A server's parser gets no text of <|call|>, which ends the turn.
        for (const char* constrain : {"", " <|constrain|>json"}) {
            const std::string text =
                fmt::format("<|channel|>commentary to=functions.now{}<|message|>", constrain);
            const Heard ended = Hear(kHarmony, text, parts, 6, 1, Offered(), true);
            ASSERT_EQ(ended.calls.size(), 1u) << ended.content;
            EXPECT_EQ(ended.calls[0], (ToolCall{"now", OrderedJson::object()}));
            EXPECT_EQ(ended.content, "");
            const Heard cut = Hear(kHarmony, text, parts, 6, 1, Offered(), false);
            EXPECT_TRUE(cut.calls.empty());
            EXPECT_EQ(cut.content, text);
        }
    }
}

// Models write several calls between one pair of tags. A value may show such calls.
TEST(FamilyCalls, SeveralBetweenOnePairOfTags) {
    const std::string json = JsonCall("Paris", 3), rome = JsonCall("Rome", 12);
    const auto coder = [](const std::string& city, const char* days) {
        return "<function=weather>\n<parameter=city>\n" + city +
               "\n</parameter>\n<parameter=days>\n" + days + "\n</parameter>\n</function>";
    };
    const auto invoke = [](const std::string& city) {
        return "<invoke name=\"weather\">\n<parameter name=\"city\">" + city +
               "</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>";
    };
    const auto in_tags = [](const std::string& calls) {
        return "<tool_call>\n" + calls + "\n</tool_call>";
    };
    const std::vector<ToolCall> both = {Weather("Paris", 3), Weather("Rome", 12)};
    // Calls with one parameter each, as in a text about tools.
    const std::string tag = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>";
    const std::string tag2 = "<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>";
    const std::string shown = tag + "\n" + tag, invoked = tag2 + "\n" + tag2;
    const Manner qwen{.family = kQwen, .name = "qwen"}, xml{.family = kQwenCoder, .name = "coder"};
    const Manner minimax{.family = kMiniMax, .name = "minimax"};
    ExpectHeard(qwen, in_tags(json + "\n" + rome), {"", "", both});
    ExpectHeard(qwen, in_tags(json + ", " + rome), {"", "", both});
    ExpectHeard(qwen, "<tool_call>" + json + rome, {"", "", both});
    ExpectHeard(xml, in_tags(coder("Paris", "3") + "\n" + coder("Rome", "12")), {"", "", both});
    ExpectHeard(xml, in_tags(coder(shown, "12")), {"", "", {Weather(shown, 12)}});
    ExpectHeard(minimax, "<minimax:tool_call>\n" + invoke(invoked) + "\n</minimax:tool_call>",
                {"", "", {Weather(invoked, 3)}});
}

// DeepSeek V3.2 marks strings itself, whatever the schema says.
TEST(FamilyCalls, DsmlSaysWhatAValueIs) {
    const auto parameter = [](const char* name, const char* text, const std::string& value) {
        return Dsml(fmt::format("parameter name=\"{}\" string=\"{}\"", name, text)) + value +
               Dsml("/parameter");
    };
    const std::string call = Dsml("function_calls") + Dsml("invoke name=\"f\"") +
                             parameter("a", "true", "12") + parameter("b", "false", "12") +
                             parameter("c", "false", "[1, {\"d\": null}]") +
                             parameter("e", "true", "\n x \n") + parameter("g", "false", "x y") +
                             Dsml("/invoke") + Dsml("/function_calls");
    const Heard heard = Hear(kDsml, call, false, 3, 1);
    ASSERT_EQ(heard.calls.size(), 1u) << heard.content;
    EXPECT_EQ(heard.calls[0].arguments,
              OrderedJson::parse(R"({"a": "12", "b": 12, "c": [1, {"d": null}],
                                     "e": "\n x \n", "g": "x y"})"));
}

// MiniMax M3 writes objects and lists as tags.
TEST(FamilyCalls, MiniMaxM3sValuesMayBeTags) {
    std::string call =
        "#<tool_call>\n#<invoke name=\"f\">#<deep>#<list>#<item>1#</item>#<item>two#</item>"
        "#</list>#<no>false#</no>#</deep>\n#<rows>#<item>#<id>1#</id>#</item>#</rows>#<city>a <b> "
        "\n#</city>#</invoke>\n#</tool_call>";
    for (size_t at = call.find('#'); at != call.npos; at = call.find('#')) {
        call.replace(at, 1, "]<]minimax[>[");
    }
    const Heard heard = Hear(kMiniMaxM3, call, false, 4, 1);
    ASSERT_EQ(heard.calls.size(), 1u) << heard.content;
    EXPECT_EQ(heard.calls[0].arguments,
              OrderedJson::parse(R"({"deep": {"list": [1, "two"], "no": false},
                                     "rows": [{"id": 1}], "city": "a <b> \n"})"));
}

// Markers around text for the user, and unbalanced ones.
TEST(FamilyCalls, AnswersBetweenTags) {
    for (const auto& [family, text] : std::vector<std::pair<ToolCallFormat, std::string>>{
             {kErnie, "<think>\nHm\n</think>\n\n<response>\nIt is fine.\n</response>\n"},
             {kErnie, "<think>\nHm\n</think>\n\n<response>\nIt is fine."},
             {kHunyuanA13b, "<think>\nHm\n</think>\n<answer>\nIt is fine.\n</answer><|eos|>"},
             {kHunyuanA13b, "<think>Hm</think>It is fine.</answer>"},
             {kCohere,
              "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>It is fine.<|END_RESPONSE|>"},
             {kSolar, "<|think|>Hm<|end|><|begin|>assistant<|content|>It is fine.<|end|>"}}) {
        for (const size_t most : {size_t{1}, size_t{5}, size_t{1000}}) {
            const Heard heard = Hear(family, text, false, most, 4);
            EXPECT_EQ(heard.content, "It is fine.") << text;
            EXPECT_EQ(heard.reasoning, "Hm") << text;
        }
    }
}

// Lists of Python calls, between Llama 4's markers or bare.
TEST(FamilyCalls, Llama4) {
    const std::string list = "[weather(city=\"Paris\", days=3), weather(city='Rome', days=12)]";
    for (const std::string& text :
         {list + "<|eot|>", "<|python_start|>" + list + "<|python_end|><|eom|>"}) {
        for (const size_t most : {size_t{1}, size_t{6}, size_t{1000}}) {
            const Heard heard = Hear(kLlama3, text, false, most, 4);
            EXPECT_EQ(heard.content, "") << text;
            EXPECT_EQ(heard.calls,
                      (std::vector<ToolCall>{Weather("Paris", 3), Weather("Rome", 12)}));
        }
    }
}

// Detected by the markers of published templates.
TEST(FamilyCalls, FamiliesOfRecentTemplates) {
    for (const auto& [text, family] : std::initializer_list<std::pair<std::string, ToolCallFormat>>{
             {"<|START_ACTION|>[ {{ calls }} ]<|END_ACTION|>", kCohere},
             {"<|tool_call_start|>[{{ calls }}]<|tool_call_end|>", kLfm2},
             {"<SPECIAL_11>Assistant <think> <TOOLCALL>[{{ calls }}]</TOOLCALL>", kNemotron},
             {"<|think|> <|tool_calls|><|tool_call:begin|>{{ id }}", kSolar},
             {"<|inner_prefix|> <|tools_prefix|>[{{ calls }}]<|tools_suffix|>", kApertus},
             {"<\xEF\xBD\x9C"
              "Assistant\xEF\xBD\x9C>{{ " +
                  Dsml("invoke") + " }}",
              kDsml},
             {"<think> <tool_call> <response>", kErnie},
             {"<think> <answer> <tool_calls>", kHunyuanA13b},
             {"{% set ns_token = ']<]minimax[>[' %} <tool_call>", kMiniMaxM3},
             {"<|start|>assistant to=self<|message|> <atem:function_calls>", kAtem},
             {"<|header_start|>assistant<|header_end|>", kLlama3},
             {"<|im_start|> <think> <tool_call> <function=", kQwenCoder},
             {"<role>HUMAN</role> <tool_call> {\"name\":", kQwen},
             {"[|assistant|] <think> <tool_call>", kQwen},
             {"<longcat_assistant><longcat_think> <longcat_tool_call>", kLongcat},
             {"<|bom|><|assistant|> <tool_calls>[{{ calls }}]</tool_calls><|eom|>", kJamba},
             {"<assistant> <think> <tool_call>f <arg_key>", kGlm},
             {"<|start_of_role|>assistant<|end_of_role|> <tool_call>", kQwen}}) {
        EXPECT_EQ(FamilyOf(text), family) << text;
    }
}

TEST(FamilyCalls, AtemHeadsNameTheRecipient) {
    const std::string call =
        "<|start|>assistant to=weather<|message|><atem:function_calls>\n"
        "<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Paris</atem:parameter>\n"
        "<atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n"
        "</atem:function_calls>";
    const std::string thought = " to=self<|message|>I look \"it up<|eom|>";
    for (const size_t piece : {1, 2, 3, 7, 1000}) {
        const Heard heard =
            Hear(kAtem, thought + call + "<|eom|>" + call + "<|eot|>", false, piece, 1);
        EXPECT_EQ(heard.reasoning, "I look \"it up");
        EXPECT_EQ(heard.content, "");
        EXPECT_EQ(heard.calls, (std::vector<ToolCall>{Weather("Paris", 3), Weather("Paris", 3)}));
        const Heard said = Hear(
            kAtem, thought + "<|start|>assistant to=user<|message|>Sunny.<|eot|>", false, piece, 1);
        EXPECT_EQ(said.content, "Sunny.");
        EXPECT_TRUE(said.calls.empty());
    }
    // Missing end, partial call, no head.
    EXPECT_EQ(Hear(kAtem, call.substr(17), false, 5, 1).calls.size(), 1u);
    const std::string half = call.substr(17, call.size() - 80);
    EXPECT_EQ(Hear(kAtem, half, false, 5, 1).content, half);
    EXPECT_EQ(Hear(kAtem, "Sunny.", false, 5, 1).content, "Sunny.");
}

TEST(FamilyCalls, HarmonysTextsMayHoldMarkers) {
    const std::string text =
        "<|channel|>commentary to=functions.write <|constrain|>json<|message|>"
        "{\"text\":\"a<|end|>\\\"<|start|>b\"}<|call|>";
    for (const bool parts : {false, true}) {
        const Heard heard = Hear(kHarmony, text, parts, 3, 1);
        ASSERT_EQ(heard.calls.size(), 1u) << heard.content;
        EXPECT_EQ(heard.calls[0].arguments["text"], "a<|end|>\"<|start|>b");
    }
}

OrderedJson Function(const char* name, const OrderedJson& properties) {
    return {{"type", "function"},
            {"function",
             {{"name", name}, {"parameters", {{"type", "object"}, {"properties", properties}}}}}};
}

// A postcode is a string, whatever it looks like.
TEST(FamilyCalls, ArgumentsHaveTheTypesOfTheirSchema) {
    const OrderedJson properties = {
        {"code", {{"type", "string"}}},
        {"count", {{"type", "integer"}}},
        {"share", {{"type", "number"}}},
        {"sure", {{"type", "boolean"}}},
        {"list", {{"type", "array"}}},
        {"deep", {{"type", "object"}}},
        {"maybe", {{"type", {"string", "null"}}}},
        {"either", {{"anyOf", {{{"type", "integer"}}, {{"type", "string"}}}}}},
        {"unit", {{"enum", {"1", "2"}}}},
        {"any", OrderedJson::object()}};
    const auto tools =
        std::make_shared<const ToolTypes>(OrderedJson::array({Function("f", properties)}));
    const std::tuple<const char*, const char*, const char*> values[] = {
        {"code", "01234", R"("01234")"},
        {"code", "null", R"("null")"},
        {"code", "{\"a\": 1}", R"("{\"a\": 1}")"},
        {"code", "\"quoted\"", R"("\"quoted\"")"},
        {"count", "5", "5"},
        {"count", "\"5\"", "5"},
        {"count", "five", R"("five")"},
        {"share", "0.5", "0.5"},
        {"sure", "True", "true"},
        {"sure", "false", "false"},
        {"list", "[1, \"a\"]", R"([1, "a"])"},
        {"deep", "{\"a\": {\"b\": null}}", R"({"a": {"b": null}})"},
        {"deep", "{'a': [1, True, None], 'b': 'it is'}", R"({"a": [1, true, null], "b": "it is"})"},
        {"list", "['a', {'b': 2.5}]", R"(["a", {"b": 2.5}])"},
        {"code", "{'a': 1}", R"("{'a': 1}")"},
        {"deep", "{'a': ", R"("{'a': ")"},
        {"maybe", "null", "null"},
        {"maybe", "12", R"("12")"},
        {"either", "12", "12"},
        {"either", "twelve", R"("twelve")"},
        {"unit", "1", R"("1")"},
        {"any", "7", "7"},
        {"any", "seven", R"("seven")"},
        {"unknown", "true", "true"}};
    for (const auto& [key, value, json] : values) {
        const std::string k = key, v = value;
        const OrderedJson expected{{k, OrderedJson::parse(json)}};
        const std::pair<ToolCallFormat, std::string> texts[] = {
            {kQwenCoder, "<tool_call>\n<function=f>\n<parameter=" + k + ">\n" + v +
                             "\n</parameter>\n</function>\n</tool_call>"},
            {kGlm, "<tool_call>f\n<arg_key>" + k + "</arg_key>\n<arg_value>" + v +
                       "</arg_value>\n</tool_call>"},
            {kMiniMax, "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"" + k + "\">" +
                           v + "</parameter>\n</invoke>\n</minimax:tool_call>"}};
        for (const auto& [family, text] : texts) {
            const Heard heard = Hear(family, text, true, 4, 1, tools);
            ASSERT_EQ(heard.calls.size(), 1u) << text;
            EXPECT_EQ(heard.calls[0].arguments, expected) << text;
        }
    }
}

// Parameters that the schema does not name have the type of additionalProperties.
TEST(FamilyCalls, TypesOfOtherParameters) {
    const OrderedJson parameters{{"type", "object"},
                                 {"properties", {{"n", {{"type", "integer"}}}}},
                                 {"additionalProperties", {{"type", "string"}}}};
    const ToolTypes types(OrderedJson::array(
        {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}}}));
    EXPECT_EQ(types.ValueOf("f", "n", "10115"), 10115);
    EXPECT_EQ(types.ValueOf("f", "zip", "10115"), "10115");
    EXPECT_EQ(types.ValueOf("g", "zip", "10115"), 10115);
}

// A type behind $ref, allOf or anyOf is the same type.
TEST(FamilyCalls, TypesBehindReferences) {
    const OrderedJson types[] = {{{"type", "string"}},
                                 {{"type", "integer"}},
                                 {{"type", "boolean"}},
                                 {{"type", {"string", "null"}}},
                                 {{"type", "array"}},
                                 {{"type", "object"}},
                                 {{"enum", {"10115", "80331"}}},
                                 {{"type", "string"}, {"enum", {"10115"}}},
                                 {{"pattern", "^[0-9]{5}$"}},
                                 {{"const", 5}},
                                 OrderedJson::object(),
                                 {{"type", "string"}, {"nullable", true}}};
    for (const OrderedJson& type : types) {
        const OrderedJson defs{{"Zip", type}, {"Again", {{"$ref", "#/$defs/Zip"}}}};
        const OrderedJson ref{{"$ref", "#/$defs/Zip"}};
        const OrderedJson shapes[] = {ref,
                                      {{"$ref", "#/$defs/Again"}},
                                      {{"allOf", {ref}}},
                                      {{"allOf", {type}}},
                                      {{"anyOf", {ref}}},
                                      {{"allOf", {ref, {{"description", "A"}}}}, {"default", "1"}},
                                      {{"$ref", "#/$defs/Zip"}, {"description", "A"}},
                                      {{"oneOf", {{{"allOf", {ref}}}}}}};
        const auto made = [&](const OrderedJson& property, bool behind) {
            OrderedJson object{{"type", "object"}, {"properties", {{"a", property}}}};
            OrderedJson all = defs;
            if (behind) all["Whole"] = object;
            OrderedJson parameters = behind ? OrderedJson{{"$ref", "#/$defs/Whole"}} : object;
            parameters["$defs"] = all;
            return ToolTypes(
                OrderedJson::array({{{"type", "function"},
                                     {"function", {{"name", "f"}, {"parameters", parameters}}}}}));
        };
        const ToolTypes plain = made(type, false);
        for (const OrderedJson& shape : shapes) {
            for (const bool behind : {false, true}) {
                const ToolTypes other = made(shape, behind);
                for (const char* text : {"10115", "3.10", "true", "null", "[1]", "{\"a\": 1}",
                                         "\"5\"", "x", "None", "[1, 'a']"}) {
                    EXPECT_EQ(other.ValueOf("f", "a", text), plain.ValueOf("f", "a", text))
                        << shape << type << text;
                }
            }
        }
        // If null is also allowed, any other value gives the same result.
        const ToolTypes maybe = made({{"anyOf", {ref, {{"type", "null"}}}}}, true);
        for (const char* text : {"10115", "3.10", "true", "[1]"}) {
            EXPECT_EQ(maybe.ValueOf("f", "a", text), plain.ValueOf("f", "a", text)) << type << text;
        }
    }
}

// Values in notations other than JSON.
TEST(FamilyCalls, Literals) {
    const Heard gemma = Hear(kGemma,
                             "<|tool_call>call:f{a:<|\"|>x<|\"|>,b:[1,-2.5,true,null],"
                             "c:{<|\"|>k k<|\"|>:{},d:<|\"|>},<|\"|>},e:plain words}<tool_call|>",
                             false, 3, 1);
    ASSERT_EQ(gemma.calls.size(), 1u) << gemma.content;
    EXPECT_EQ(gemma.calls[0].arguments, OrderedJson::parse(R"({"a": "x", "b": [1, -2.5, true, null],
                                     "c": {"k k": {}, "d": "},"}, "e": "plain words"})"));
    const Heard olmo = Hear(kOlmo,
                            "<function_calls>\nf(a='it\\'s', b=[1, (2, 3)], c={'k': None, \"l\": "
                            "True}, d=\"\\u00e9\\n\")\nmath.add(x=-1.5e3)\n</function_calls>",
                            false, 3, 1);
    ASSERT_EQ(olmo.calls.size(), 2u) << olmo.content;
    EXPECT_EQ(olmo.calls[0].arguments,
              OrderedJson::parse(R"({"a": "it's", "b": [1, [2, 3]], "c": {"k": null, "l": true},
                                     "d": "\u00e9\n"})"));
    EXPECT_EQ(olmo.calls[1].name, "math.add");
    EXPECT_EQ(olmo.calls[1].arguments["x"], -1500.0);
    const Heard python =
        Hear(kOlmo,
             "<function_calls>f(a=0x1F, b=[1_000, -0b11, .5], c=r'\\d\\'', d=\"x\" "
             "'y', e=\"\"\"it \"is\" so\"\"\")</function_calls>",
             false, 3, 1);
    ASSERT_EQ(python.calls.size(), 1u) << python.content;
    EXPECT_EQ(python.calls[0].arguments,
              OrderedJson::parse(R"({"a": 31, "b": [1000, -3, 0.5], "c": "\\d\\'", "d": "xy",
                                     "e": "it \"is\" so"})"));
    // Nested too deeply.
    const std::string deep(5000, '[');
    EXPECT_TRUE(Hear(kOlmo, "<function_calls>f(a=" + deep, false, 999, 1).calls.empty());
    EXPECT_TRUE(Hear(kGemma, "<|tool_call>call:f{a:" + deep, false, 999, 1).calls.empty());
}

// Llama's calls have no markers: on its own line JSON counts if it calls an offered function;
// elsewhere it counts if it looks like a call.
TEST(FamilyCalls, Llama) {
    const std::string call = R"({"name": "weather", "parameters": {"city": "Paris", "days": 3}})";
    const std::string other = R"({"name": "Ann", "parameters": {"age": 3}})";
    const ToolCall paris = Weather("Paris", 3);
    const std::tuple<std::string, std::string, std::vector<ToolCall>> cases[] = {
        {call, "", {paris}},
        {call + "\n" + call, "", {paris, paris}},
        {call + "; " + call + "<|eom_id|>", "", {paris, paris}},
        {"I look.\n\n" + call, "I look.", {paris}},
        {"I look.\n" + call + "\nThen on.", "I look.\nThen on.", {paris}},
        {"See <|python_tag|>" + call, "See", {paris}},
        {"Inline " + call, "Inline " + call, {}},
        {"Ann:\n" + other, "Ann:\n" + other, {}},
        {"```json\n{\"a\": [1, 2]}\n```", "```json\n{\"a\": [1, 2]}\n```", {}},
        {"[1] a\n[weather] b\n{x}", "[1] a\n[weather] b\n{x}", {}},
        {"[weather(city=\"Paris\", days=3)]", "", {paris}},
        {"[weather(city='Paris', days=3), weather(city='Paris', days=3)]<|eot_id|>",
         "",
         {paris, paris}},
        {"[f(x)] is a list", "[f(x)] is a list", {}},
        {"<function=weather>{\"city\": \"Paris\", \"days\": 3}</function><|eom_id|>", "", {paris}},
        {"<function=weather", "<function=weather", {}},
        {R"({"type": "function", "name": "weather", "parameters": {"city": "Paris", "days": 3}})",
         "",
         {paris}},
        {R"({"name": "weather", "parameters": {"city": "P)",
         R"({"name": "weather", "parameters": {"city": "P)",
         {}},
        {R"({"name": "x"})", R"({"name": "x"})", {}},
    };
    for (const auto& [text, content, calls] : cases) {
        for (const size_t most : {size_t{1}, size_t{5}, size_t{1000}}) {
            const Heard heard = Hear(kLlama3, text, true, most, 4);
            EXPECT_EQ(heard.content, content) << text;
            EXPECT_TRUE(heard.calls == calls) << text;
        }
    }
    // JSON that cannot be a call is shown as it arrives.
    AnswerParser parser(kLlama3, false, true, Offered());
    EXPECT_EQ(parser.Push("{\"a\":").content, "{\"a\":");
    EXPECT_EQ(parser.Push(" 1").content, " 1");
}

// Without offered functions nothing is a call.
TEST(FamilyCalls, WithoutFunctionsThereAreNoCalls) {
    const auto none = std::make_shared<const ToolTypes>();
    for (const Manner& m : Manners()) {
        const std::string text = m.begin + m.call("Paris", 3) + m.end;
        const Heard heard = Hear(m.family, text, true, 4, 1, none);
        EXPECT_TRUE(heard.calls.empty()) << text;
        EXPECT_NE(heard.content.find("Paris"), std::string::npos) << text;
    }
    const std::string call = R"({"name": "f", "parameters": {}})";
    EXPECT_EQ(Hear(kLlama3, call, true, 4, 1, none).content, call);
    const Heard harmony = Hear(
        kHarmony, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", true, 4, 1, none);
    EXPECT_TRUE(harmony.calls.empty());
}

// CPU seconds of parsing `piece` repeatedly, `bytes` in total.
double SecondsOfMany(const ToolCallFormat& family, const std::string& piece, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += piece;
    const std::clock_t begin = std::clock();
    for (const size_t most : {size_t{50}, size_t{1'000'000}}) {
        const Heard heard = Hear(family, text, false, most, 1);
        EXPECT_EQ(heard.calls.empty(), family != kMiniMax) << piece;
    }
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Many markers, most of which end nothing: twice as many take about twice the time.
TEST(FamilyCalls, ManyMarkers) {
    const std::pair<ToolCallFormat, std::string> pieces[] = {
        {kQwen, "<tool_call>{\"</tool_call>"},
        {kGlm, "<tool_call>f<arg_key></tool_call>"},
        {kGemma, "<|tool_call>call:f{<|\"|><tool_call|>"},
        {kMiniMax, "<minimax:tool_call><invoke name=\"f\"></minimax:tool_call>"},
        {kMistral, "[TOOL_CALLS][\"</s>"},
        {kOlmo, "<function_calls>f('</function_calls>"},
        {kLlama3, "\n{\"name\" <function="},
        {kHarmony, "<|channel|>commentary to=f<|message|>{\"<|end|>"}};
    for (const auto& [family, piece] : pieces) {
        const double some = SecondsOfMany(family, piece, 50'000);
        EXPECT_LT(SecondsOfMany(family, piece, 100'000), 3 * some + 0.1) << piece;
    }
}

// Detected by text that only one family's templates contain.
TEST(FamilyCalls, FamiliesOfTemplates) {
    const std::pair<const char*, ToolCallFormat> templates[] = {
        {"<tool_call>{name}\n<arg_key>", kGlm},
        {"<|tool_calls_section_begin|><|tool_call_begin|>", kKimi},
        {"{% set begin = '<minimax:tool_call>' %}<think>", kMiniMax},
        {"<|tool_call>call: <|channel>thought", kGemma},
        {"<|start_of_role|> respond only with <|tool_call|>", kGranite},
        {"<|tool|>{{ tools }}<|/tool|>", kPhi},
        {"functools[", kPhi},
        {"<function_calls>", kOlmo},
        {"List of tools: <|tool_list_start|>[ <think>", kLfm2},
        {"'List of tools: ' + (tools | tojson) <|tool_call_start|>[", kLfm2},
        {"<tool_call>\n<function=x>", kQwenCoder},
        {"<tool_call>\n{\"name\"", kQwen},
        {"<start_of_turn>model", kPlain}};
    for (const auto& [text, family] : templates) EXPECT_EQ(FamilyOf(text), family) << text;
}

}  // namespace
}  // namespace weft::chat
