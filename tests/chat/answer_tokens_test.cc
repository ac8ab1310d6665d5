// Answers as tokens: where a marker is a token of the vocabulary, only the token counts; where it
// is only text, it counts where the format has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <regex>
#include <set>
#include <utility>

#include "chat/answer.h"
#include "chat/answer_rules.h"
#include "chat/call_manners.h"
#include "chat/tool_types.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

using enum ToolCallFormat;
using tokenizer::TokenType;

constexpr const char* kForeign = "<|vision_start|>";

// A family's answers: with reasoning, with calls, and with neither.
struct Format {
    ToolCallFormat family;
    std::string name;
    std::string think, thought;  // around reasoning
    std::string final;           // before content
    std::string call, last;      // `last`: behind content; calls have their own end
    std::set<std::string> markers;
    std::string word{};  // text of one more token, user-defined
};

void AddMarkers(Format& format) {
    const AnswerRules rules = RulesOf(format.family);
    for (const CallForm& form : rules.calls) {
        format.markers.insert({std::string(form.begin), std::string(form.end)});
    }
    for (const auto* list : {&rules.dropped, &rules.begins}) {
        format.markers.insert(list->begin(), list->end());
    }
    for (const std::string_view marker :
         {rules.think_begin, rules.think_end, rules.frame_begin, rules.frame_end}) {
        format.markers.emplace(marker);
    }
    format.markers.erase("");
}

std::vector<Format> Formats() {
    std::vector<Format> formats;
    for (const Manner& m : Manners()) {
        formats.push_back({m.family,
                           m.name,
                           m.think,
                           m.thought,
                           "",
                           m.begin + m.call("Ulm", 3) + m.end + m.last,
                           m.last,
                           {}});
    }
    const std::string json = JsonArguments("Ulm", 3);
    formats.push_back({kHarmony,
                       "harmony",
                       "<|channel|>analysis<|message|>",
                       "<|end|><|start|>assistant",
                       "<|channel|>final<|message|>",
                       "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" +
                           json + "<|call|>",
                       "<|return|>",
                       {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>",
                        "<|return|>", "<|constrain|>"}});
    const std::string atem =
        "to=weather<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n"
        "<atem:parameter name=\"city\">Ulm</atem:parameter>\n"
        "<atem:parameter name=\"days\">3</atem:parameter>\n</atem:invoke>\n"
        "</atem:function_calls><|eot|>";
    formats.push_back({kAtem,
                       "atem",
                       " to=self<|message|>",
                       "<|eom|><|start|>assistant ",
                       "to=user<|message|>",
                       atem,
                       "<|eot|>",
                       {"<|message|>", "<|eom|>", "<|eot|>", "<|start|>"}});
    const std::string llama = R"({"name": "weather", "parameters": )" + json + "}";
    formats.push_back({kLlama3,
                       "llama",
                       "",
                       "",
                       "",
                       llama + "<|eom_id|>",
                       "<|eot_id|>",
                       {"<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|python_tag|>",
                        "<|python_start|>", "<|python_end|>", "<function="}});
    formats.push_back({kJsonList,
                       "xlam",
                       "",
                       "",
                       "",
                       "[" + JsonCall("Ulm", 3) + "]",
                       "<|im_end|>",
                       {"<|im_end|>", "<|endoftext|>"}});
    for (Format& format : formats) AddMarkers(format);
    for (Format& format : formats) {
        if (format.family != kGlm4) continue;
        format.markers = {"<think>", "</think>", "<|assistant|>", "<|user|>", "<|observation|>"};
    }
    return formats;
}

// A vocabulary of bytes and of the format's markers. kNormal: without the markers.
std::unique_ptr<tokenizer::Tokenizer> Vocabulary(const Format& format, TokenType type) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    std::string texts = format.think + format.thought + format.final + format.call + format.last;
    for (const std::string& marker : format.markers) texts += " " + marker;
    static const std::regex kToken(
        R"(\]<\]minimax\[>\[|\[e~\[|<\|"\|>|<[^<>\s"=]+>|\[/?[A-Z_][A-Z_ ]*\])");
    std::set<std::string> tokens;
    for (auto at = std::sregex_iterator(texts.begin(), texts.end(), kToken);
         at != std::sregex_iterator(); ++at) {
        if (type != TokenType::kNormal) tokens.insert(at->str());
    }
    for (const std::string& token : tokens) {
        if (std::ranges::find(data.tokens, token) != data.tokens.end()) continue;
        data.tokens.push_back(token);
        data.types.push_back(static_cast<int32_t>(type));
    }
    if (!format.word.empty() && std::ranges::find(data.tokens, format.word) == data.tokens.end()) {
        data.tokens.push_back(format.word);
        data.types.push_back(static_cast<int32_t>(TokenType::kUserDefined));
    }
    data.tokens.emplace_back(kForeign);
    data.types.push_back(static_cast<int32_t>(TokenType::kControl));
    return tokenizer::Tokenizer::Make(std::move(data)).value();
}

using Ids = std::vector<int32_t>;

// The text in tokens of one byte.
Ids Letters(const std::string& text) {
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
}

struct Said {
    std::string content, reasoning;
    std::vector<ToolCall> calls;

    bool operator==(const Said&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Said& said) {
    out << "content '" << said.content << "' reasoning '" << said.reasoning << "'";
    for (const ToolCall& call : said.calls) out << " " << call.name << call.arguments.dump();
    return out;
}

class Reader {
  public:
    Reader(const Format& format, TokenType type)
        : format_(format), words_(Vocabulary(format, type)) {}

    Ids Tokens(const std::string& text) const {
        return words_->Encode(text, {.add_special = false, .parse_special = true});
    }
    Ids Word() const { return {words_->Find(format_.word)}; }
    Ids Foreign() const { return {words_->Find(kForeign)}; }

    // Streamed and whole answers are the same.
    // constrained: a grammar may have written the text behind the reasoning.
    Said Read(const std::vector<Ids>& parts, bool constrained = false, bool shows = false) const {
        const Said whole = Read(parts, constrained, shows, false);
        EXPECT_EQ(Read(parts, constrained, shows, true), whole) << format_.name;
        return whole;
    }

  private:
    Said Read(const std::vector<Ids>& parts, bool constrained, bool shows, bool streams) const {
        AnswerParser parser(format_.family, false, streams, nullptr, constrained,
                            {.tokenizer = words_.get(),
                             .letters = constrained ? TokenReading::Letters::kBehindReasoning
                                                    : TokenReading::Letters::kNowhere,
                             .shows_special = shows});
        Said said;
        std::string name, arguments;
        const auto take = [&](AnswerDelta delta) {
            said.content += delta.content;
            said.reasoning += delta.reasoning;
            for (const CallPart& part : delta.call_parts) {
                if (part.begins) name = part.name;
                arguments += part.arguments;
                if (!part.ends) continue;
                said.calls.push_back({name, OrderedJson::parse(arguments, nullptr, false)});
                arguments.clear();
            }
            for (ToolCall& call : delta.tool_calls) said.calls.push_back(std::move(call));
        };
        for (const Ids& ids : parts) {
            for (const int32_t id : ids) take(parser.Push(words_->Piece(id), id));
        }
        take(parser.Finish());
        return said;
    }

    const Format& format_;
    std::unique_ptr<tokenizer::Tokenizer> words_;
};

constexpr TokenType kTypes[] = {TokenType::kControl, TokenType::kUserDefined, TokenType::kNormal};

TEST(AnswerTokens, ContentKeepsMarkersInLetters) {
    for (const Format& f : Formats()) {
        for (const TokenType type : kTypes) {
            const Reader reader(f, type);
            for (const std::string& marker : f.markers) {
                const std::string text = "The " + marker + " is a marker; so is \"" + marker +
                                         "\".\nAfter " + marker + ", on.";
                for (const bool thinks : {false, true}) {
                    if (thinks && f.think.empty()) continue;
                    const std::string head = thinks ? f.think + "Hm" + f.thought : "";
                    const Said said = reader.Read(
                        {reader.Tokens(head + f.final), Letters(text), reader.Tokens(f.last)});
                    EXPECT_EQ(said, (Said{text, thinks ? "Hm" : "", {}})) << f.name << marker;
                }
            }
        }
    }
}

TEST(AnswerTokens, ForeignControlTokensAreShownOnRequest) {
    for (const Format& f : Formats()) {
        const Reader reader(f, TokenType::kControl);
        const std::vector<Ids> parts = {
            reader.Tokens(f.think + (f.think.empty() ? "" : "I think" + f.thought) + f.final),
            Letters("Hello "), reader.Foreign(), Letters("world."), reader.Tokens(f.last)};
        EXPECT_EQ(reader.Read(parts).content, "Hello world.") << f.name;
        EXPECT_EQ(reader.Read(parts, false, true).content,
                  "Hello " + std::string(kForeign) + "world.")
            << f.name;
    }
}

// Markers whose text ends with a user-defined token, or is a part of one.
TEST(AnswerTokens, UserDefinedTokensMaySpellMarkers) {
    for (const Format& f : Formats()) {
        for (const std::string& marker : f.markers) {
            const std::pair<std::string, std::string> parts[] = {
                {marker.substr(0, 1), marker.substr(1)},
                {marker.substr(0, marker.size() - 1), marker.substr(marker.size() - 1)},
                {marker.substr(0, 2), marker.substr(2) + ", and on"},
                {"", "x " + marker}};
            for (const auto& [before, word] : parts) {
                Format more = f;
                more.word = word;
                const Reader reader(more, TokenType::kControl);
                const std::string head = f.think.empty() ? "" : f.think + "Hm" + f.thought;
                const Said said =
                    reader.Read({reader.Tokens(head + f.final), Letters("It ends with " + before),
                                 reader.Word(), Letters(". Done"), reader.Tokens(f.last)});
                EXPECT_EQ(said.content, "It ends with " + before + word + ". Done") << f.name;
            }
        }
    }
}

// A marker within the reasoning, as plain text or as a token, changes nothing after the reasoning.
TEST(AnswerTokens, ThoughtsMayMentionMarkers) {
    const std::pair<const char*, const char*> mentions[] = {
        {"I use the ", " format. Let me \"do\" it."}, {"'", "' ends it.\nAnd so on"}};
    const ToolCall call{"weather", OrderedJson{{"city", "Ulm"}, {"days", 3}}};
    for (const Format& f : Formats()) {
        if (f.think.empty()) continue;
        for (const TokenType type : kTypes) {
            const Reader reader(f, type);
            for (const std::string& marker : f.markers) {
                const bool ends = f.thought.find(marker) != f.thought.npos;
                for (const auto& [before, behind] : mentions) {
                    for (const bool calls : {false, true}) {
                        const Ids answer =
                            reader.Tokens(calls ? f.thought + f.call
                                                : f.thought + f.final + "It rains." + f.last);
                        const Said expected{calls ? "" : "It rains.", before + marker + behind,
                                            calls ? std::vector{call} : std::vector<ToolCall>()};
                        const Ids think = reader.Tokens(f.think);
                        if (!ends || type != TokenType::kNormal) {
                            EXPECT_EQ(
                                reader.Read({think, Letters(before + marker + behind), answer}),
                                expected)
                                << f.name << marker;
                        }
                        if (ends || type == TokenType::kNormal || f.family == kHarmony ||
                            f.family == kAtem) {
                            continue;
                        }
                        Said said =
                            reader.Read({think, reader.Tokens(before + marker + behind), answer});
                        EXPECT_TRUE(said.reasoning.ends_with(TrimBlanks(behind))) << said.reasoning;
                        said.reasoning = expected.reasoning;
                        EXPECT_EQ(said, expected) << f.name << marker;
                    }
                }
            }
        }
    }
}

// A call that the model writes in its reasoning counts if the reasoning has no end behind it.
TEST(AnswerTokens, CallsInTheThoughts) {
    const ToolCall call{"weather", OrderedJson{{"city", "Ulm"}, {"days", 3}}};
    for (const Format& f : Formats()) {
        if (f.think.empty() || f.family == kHarmony || f.family == kAtem || f.family == kGlm4 ||
            f.family == kSolar) {
            continue;
        }
        for (const TokenType type : kTypes) {
            const Reader reader(f, type);
            EXPECT_EQ(reader.Read({reader.Tokens(f.think + "Hm." + f.call)}),
                      (Said{"", "Hm.", {call}}))
                << f.name;
            const Said said =
                reader.Read({reader.Tokens(f.think + "Hm." + f.call + " it is." + f.thought +
                                           f.final + "It rains." + f.last)});
            EXPECT_EQ(said.content, "It rains.") << f.name;
            EXPECT_TRUE(said.calls.empty()) << f.name;
            EXPECT_TRUE(said.reasoning.ends_with("it is.")) << f.name << said.reasoning;
        }
    }
}

// Behind such thoughts, the text of a constraint stays as it is.
TEST(AnswerTokens, ConstrainedTextBehindThoughts) {
    for (const Format& f : Formats()) {
        if (f.think.empty()) continue;
        for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined}) {
            const Reader reader(f, type);
            for (const std::string& marker : f.markers) {
                const std::string thought = "I use " + marker + " here.";
                const std::string json = OrderedJson{{"a", "x " + marker + " y"}}.dump();
                EXPECT_EQ(reader.Read({reader.Tokens(f.think), Letters(thought),
                                       reader.Tokens(f.thought + f.final), Letters(json)},
                                      true),
                          (Said{json, thought, {}}))
                    << f.name << marker;
            }
        }
    }
}

// Without tokens, the parser gets only text: a constraint's text keeps all markers.
TEST(AnswerTokens, ConstrainedTextKeepsMarkers) {
    for (const Format& f : Formats()) {
        for (const std::string& marker : f.markers) {
            const std::string json =
                OrderedJson{{"a", "x " + marker + " y"}, {"b", marker + marker}}.dump();
            for (const size_t size : {size_t{1}, json.size() + 100}) {
                AnswerParser parser(f.family, false, false, std::make_shared<ToolTypes>(), true);
                AnswerDelta all = parser.Push(f.final);
                for (size_t at = 0; at < json.size(); at += size) {
                    all.content += parser.Push(std::string_view(json).substr(at, size)).content;
                }
                all.content += parser.Finish().content;
                EXPECT_EQ(all.content, json) << f.name;
            }
        }
    }
}

// A call whose arguments are whole is a call, although wrong text follows: a stream has sent it.
TEST(AnswerTokens, StreamedAndWholeCallsAreEqualBeforeWrongText) {
    for (const Format& f : Formats()) {
        if (f.family == kHarmony) continue;  // the whole message is the arguments
        const Reader reader(f, TokenType::kUserDefined);
        for (const char* wrong : {"}", "\n}", " it is."}) {
            std::string call = f.call;
            call.insert(call.rfind('}') + 1, wrong);
            const Said said = reader.Read({reader.Tokens(call)});
            if (f.family != kQwen) continue;
            EXPECT_EQ(said, (Said{"", "", {{"weather", {{"city", "Ulm"}, {"days", 3}}}}})) << wrong;
        }
    }
}

// Letters of a marker within an argument are part of it, whatever the vocabulary.
TEST(AnswerTokens, ArgumentsKeepMarkersInLetters) {
    for (const Manner& m : Manners()) {
        if (m.family == kGemma || m.family == kFunctionGemma || m.family == kLfm2) continue;
        Format f{m.family, m.name, m.think, m.thought, "", m.begin + m.call("Ulm", 3) + m.end,
                 m.last,   {}};
        AddMarkers(f);
        const Reader reader(f, TokenType::kUserDefined);
        const std::string around = m.begin + m.call("@", 3) + m.end + m.last;
        const size_t at = around.find('@');
        for (const std::string& marker : f.markers) {
            if (marker.find_first_of("\"\n") != marker.npos) continue;
            const std::string city = "a " + marker + " b";
            const Said said = reader.Read({reader.Tokens(around.substr(0, at)), Letters(city),
                                           reader.Tokens(around.substr(at + 1))});
            ASSERT_EQ(said.calls.size(), 1u) << m.name << marker << said;
            EXPECT_EQ(said.calls[0].arguments["city"], city) << m.name;
        }
    }
}

}  // namespace
}  // namespace weft::chat
