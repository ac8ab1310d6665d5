// Parsed answers: reasoning and tool calls of each family, complete and in pieces of any size.
#include "chat/answer.h"

#include <gtest/gtest.h>

#include <random>

#include "chat/json_repair.h"
#include "chat/tool_types.h"

namespace weft::chat {
namespace {

#define BAR "\xEF\xBD\x9C"
#define GAP "\xE2\x96\x81"
#define CALLS_BEGIN "<" BAR "tool" GAP "calls" GAP "begin" BAR ">"
#define CALLS_END "<" BAR "tool" GAP "calls" GAP "end" BAR ">"
#define CALL_BEGIN "<" BAR "tool" GAP "call" GAP "begin" BAR ">"
#define CALL_END "<" BAR "tool" GAP "call" GAP "end" BAR ">"
#define SEP "<" BAR "tool" GAP "sep" BAR ">"

struct Case {
    ToolCallFormat family;
    std::string text;
    std::string content, reasoning;
    std::vector<ToolCall> calls;
    bool in_reasoning = false;
};

ToolCall Call(const std::string& name, const std::string& arguments) {
    return {name, OrderedJson::parse(arguments)};
}

std::string Nested(size_t depth, bool closed) {
    return std::string(depth, '[') + (closed ? std::string(depth, ']') : "");
}

void Add(AnswerDelta delta, AnswerDelta& all) {
    all.content += delta.content;
    all.reasoning += delta.reasoning;
    for (ToolCall& call : delta.tool_calls) all.tool_calls.push_back(std::move(call));
}

AnswerDelta Parse(ToolCallFormat family, std::string_view text, bool in_reasoning = false) {
    AnswerParser parser(family, in_reasoning);
    AnswerDelta all = parser.Push(text);
    Add(parser.Finish(), all);
    return all;
}

// A model writes whatever a request makes it write: calls nested too deeply to be copied are text.
TEST(Answer, DeepCallsAreText) {
    using enum ToolCallFormat;
    for (const size_t depth : {size_t{150}, size_t{105'000}, size_t{250'000}}) {
        for (const std::string& deep : {Nested(depth, true), Nested(depth, false)}) {
            const std::string object = R"({"name": "f", "arguments": {"a": )" + deep + "}}";
            const std::string list = R"({"name": "f", "arguments": )" + deep + "}";
            const std::string text = R"({"name": "f", "arguments": ")" + deep + "\"}";
            for (const auto& [family, answer] : std::vector<std::pair<ToolCallFormat, std::string>>{
                     {kQwen, "<tool_call>" + object + "</tool_call>"},
                     {kQwen, "<tool_call>" + list + "</tool_call>"},
                     {kQwen, "<tool_call>\n<function=f>\n<parameter=a>\n" + deep +
                                 "\n</parameter>\n</function>\n</tool_call>"},
                     {kLlama3, object},
                     {kLlama3, list},
                     {kDeepSeek, CALLS_BEGIN CALL_BEGIN "f" SEP + deep + CALL_END CALLS_END},
                     {kMistral, "[TOOL_CALLS]" + Nested(1, false) + object + "]"},
                     {kMistral, "[TOOL_CALLS]f[ARGS]{\"a\":" + deep + "}"},
                     {kHarmony,
                      "<|channel|>commentary to=functions.f<|message|>" + deep + "<|call|>"}}) {
                const AnswerDelta said = Parse(family, answer);
                for (const ToolCall& call : said.tool_calls) {  // XML: a value is text or JSON
                    EXPECT_LT(OrderedJson(call.arguments).dump().size(), answer.size() + 10);
                }
                if (family != kQwen) {
                    EXPECT_TRUE(said.tool_calls.empty());
                }
                AnswerParser parts(family, false, true);
                for (size_t at = 0; at < answer.size(); at += 1 << 16) {
                    parts.Push(std::string_view(answer).substr(at, 1 << 16));
                }
                parts.Finish();
            }
            const AnswerDelta said = Parse(kQwen, "<tool_call>" + text + "</tool_call>");
            ASSERT_EQ(said.tool_calls.size(), 1u);
            EXPECT_TRUE(said.tool_calls[0].arguments.is_string());
        }
    }
}

std::vector<Case> TagCases() {
    using enum ToolCallFormat;
    const std::string weather = R"({"name": "weather", "arguments": {"city": "Paris"}})";
    const ToolCall call = Call("weather", R"({"city": "Paris"})");
    return {
        {kPlain, " <think> a <tool_call>\n", " <think> a <tool_call>\n", "", {}},
        {kQwen, "Hello\n\n", "Hello\n\n", "", {}},
        {kQwen, "<think>\nLet me see.\n</think>\n\nYes.", "Yes.", "Let me see.", {}},
        {kQwen, "see.\n</think>\n\nYes.", "Yes.", "see.", {}, true},
        {kQwen, "a <think>b</think> c<think>", "a <think>b</think> c<think>", "", {}},
        {kQwen, "<think>b</think></think> c", "</think> c", "b", {}},
        {kQwen, "Look. <tool_call>" + weather + "</tool_call> Done.", "Look. Done.", "", {call}},
        {kQwen, "<tool_call>\n" + weather + "\n</tool_call>", "", "", {call}},
        {kQwen,
         "<think>Hm</think>I look.\n<tool_call>" + weather + "</tool_call>\n<tool_call>" + weather +
             "</tool_call><|im_end|>",
         "I look.",
         "Hm",
         {call, call}},
        {kQwen,
         "<tool_call>{\"name\": 1}</tool_call> a",
         "<tool_call>{\"name\": 1}</tool_call> a",
         "",
         {}},
        {kQwen, "a <tool_call>{\"na", "a <tool_call>{\"na", "", {}},
        {kQwen, "1 < 2 <thin <tool_cal", "1 < 2 <thin <tool_cal", "", {}},
        {kQwen,
         "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx "
         "y\n</parameter>\n</function>\n</tool_call>",
         "",
         "",
         {Call("add", R"({"a": 1, "b": "x y"})")}},
        {kQwen,
         R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)",
         "",
         "",
         {Call("f", R"({"x": 1})")}},
        {kDeepSeek,
         "Because.\n</think>\n\n" CALLS_BEGIN CALL_BEGIN "function" SEP
         "weather\n```json\n{\"city\": \"Paris\"}\n```" CALL_END "\n" CALL_BEGIN "function" SEP
         "add\n```json\n{\"a\": 1}\n```" CALL_END CALLS_END,
         "",
         "Because.",
         {call, Call("add", R"({"a": 1})")},
         true},
        {kDeepSeek,
         "I call. " CALLS_BEGIN CALL_BEGIN "weather" SEP "{\"city\": \"Paris\"}" CALL_END CALLS_END,
         "I call.",
         "",
         {call}},
        {kDeepSeek, "<think>x</think>y", "y", "x", {}},
        {kMistral, "[TOOL_CALLS][" + weather + ", " + weather + "]", "", "", {call, call}},
        {kMistral,
         "Well.[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]add{\"a\": 1}</s>",
         "Well.",
         "",
         {call, Call("add", R"({"a": 1})")}},
        {kMistral, "[THINK]hm[/THINK]yes [TOOL", "yes [TOOL", "hm", {}},
        {kMistral, "[TOOL_CALLS] no json", "[TOOL_CALLS] no json", "", {}},
    };
}

std::vector<Case> OtherCases() {
    using enum ToolCallFormat;
    const ToolCall call = Call("weather", R"({"city": "Paris"})");
    const std::string llama = R"({"name": "weather", "parameters": {"city": "Paris"}})";
    return {
        {kLlama3, "a <<|eom_id|>|eom_id|> b", "a <<|eom_id|>|eom_id|> b", "", {}},
        {kLlama3, "<|eot_<|eom_id|>id|>", "<|eot_<|eom_id|>id|>", "", {}},
        {kLlama3, "Hello {\"name\"}", "Hello {\"name\"}", "", {}},
        {kLlama3, llama, "", "", {call}},
        {kLlama3, "<|python_tag|>" + llama + "; " + llama + "<|eom_id|>", "", "", {call, call}},
        {kLlama3, "<|python_tag|>print(1)", "<|python_tag|>print(1)", "", {}},
        {kLlama3,
         "<|python_start|>Let me see<|python_end|>" + llama + "<|eot|>",
         "Let me see",
         "",
         {call}},
        {kLlama3, "<|python_start|><|python_end|>" + llama + llama, "", "", {call, call}},
        {kLlama3, "{\"answer\": 42}", "{\"answer\": 42}", "", {}},
        {kLlama3, "Fine.<|eot_id|>", "Fine.", "", {}},
        {kHarmony,
         "<|channel|>analysis<|message|>I "
         "think.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Hello <b>!<|return|>",
         "Hello <b>!",
         "I think.",
         {}},
        {kHarmony,
         "<|channel|>analysis<|message|>Call it.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
         "",
         "Call it.",
         {call}},
        {kHarmony,
         " to=functions.weather<|channel|>commentary json<|message|>{\"city\":\"Paris\"}",
         "",
         "",
         {call}},
        {kHarmony, "<|channel|>commentary<|message|>First I look.<|end|>", "First I look.", "", {}},
        {kHarmony,
         "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Hello!<|return|>",
         "Hello!",
         "Hm.",
         {}},
        {kHarmony, "no head at all", "no head at all", "", {}},
        {kHarmony,
         "<|channel|>commentary to=functions.f<|message|>no json<|call|>",
         "<|channel|>commentary to=functions.f<|message|>no json",
         "",
         {}},
    };
}

std::vector<Case> AllCases() {
    std::vector<Case> cases = TagCases();
    for (Case& one : OtherCases()) cases.push_back(std::move(one));
    return cases;
}

void ExpectCase(const AnswerDelta& got, const Case& one, const std::string& how) {
    EXPECT_EQ(got.content, one.content) << one.text << how;
    EXPECT_EQ(got.reasoning, one.reasoning) << one.text << how;
    EXPECT_EQ(got.tool_calls.size(), one.calls.size()) << one.text << how;
    EXPECT_TRUE(got.tool_calls == one.calls) << one.text << how;
}

std::string Shown(const AnswerDelta& delta) {
    std::string shown = delta.content + "|" + delta.reasoning;
    for (const ToolCall& call : delta.tool_calls) shown += call.name + call.arguments.dump();
    return shown;
}

// Random texts give the same answer, whole and in any pieces.
TEST(Answer, PiecesOfRandomTexts) {
    const char* const words[] = {"Hi",
                                 "\n",
                                 " ",
                                 "f",
                                 "f\n{\"x\": 1}",
                                 "{\"name\": \"f\", \"parameters\": {}}",
                                 "[{\"name\": \"f\", \"arguments\": {}}]",
                                 "<function=f>{\"x\": 1}</function>",
                                 "<tool_call>",
                                 "</tool_call>",
                                 "<think>",
                                 "</think>",
                                 "<|assistant|>",
                                 "<|observation|>",
                                 "<|python_start|>",
                                 "<|python_end|>",
                                 "<|python_tag|>",
                                 "<|eot_id|>",
                                 "<|im_end|>",
                                 "<|end|>",
                                 "<|channel|>final<|message|>",
                                 "<|start|>assistant"};
    const auto tools = std::make_shared<const ToolTypes>(
        OrderedJson::array({{{"type", "function"}, {"function", {{"name", "f"}}}}}));
    std::mt19937 random(5);
    for (int round = 0; round < 40000; ++round) {
        const auto family = static_cast<ToolCallFormat>(
            random() % (static_cast<int>(ToolCallFormat::kJsonList) + 1));
        const bool verbatim = random() % 2 == 0;
        std::string text;
        for (size_t i = random() % 8; i > 0; --i) text += words[random() % std::size(words)];
        AnswerParser whole(family, false, false, tools, verbatim);
        AnswerParser pieces(family, false, false, tools, verbatim);
        AnswerDelta expected = whole.Push(text), got;
        Add(whole.Finish(), expected);
        for (size_t at = 0, size = 0; at < text.size(); at += size) {
            size = 1 + random() % 9;
            Add(pieces.Push(std::string_view(text).substr(at, size)), got);
        }
        Add(pieces.Finish(), got);
        EXPECT_EQ(Shown(got), Shown(expected)) << FamilyName(family) << verbatim << ": " << text;
    }
}

// A constraint produced the text: its markers are text, behind reasoning or a call at the
// beginning.
TEST(Answer, VerbatimTextKeepsMarkers) {
    const std::string json = R"({"a": "<think>x</think> <tool_call>{} </think>"})";
    for (const size_t size : {size_t{1}, json.size()}) {
        for (const std::string before : {"", "Hm.</think>\n\n"}) {
            AnswerParser parser(ToolCallFormat::kQwen, !before.empty(), false,
                                std::make_shared<ToolTypes>(), true);
            AnswerDelta all = parser.Push(before);
            for (size_t at = 0; at < json.size(); at += size) {
                Add(parser.Push(std::string_view(json).substr(at, size)), all);
            }
            Add(parser.Finish(), all);
            EXPECT_EQ(all.content, json);
            EXPECT_EQ(all.reasoning, before.empty() ? "" : "Hm.");
        }
    }
}

// The server leaves out what a parser does not need behind a forced call.
TEST(Answer, ForcedCallsWithTheEndMarkerInAString) {
    const AnswerDelta said =
        Parse(ToolCallFormat::kQwen,
              R"(<tool_call>{"name": "f", "arguments": {"x": "a </tool_call> b"})");
    ASSERT_EQ(said.tool_calls.size(), 1u) << said.content;
    EXPECT_EQ(said.tool_calls[0], Call("f", R"({"x": "a </tool_call> b"})"));
    const AnswerDelta mini = Parse(
        ToolCallFormat::kMiniCpm5,
        "<function name=\"f\"><param name=\"x\"><![CDATA[a </function> b]]></param></function>");
    ASSERT_EQ(mini.tool_calls.size(), 1u) << mini.content;
    EXPECT_EQ(mini.tool_calls[0], Call("f", R"({"x": "a </function> b"})"));
}

TEST(Answer, CompleteAnswers) {
    for (const Case& one : AllCases()) {
        ExpectCase(Parse(one.family, one.text, one.in_reasoning), one, "");
    }
}

// The result does not depend on how the text is split. Deltas only add, so shown text is never
// withdrawn.
TEST(Answer, PiecesOfAnySize) {
    std::mt19937 random(3);
    for (const Case& one : AllCases()) {
        for (int round = 0; round < 30; ++round) {
            AnswerParser parser(one.family, one.in_reasoning);
            AnswerDelta all;
            for (size_t at = 0; at < one.text.size();) {
                const size_t size = round == 0 ? 1 : 1 + random() % 9;
                Add(parser.Push(one.text.substr(at, size)), all);
                at += size;
            }
            Add(parser.Finish(), all);
            ExpectCase(all, one, " in pieces");
        }
    }
}

// Calls in parts give the same calls when joined, and nothing else differs.
TEST(Answer, CallsInParts) {
    std::mt19937 random(4);
    size_t in_parts = 0;
    for (const Case& one : AllCases()) {
        for (int round = 0; round < 20; ++round) {
            AnswerParser parser(one.family, one.in_reasoning, true);
            AnswerDelta all;
            std::vector<ToolCall> calls;
            std::string name, arguments;
            const auto take = [&](AnswerDelta delta) {
                for (const CallPart& part : delta.call_parts) {
                    if (part.begins) name = part.name;
                    EXPECT_EQ(part.begins, !part.name.empty());
                    arguments += part.arguments;
                    if (!part.ends) continue;
                    calls.push_back(Call(name, std::exchange(arguments, {})));
                    ++in_parts;
                }
                for (ToolCall& call : delta.tool_calls) calls.push_back(std::move(call));
                delta.tool_calls.clear();
                Add(std::move(delta), all);
            };
            for (size_t at = 0; at < one.text.size();) {
                const size_t size = round == 0 ? 1 : 1 + random() % 9;
                take(parser.Push(one.text.substr(at, size)));
                at += size;
            }
            take(parser.Finish());
            all.tool_calls = std::move(calls);
            ExpectCase(all, one, " in parts");
        }
    }
    EXPECT_GT(in_parts, 80u);
}

// A whole answer and every cut of a stream have the same call, whether its arguments are JSON or
// not.
TEST(Answer, ArgumentsWithMistakes) {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"a": "b",})", R"({"a": "b"})"},
        {R"({"a": ["b" , ], "c": {},
 })",
         R"({"a": ["b"  ], "c": {}
 })"},
        {R"({"x": True, "y": [False, None], "z": "True"})",
         R"({"x": true, "y": [false, null], "z": "True"})"},
        {R"({"a": "grep \d+ C:\work\users\u12"})", R"({"a": "grep \\d+ C:\\work\\users\\u12"})"},
        {R"({"a": "\\d \"\u0041\n\/"})", R"({"a": "\\d \"\u0041\n\/"})"},
        {R"({"x": 01})", R"({"x": 01})"},
        {R"({"a": b, "c": "\d"})", R"({"a": b, "c": "\\d"})"}};
    using enum ToolCallFormat;
    for (const auto& [written, arguments] : cases) {
        for (const auto& [family, begin, end] :
             {std::tuple(kQwen, R"(<tool_call>{"name": "f", "arguments": )", "}</tool_call>"),
              std::tuple(kHarmony, "<|channel|>commentary to=functions.f<|message|>", "<|call|>"),
              std::tuple(kHarmony, "<|channel|>commentary to=functions.f<|message|>", "")}) {
            const std::string text = std::string(begin) + written + end;
            const AnswerDelta whole = Parse(family, text);
            EXPECT_EQ(whole.content, "") << text;
            ASSERT_EQ(whole.tool_calls.size(), 1u) << text;
            EXPECT_EQ(whole.tool_calls[0].name, "f");
            const OrderedJson json = OrderedJson::parse(arguments, nullptr, false);
            const OrderedJson expected = json.is_discarded() ? OrderedJson(arguments) : json;
            EXPECT_EQ(whole.tool_calls[0].arguments, expected) << text;
            EXPECT_EQ(whole.tool_calls[0].ArgumentsText(),
                      json.is_discarded() ? arguments : json.dump());
            for (size_t cut = 0; cut <= text.size(); ++cut) {
                AnswerParser parser(family, false, true);
                std::string name, streamed;
                int ends = 0;
                const auto take = [&](const AnswerDelta& delta) {
                    EXPECT_EQ(delta.content, "");
                    for (const CallPart& part : delta.call_parts) {
                        name += part.name;
                        streamed += part.arguments;
                        ends += part.ends ? 1 : 0;
                    }
                };
                take(parser.Push(text.substr(0, cut)));
                take(parser.Push(text.substr(cut)));
                take(parser.Finish());
                EXPECT_EQ(name, "f") << text;
                EXPECT_EQ(streamed, arguments) << text.substr(0, cut);
                EXPECT_EQ(ends, 1) << text;
            }
        }
    }
}

// A message that is no call keeps all of its text.
TEST(Answer, MessagesToARecipientThatAreNoCalls) {
    const std::string head = "<|channel|>commentary to=functions.f<|message|>";
    for (const char* body : {"*** Begin Patch\n-let q = {}\n+let q = 1\n*** End Patch",
                             "d = {\"k\": 1}\nfor q in d: print(q)", "text {\"a\": 1} more",
                             "[1] more", "x[0] = 1\ny = [2]"}) {
        const std::string text = head + body + "<|call|>";
        for (size_t cut = 0; cut <= text.size(); ++cut) {
            for (const bool parts : {false, true}) {
                AnswerParser parser(ToolCallFormat::kHarmony, false, parts);
                std::string content;
                const auto take = [&](const AnswerDelta& delta) {
                    content += delta.content;
                    EXPECT_TRUE(delta.tool_calls.empty() && delta.call_parts.empty()) << body;
                };
                take(parser.Push(text.substr(0, cut)));
                take(parser.Push(text.substr(cut)));
                take(parser.Finish());
                EXPECT_EQ(content, head + body);
            }
        }
    }
}

// A stream that is cut off has sent the whole text so far.
TEST(Answer, ArgumentsThatAreCutOff) {
    const std::string all = R"({"k": 12, "z": True, "p": "C:\x", "l": [1,2]})";
    for (size_t end = 1; end < all.size(); ++end) {
        const std::string said = all.substr(0, end);
        AnswerParser parser(ToolCallFormat::kQwen, false, true);
        std::string streamed;
        const auto take = [&](const AnswerDelta& delta) {
            for (const CallPart& part : delta.call_parts) streamed += part.arguments;
        };
        take(parser.Push(R"(<tool_call>{"name": "f", "arguments": )" + said));
        take(parser.Finish());
        EXPECT_EQ(streamed, Repaired(said));
    }
}

// A second repair changes nothing.
TEST(Answer, JsonIsRepairedWhereItsMeaningIsPlain) {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"x": 1,,})", R"({"x": 1})"},
        {R"({"x": 1, , "y": [2,],})", R"({"x": 1,  "y": [2]})"},
        {R"("C:\work\new")", R"("C:\\work\\new")"},
        {R"("C:\new\work\table")", R"("C:\\new\\work\\table")"},
        {R"("C:\Program Files (x86)\node\n.exe")", R"("C:\\Program Files (x86)\\node\\n.exe")"},
        {R"("D:\q\u12\r is here now\nand\tso")", R"("D:\\q\\u12\\r is here now\nand\tso")"},
        {R"("C:\a\x\nD:\q\new.py:12\nend")", R"("C:\\a\\x\nD:\\q\\new.py:12\nend")"},
        {R"("open('C:\work\new')\nprint 1")", R"("open('C:\\work\\new')\nprint 1")"},
        {R"("say \"C:\work\new\" now\n")", R"("say \"C:\\work\\new\" now\n")"},
        {R"("C:\work\\new\")", R"("C:\\work\\new\")"},
        {R"("grep \d+\nprint 1")", R"("grep \\d+\nprint 1")"},
        {R"("abc:\work\new")", R"("abc:\\work\new")"},
        // Valid JSON.
        {R"("C:\new\table")", R"("C:\new\table")"},
        {R"("C:\\work\\new\n")", R"("C:\\work\\new\n")"},
        {R"(["a:\u0041b", "C:\/x"])", R"(["a:\u0041b", "C:\/x"])"}};
    for (const auto& [text, repaired] : cases) {
        EXPECT_EQ(Repaired(text), repaired);
        EXPECT_EQ(Repaired(repaired), repaired);
    }
}

// Escapes that are long enough for a path of Windows ("A:\n...") are none.
TEST(Answer, ValidJsonIsNotRepaired) {
    const std::vector<std::string> parts = {
        R"(\u4f60)", R"(\n)", R"(\\)", "ab", R"(\ud83d\ude00)", "f", R"(\/)", R"(\"A:)", " "};
    size_t state = 7;
    for (size_t count = 1; count < 400; count += 7) {
        std::string text = R"({"q": "A:\u95ee)";
        for (size_t i = 0; i < count; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            // Runs of one part, since a space or a quote ends a path.
            const size_t choice = (state >> 33) % (3 * parts.size());
            text += choice < parts.size() ? parts[choice] : parts[i / 200 * 2];
        }
        text += R"(", "n": [1, true, null]})";
        ASSERT_TRUE(OrderedJson::accept(text)) << text;
        EXPECT_EQ(Repaired(text), text);
        if (count < 380) continue;
        for (size_t end = 1; end < text.size(); ++end) {
            EXPECT_EQ(Repaired(text.substr(0, end)), text.substr(0, end));
        }
    }
    for (size_t letters = 150; letters < 190; ++letters) {  // around the most bytes of a path
        for (const char* before : {"", "x", "xy", "xyz", "xyzx", "xyzxy"}) {
            std::string text = fmt::format("\"A:\\n{}", before);
            for (size_t i = 0; i < letters; ++i) text += R"(\u4f60)";
            EXPECT_EQ(Repaired(text + '"'), text + '"');
        }
    }
}

// Whole answers and streams have the same arguments, also where they are no JSON.
TEST(Answer, BadArgumentsAreTheSameInAStream) {
    for (const char* arguments :
         {R"({"x": 1,,})", R"({"x": 1 2})", R"({"x": })", R"({x: 1})", R"({,"x": 1})",
          R"({"p": "C:\work\new"})", R"({"x": 1,,"y": 2})", R"({"x": [1,,]})"}) {
        const std::string text =
            fmt::format("<tool_call>{{\"name\": \"f\", \"arguments\": {}}}</tool_call>", arguments);
        AnswerParser whole(ToolCallFormat::kQwen, false, false);
        AnswerDelta said = whole.Push(text);
        AnswerDelta rest = whole.Finish();
        std::ranges::move(rest.tool_calls, std::back_inserter(said.tool_calls));
        AnswerParser stream(ToolCallFormat::kQwen, false, true);
        std::string streamed;
        for (const AnswerDelta& delta : {stream.Push(text), stream.Finish()}) {
            for (const CallPart& part : delta.call_parts) streamed += part.arguments;
        }
        ASSERT_EQ(said.tool_calls.size(), 1u) << arguments;
        const OrderedJson json = OrderedJson::parse(streamed, nullptr, false);
        EXPECT_EQ(said.tool_calls[0].ArgumentsText(), json.is_discarded() ? streamed : json.dump())
            << arguments;
    }
}

TEST(Answer, StreamsArgumentsAsWritten) {
    AnswerParser parser(ToolCallFormat::kQwen, false, true);
    EXPECT_TRUE(parser.Push("<tool_call>\n{\"name\": \"f\", \"arg").empty());
    AnswerDelta delta = parser.Push("uments\": {\"a\": \"}");
    ASSERT_EQ(delta.call_parts.size(), 1u);
    EXPECT_EQ(delta.call_parts[0], (CallPart{"f", "{\"a\": \"}", true, false}));
    delta = parser.Push("\\\"<\", \"b\": [{}]");
    ASSERT_EQ(delta.call_parts.size(), 1u);
    EXPECT_EQ(delta.call_parts[0].arguments, "\\\"<\", \"b\": [{}]");
    delta = parser.Push("}}\n</tool_call> more");
    ASSERT_EQ(delta.call_parts.size(), 2u);
    EXPECT_EQ(delta.call_parts[0].arguments, "}");
    EXPECT_TRUE(delta.call_parts[1].ends);
    EXPECT_EQ(delta.content, "more");
    // An unfinished call has no end.
    EXPECT_EQ(parser.Push("<tool_call>{\"name\": \"g\", \"arguments\": {\"x\": ").call_parts.size(),
              1u);
    EXPECT_TRUE(parser.Finish().empty());
}

// A part of a marker is never shown if the whole is a marker.
TEST(Answer, NeverShowsPartialMarkers) {
    for (const Case& one : AllCases()) {
        for (size_t cut = 0; cut <= one.text.size(); ++cut) {
            AnswerParser parser(one.family, one.in_reasoning);
            const AnswerDelta part = parser.Push(one.text.substr(0, cut));
            EXPECT_EQ(one.content.substr(0, part.content.size()), part.content) << one.text;
            EXPECT_EQ(one.reasoning.substr(0, part.reasoning.size()), part.reasoning) << one.text;
        }
    }
    EXPECT_EQ(AnswerParser(ToolCallFormat::kQwen).Push("ab <tool_c").content, "ab");
}

TEST(Answer, LongCallsBecomeContent) {
    const std::string filler(AnswerParser::kMostHeldBytes, 'x');
    const std::pair<ToolCallFormat, std::string> cases[] = {
        {ToolCallFormat::kQwen, "<tool_call>{\"name\": \""},
        {ToolCallFormat::kLlama3, "{\"name\": \""},
        {ToolCallFormat::kMistral, "[TOOL_CALLS][{\"name\": \""},
        {ToolCallFormat::kHarmony, "<|channel|>commentary to=functions.f<|message|>{\"name\": \""},
    };
    for (const auto& [family, begin] : cases) {
        AnswerParser parser(family);
        AnswerDelta all = parser.Push(begin);
        Add(parser.Push(filler), all);
        EXPECT_FALSE(all.content.empty()) << begin;
        Add(parser.Finish(), all);
        EXPECT_EQ(all.content, begin + filler);
    }
}

TEST(Answer, FamiliesByTheirMarkers) {
    EXPECT_EQ(FamilyOf("{{ '<tool_call>' }}"), ToolCallFormat::kQwen);
    EXPECT_EQ(FamilyOf("<|start_header_id|>"), ToolCallFormat::kLlama3);
    EXPECT_EQ(FamilyOf("<|header_start|>"), ToolCallFormat::kLlama3);
    EXPECT_EQ(FamilyOf("<" BAR "Assistant" BAR "><think>"), ToolCallFormat::kDeepSeek);
    EXPECT_EQ(FamilyOf("[INST] [TOOL_CALLS]"), ToolCallFormat::kMistral);
    EXPECT_EQ(FamilyOf("<|channel|>analysis"), ToolCallFormat::kHarmony);
    EXPECT_EQ(FamilyOf("<start_of_turn>"), ToolCallFormat::kPlain);
    EXPECT_TRUE(EndsInReasoning("<|im_start|>assistant\n<think>\n"));
    EXPECT_TRUE(EndsInReasoning("<longcat_assistant><longcat_think>\n"));
    EXPECT_FALSE(EndsInReasoning("<think> said the user\n<|assistant|>"));
}

}  // namespace
}  // namespace weft::chat
