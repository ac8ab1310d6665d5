// The assistant's turns of conversations: the same as by rendering the template at every turn, in
// time linear in the number of turns.
#include "train/data/chat_turns.h"

#include <algorithm>
#include <filesystem>

#include "support/paths.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using chat::ChatInput;
using chat::OrderedJson;

const tokenizer::Tokenizer& TurnTokens() {
    static const auto made = [] {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair({"e r", "i n", "c o", "n t"});
        for (const char* name :
             {"</s>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|return|>", "<|call|>",
              "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<turn|>", "<|tool_response>",
              "<|tool_call>", "<s>", "<|start_header_id|>", "<start_of_turn>", "<|user|>",
              "<\xEF\xBD\x9C"
              "end\xE2\x96\x81of\xE2\x96\x81"
              "sentence\xEF\xBD\x9C>"}) {
            data.tokens.emplace_back(name);
            data.types.push_back(3);
        }
        data.bos =
            static_cast<int32_t>(std::ranges::find(data.tokens, "<s>") - data.tokens.begin());
        data.eos =
            static_cast<int32_t>(std::ranges::find(data.tokens, "</s>") - data.tokens.begin());
        data.eot = static_cast<int32_t>(std::ranges::find(data.tokens, "<|im_end|>") -
                                        data.tokens.begin());
        return Must(tokenizer::Tokenizer::Make(std::move(data)));
    }();
    return *made;
}

std::vector<std::string> TurnTemplates() {
    std::vector<std::string> names;
    for (const auto& each : std::filesystem::directory_iterator(support::TestData("/chat"))) {
        const std::string name = each.path().stem();
        if (each.path().extension() == ".jinja" && name != "raw_rules") names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
}

chat::Chat TurnChat(const std::string& name) {
    return Must(chat::Chat::Make(Must(ReadTextFile(support::TestData("/chat/" + name + ".jinja"))),
                                 TurnTokens()));
}

OrderedJson Said(const char* role, const std::string& content) {
    return {{"role", role}, {"content", content}};
}

// Conversations of `rounds` questions and answers.
struct Shape {
    const char* name;
    bool system, tools, thoughts, begins;
};
constexpr Shape kShapes[] = {{"plain", false, false, false, false},
                             {"system", true, false, false, false},
                             {"thoughts", false, false, true, false},
                             {"tools", true, true, false, false},
                             {"tools and thoughts", false, true, true, false},
                             {"a greeting first", false, false, false, true},
                             {"a greeting behind the system", true, false, false, true}};

// Arguments whose text grows and shrinks from call to call.
const std::vector<OrderedJson>& Numbers() {
    static const std::vector<OrderedJson> numbers = {
        7, 1'234'567'890'123'456, 22, -48.856613, true, {1.5, {{"b", 700'000}}}, nullptr, 0};
    return numbers;
}

ChatInput Made(const Shape& shape, int rounds) {
    ChatInput input;
    input.add_generation_prompt = false;
    input.now_s = 1;
    auto& messages = input.messages;
    if (shape.system) messages.push_back(Said("system", "Be kind."));
    if (shape.begins) messages.push_back(Said("assistant", "Welcome."));
    for (int i = 0; i < rounds; ++i) {
        messages.push_back(Said("user", "Question " + std::to_string(i) + "?"));
        if (shape.tools && i % 2 == 0) {
            OrderedJson call = Said("assistant", i % 4 == 0 ? "I look." : "");
            const OrderedJson& number = Numbers()[static_cast<size_t>(i / 2) % Numbers().size()];
            OrderedJson function{{"name", "add"}, {"arguments", {{"a", number}}}};
            call["tool_calls"] = OrderedJson::array(
                {{{"id", "call0000" + std::to_string(i % 10)}, {"function", function}}});
            messages.push_back(call);
            messages.push_back(Said("tool", "result " + std::to_string(i)));
            messages.back()["tool_call_id"] = "call0000" + std::to_string(i % 10);
        }
        messages.push_back(Said("assistant", "answer number " + std::to_string(i * i)));
        if (shape.thoughts) messages.back()["reasoning_content"] = "thought " + std::to_string(i);
    }
    if (shape.tools) {
        const OrderedJson function{
            {"name", "add"},
            {"description", "Adds."},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"a", {{"type", "integer"}, {"description", "A number."}}}}}}}};
        input.tools = OrderedJson::array({{{"type", "function"}, {"function", function}}});
    }
    return input;
}

// The mask from rendering the template before and after every turn and tokenizing each time. 2:
// this method can't decide.
std::vector<uint8_t> AskedMask(const chat::Chat& chat, ChatInput input,
                               const std::vector<int32_t>& tokens) {
    EXPECT_FALSE(chat::PrepareConversation(chat::FindForms(chat), input));
    const auto rendered = [&](size_t count, bool asks) {
        ChatInput first = input;
        auto& list = first.messages.get_ref<OrderedJson::array_t&>();
        list.resize(count);
        first.add_generation_prompt = asks;
        return chat.Render(first);
    };
    const size_t count = input.messages.size();
    const chat::Text whole = Must(rendered(count, false));
    const auto tokens_to = [&](size_t end) {
        const auto ids = chat.Encode(whole.Cut(0, end));
        return std::ranges::mismatch(tokens, ids).in1 - tokens.begin();
    };
    std::vector<uint8_t> mask(tokens.size(), 0);
    for (size_t turn = 1; turn < count; ++turn) {
        if (input.messages[turn]["role"] != "assistant") continue;
        const auto before = rendered(turn, false), asking = rendered(turn, true);
        const auto through = rendered(turn + 1, false);
        const auto prefixes = [&](const Result<chat::Text>& text) {
            return text.ok() && whole.view().starts_with(text->view());
        };
        if (!asking.ok() || !prefixes(before) || !prefixes(through)) return {};
        const std::string_view a = whole.view(), b = asking->view();
        auto begin = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
        size_t words = begin;
        for (const TextRange& range : whole.given()) {
            if (begin < b.size() && range.begin < begin && begin <= range.end &&
                range.begin >= before->size()) {
                begin = range.begin;
            }
        }
        for (const TextRange& range : whole.given()) {
            if (range.begin >= begin && range.begin < through->size()) words = range.end;
        }
        auto end = std::max(tokens_to(begin), tokens_to(words));
        const auto last = tokens_to(through->size());
        while (end < last && !TurnTokens().EndsMessage(tokens[static_cast<size_t>(end)])) ++end;
        end = std::min(end + 1, last);
        std::fill(mask.begin() + tokens_to(begin), mask.begin() + end, uint8_t{1});
    }
    return mask;
}

class Turns : public testing::TestWithParam<std::string> {};

TEST_P(Turns, AreTheSameAsByAskingAtEach) {
    const chat::Chat chat = TurnChat(GetParam());
    const ChatTurns turns(chat, TurnTokens());
    size_t compared = 0;
    for (const Shape& shape : kShapes) {
        for (const int rounds : {1, 2, 5, 15}) {
            const ChatInput input = Made(shape, rounds);
            const auto sample = turns.Encode(input);
            if (!sample.ok()) continue;  // the template refuses it, or drops turns
            const std::string marked = shape.name + (": " + Marked(*sample, TurnTokens()));
            auto mask = AskedMask(chat, input, sample->tokens);
            if (mask.empty()) continue;           // rendering can't decide
            if (shape.begins && !shape.system) {  // no earlier turn to render with
                const auto other = std::ranges::find(mask, 1) - mask.begin();
                EXPECT_TRUE(
                    std::equal(mask.begin() + other, mask.end(), sample->loss.begin() + other))
                    << marked;
                const size_t at = marked.find("Welcome."), begin = marked.rfind('[', at);
                EXPECT_GT(begin + 1, marked.rfind(']', at) + 1) << marked;
                continue;
            }
            EXPECT_EQ(sample->loss, mask) << marked << "\n"
                                          << Marked({sample->tokens, mask}, TurnTokens());
            ++compared;
        }
    }
    // Phi's templates end a text with a token that they omit if more text follows. DeepSeek V3.2's
    // template asks for reasoning after the last message and omits it after earlier ones.
    const bool differs = GetParam().starts_with("phi") || GetParam() == "dsml";
    EXPECT_GE(compared, differs ? 0u : 3u);
}

// The template is rendered a few times, not once per turn, which would exceed the limit.
TEST_P(Turns, AreAskedForRarely) {
    if (GetParam() == "vicuna") return;  // shows at most six messages
    const chat::Chat chat = TurnChat(GetParam());
    const ChatTurns turns(chat, TurnTokens());
    const int rounds = 10 + static_cast<int>(kMostRenderings);
    const auto sample = turns.Encode(Made(kShapes[0], rounds));
    if (GetParam() == "dsml") {  // see above
        ASSERT_FALSE(sample.ok());
        EXPECT_NE(sample.error().message.find("differently when more messages follow"),
                  std::string::npos);
        return;
    }
    ASSERT_TRUE(sample.ok()) << sample.error().message;
    size_t learned = 0;
    for (size_t i = 1; i < sample->loss.size(); ++i) {
        learned += sample->loss[i] != 0 && sample->loss[i - 1] == 0 ? 1 : 0;
    }
    EXPECT_EQ(learned, static_cast<size_t>(rounds));
}

// Whether messages are learned does not change the text, which is the served one.
TEST_P(Turns, LearnNoResult) {
    const chat::Chat chat = TurnChat(GetParam());
    const ChatTurns turns(chat, TurnTokens());
    int compared = 0;
    for (const Shape& shape : kShapes) {
        if (!shape.tools) continue;
        const ChatInput input = Made(shape, 5);
        const auto all = turns.Encode(input);
        if (!all.ok()) continue;  // the template refuses it, or drops turns
        std::string learned;
        for (size_t i = 0; i < all->tokens.size(); ++i) {
            if (all->loss[i] != 0) learned += TurnTokens().Piece(all->tokens[i]);
        }
        EXPECT_EQ(learned.find("result "), learned.npos) << learned;
        EXPECT_NE(learned.find("answer number 16"), learned.npos) << learned;
        ChatInput last = input;
        for (OrderedJson& message : last.messages) message["weight"] = 0;
        last.messages.back()["weight"] = 1;
        EXPECT_EQ(Must(turns.Encode(std::move(last))).tokens, all->tokens);
        ChatInput served = input;
        ASSERT_FALSE(chat::PrepareConversation(chat::FindForms(chat), served));
        const auto tokens = Must(chat.Encode(served));
        EXPECT_EQ(std::ranges::mismatch(tokens, all->tokens).in1, tokens.end())
            << Marked(*all, TurnTokens());
        ++compared;
    }
    const bool drops = GetParam() == "dsml" || GetParam() == "vicuna";  // see below
    EXPECT_EQ(compared > 0, !drops);
}

INSTANTIATE_TEST_SUITE_P(Templates, Turns, testing::ValuesIn(TurnTemplates()),
                         [](const auto& each) { return each.param; });

std::string MarkedTurns(const OrderedJson& messages) {
    return Marked(OrderedJson{{"messages", messages}}.dump());
}

TEST(TurnMarks, LeaveTurnsOut) {
    const std::string asked = "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n";
    const auto marked = [&](OrderedJson first, OrderedJson second) {
        return MarkedTurns(
            {Said("user", "U"), std::move(first), Said("user", "U"), std::move(second)});
    };
    const auto with = [](const char* name, const OrderedJson& value) {
        OrderedJson turn = Said("assistant", "A");
        turn[name] = value;
        return turn;
    };
    const std::string in = "[A<|im_end|>]\n", out = "A<|im_end|>\n";
    for (const char* name : {"weight", "train", "training"}) {
        for (const OrderedJson& no : {OrderedJson(0), OrderedJson(false), OrderedJson(0.0)}) {
            EXPECT_EQ(marked(with(name, no), Said("assistant", "A")), asked + out + asked + in)
                << name << no;
            EXPECT_EQ(marked(Said("assistant", "A"), with(name, no)), asked + in + asked + out);
        }
        for (const OrderedJson& yes :
             {OrderedJson(1), OrderedJson(true), OrderedJson(1.0), OrderedJson(nullptr)}) {
            EXPECT_EQ(marked(with(name, yes), with(name, yes)), asked + in + asked + in);
        }
        for (const OrderedJson& other : {OrderedJson(0.5), OrderedJson(-1), OrderedJson(2),
                                         OrderedJson("no"), OrderedJson::array()}) {
            const std::string said = marked(Said("assistant", "A"), with(name, other));
            EXPECT_NE(said.find("message 4: '" + std::string(name) + "' is " + other.dump()),
                      std::string::npos)
                << said;
        }
    }
    EXPECT_NE(marked(with("train_detail", OrderedJson::array({1})), Said("assistant", "A"))
                  .find("'train_detail'"),
              std::string::npos);
    // Marks on other roles' turns change nothing, and no template sees marks.
    OrderedJson user = Said("user", "U");
    user["train"] = true;
    user["weight"] = 0;
    EXPECT_EQ(MarkedTurns({user, Said("assistant", "A")}), asked + in);
}

// A turn that becomes two messages of the template is excluded as a whole.
TEST(TurnMarks, GoWithTheParts) {
    const chat::Chat chat = TurnChat("llama3");  // one call per message
    const auto encoder = Must(Encoder::Make(TurnTokens(), &chat, 1));
    const auto learned = [&](int weight) {
        OrderedJson call = Said("assistant", "I look.");
        for (const char* id : {"a", "b"}) {
            OrderedJson function{{"name", "add"}, {"arguments", {{"n", id}}}};
            call["tool_calls"].push_back({{"id", id}, {"function", function}});
        }
        call["weight"] = weight;
        OrderedJson messages{Said("user", "U"), call, Said("tool", "1"), Said("tool", "2"),
                             Said("assistant", "Done.")};
        messages[2]["tool_call_id"] = "a";
        messages[3]["tool_call_id"] = "b";
        const auto record = Must(ParseRecord(OrderedJson{{"messages", messages}}.dump()));
        const Sample sample = Must(encoder.Encode(record));
        return std::ranges::count(Marked(sample, TurnTokens()), '[');
    };
    EXPECT_GE(learned(1), 3);
    EXPECT_EQ(learned(0), 1);
}

// The marked turns of a conversation, given by the first letters of their roles, under a template.
std::string MarkedUnder(const std::string& source, const std::string& roles,
                        std::string* note = nullptr) {
    const chat::Chat chat = Must(chat::Chat::Make(source, Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    OrderedJson messages;
    for (const char role : roles) {
        const bool user = role == 'u';
        messages.push_back(Said(user ? "user" : "assistant", user ? "Q" : "A"));
        if (role == '-') messages.back()["weight"] = 0;
    }
    const auto sample =
        encoder.Encode(Must(ParseRecord(OrderedJson{{"messages", messages}}.dump())));
    if (note != nullptr) *note = encoder.TakeNote() + encoder.TakeNote();
    return sample.ok() ? Marked(*sample) : "error: " + sample.error().message;
}

const std::string kAsksMl = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Some templates close a message only if another one follows. The last answer still gets its end
// token, and no header is learned, whichever role precedes it.
TEST(OpenTurns, GetTheirEnd) {
    const std::string message = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}";
    const std::string closings[] = {
        "{% if not (loop.last and m.role == 'assistant') %}<|im_end|>\n{% endif %}{% endfor %}",
        "{% if not loop.last %}<|im_end|>\n{% endif %}{% endfor %}",
        "{% if m.role == 'user' or not loop.last %}{{ '<|im_end|>' }}\n{% endif %}{% endfor %}",
    };
    const std::string q = "<|im_start|>user\nQ<|im_end|>\n", h = "<|im_start|>assistant\n";
    for (const std::string& closing : closings) {
        const std::string source = message + closing + kAsksMl;
        std::string note;
        EXPECT_EQ(MarkedUnder(source, "ua", &note), q + h + "[A<|im_end|>]") << source;
        EXPECT_EQ(note, "");
        EXPECT_EQ(MarkedUnder(source, "uaua"), q + h + "[A<|im_end|>]\n" + q + h + "[A<|im_end|>]");
        EXPECT_EQ(MarkedUnder(source, "uaa"), q + h + "[A<|im_end|>]\n" + h + "[A<|im_end|>]");
        EXPECT_EQ(MarkedUnder(source, "uaaua"),
                  q + h + "[A<|im_end|>]\n" + h + "[A<|im_end|>]\n" + q + h + "[A<|im_end|>]");
        EXPECT_EQ(MarkedUnder(source, "ua-"), q + h + "[A<|im_end|>]\n" + h + "A");
        EXPECT_EQ(MarkedUnder(source, "uau").substr(0, (q + h).size() + 15),
                  q + h + "[A<|im_end|>]\n<");
    }
    // A blank line before the end.
    const std::string apart =
        message + "\n{% if not loop.last %}<|im_end|>{% endif %}{% endfor %}" + kAsksMl;
    EXPECT_EQ(MarkedUnder(apart, "ua"),
              "<|im_start|>user\nQ\n<|im_end|><|im_start|>assistant\n[A\n<|im_end|>]");
    // The next message's header ends the turn, as GLM's <|user|> does.
    const std::string headers =
        "{% for m in messages %}<|endoftext|>{{ m.role }}\n{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|endoftext|>assistant\n{% endif %}";
    const std::string user = "<|endoftext|>user\nQ", asked = user + "<|endoftext|>assistant\n";
    EXPECT_EQ(MarkedUnder(headers, "ua"), asked + "[A<|endoftext|>]");
    EXPECT_EQ(MarkedUnder(headers, "uaua"), asked + "[A<|endoftext|>]" + user.substr(13) +
                                                "<|endoftext|>assistant\n" + "[A<|endoftext|>]");
}

// If the next message's header ends a turn, a result's header ends a call.
TEST(OpenTurns, EndCallsAsCalls) {
    const chat::Chat chat = Must(chat::Chat::Make(
        "{% for m in messages %}{% if m.role == 'tool' %}<|im_end|>{% elif m.role == 'user' %}"
        "<|endoftext|>{% else %}<|im_start|>{% endif %}{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}({{ c.function.arguments | tojson }})"
        "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    const auto marked = [&](const OrderedJson& last) {
        const OrderedJson messages{Said("user", "Q"), last};
        return Marked(
            Must(encoder.Encode(Must(ParseRecord(OrderedJson{{"messages", messages}}.dump())))));
    };
    const std::string asked = "<|endoftext|>user\nQ<|im_start|>assistant\n";
    EXPECT_EQ(marked(Said("assistant", "A")), asked + "[A<|endoftext|>]");
    OrderedJson call = Said("assistant", "");
    call["tool_calls"] = OrderedJson::parse(
        R"([{"type": "function", "id": "c", "function": {"name": "f", "arguments": {"a": 1}}}])");
    EXPECT_EQ(marked(call), asked + "[f({\"a\": 1})<|im_end|>]");
    OrderedJson older = Said("assistant", "");
    older["function_call"] = {{"name", "f"}, {"arguments", "{\"a\": 1}"}};
    EXPECT_EQ(marked(older), asked + "[f({\"a\": 1})<|im_end|>]");
}

// A record with calls; thoughts: each call has a thought before it.
std::string MarkedCalls(const std::string& source, const OrderedJson& messages, std::string* note) {
    const chat::Chat chat = Must(chat::Chat::Make(source, Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    const auto sample =
        encoder.Encode(Must(ParseRecord(OrderedJson{{"messages", messages}}.dump())));
    *note = encoder.TakeNote();
    return sample.ok() ? Marked(*sample) : "error: " + sample.error().message;
}

OrderedJson Call(const std::string& content, const std::string& thought) {
    OrderedJson call = Said("assistant", content);
    if (!thought.empty()) call["reasoning_content"] = thought;
    call["tool_calls"] = OrderedJson::parse(
        R"([{"type": "function", "id": "id1",
             "function": {"name": "f", "arguments": {"a": "X"}}}])");
    return call;
}

OrderedJson ResultTo(const std::string& content) {
    OrderedJson result = Said("tool", content);
    result["tool_call_id"] = "id1";
    return result;
}

// A template writes the call, the result of the next message, and then the text of the call's
// message, all in one turn.
TEST(TurnsWithResults, LearnNoResult) {
    const std::string source =
        "{% for m in messages %}{% set before = messages[loop.index0 - 1].role if loop.index0 else "
        "'' %}{% set next = loop.nextitem %}{% if m.role == 'user' %}<|im_start|>user\n"
        "{{ m.content }}<|im_end|>\n{% elif m.role == 'assistant' %}{% if before != 'tool' %}"
        "<|im_start|>model\n{% endif %}{% for c in m.tool_calls or [] %}call:{{ c.function.name }}"
        "{{ c.function.arguments | tojson }}<|endoftext|>response:{{ c.function.name }}="
        "{{ next.content if next else '' }};{% endfor %}{{ m.content }}<|im_end|>{% endif %}"
        "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' "
        "%}<|im_start|>model"
        "\n{% endif %}";
    std::string note;
    EXPECT_EQ(
        MarkedCalls(
            source,
            {Said("user", "Q"), Call("LOOK", ""), ResultTo("RESULT"), Said("assistant", "A")},
            &note),
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>model\n[call:f{\"a\": \"X\"}<|endoftext|>]"
        "response:f=RESULT;[LOOK<|im_end|>A<|im_end|>]");
    EXPECT_EQ(note, "");
}

// Gemma 4's first template shows results and the answer to them in the turn of the calls.
TEST(TurnsWithResults, ShareTheTurnOfTheirCalls) {
    const chat::Chat chat = TurnChat("gemma4_turns");
    const ChatTurns turns(chat, TurnTokens());
    const auto marked = [&](OrderedJson messages) {
        ChatInput input;
        input.messages = std::move(messages);
        input.add_generation_prompt = false;
        const auto sample = turns.Encode(std::move(input));
        return sample.ok() ? Marked(*sample, TurnTokens()) : "error: " + sample.error().message;
    };
    const auto call = [](int weight) {
        OrderedJson made = Call("", "");
        made["weight"] = weight;
        return made;
    };
    const std::string asked = "<s><|turn>user\nQ<turn|>\n<|turn>model\n";
    const std::string called = "<|tool_call>call:f{a:<|\"|>X<|\"|>}<tool_call|><|tool_response>";
    const std::string result = "response:f{value:<|\"|>R<|\"|>}<tool_response|>";
    const OrderedJson q = Said("user", "Q"), r = ResultTo("R"), a = Said("assistant", "A");
    EXPECT_EQ(marked({q, call(1), r, a}), asked + "[" + called + "]" + result + "[A<turn|>]\n");
    EXPECT_EQ(marked({q, call(0), r, a}), asked + called + result + "[A<turn|>]\n");
    EXPECT_EQ(marked({q, call(0), r, call(1), r, a}),
              asked + called + result + "[" + called + "]" + result + "[A<turn|>]\n");
    // Gemma's own form.
    OrderedJson whole = Call("A", "");
    whole["tool_responses"] = OrderedJson::array({{{"name", "f"}, {"response", "R"}}});
    EXPECT_EQ(marked({q, whole}), asked + "[" + called + "]" + result + "[A<turn|>]\n");
}

// A template repeats the function's name or the call's id in the result's header, and drops the
// thought of a call once an answer follows, so the text up to the call is no prefix of the whole.
TEST(TurnsWithResults, EndBeforeTheResultsHeader) {
    for (const char* repeated : {"call.function.name", "call.id"}) {
        const std::string source =
            "{% for m in messages %}{% set call = (m.tool_calls or [none])[0] %}"
            "{% if m.role == 'tool' %}<|im_start|>{% set call = messages[loop.index0 - "
            "1].tool_calls"
            "[0] %}{{ " +
            std::string(repeated) +
            " }} to=assistant:{{ m.content }}<|im_end|>{% elif call %}"
            "{% if m.reasoning_content and not (messages | selectattr('content', 'equalto', 'A') | "
            "list) %}<|im_start|>assistant:{{ m.reasoning_content }}<|im_end|>{% endif %}"
            "<|im_start|>assistant:{{ m.content }}{{ call.function.name }}({{ "
            "call.function.arguments "
            "| tojson }})<|endoftext|>{% else %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>"
            "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif "
            "%}";
        const std::string name = repeated == std::string("call.id") ? "id1" : "f";
        for (const char* thought : {"", "T"}) {
            for (const char* content : {"", "C"}) {
                for (const char* result : {"R", ""}) {
                    std::string note;
                    const std::string marked =
                        MarkedCalls(source,
                                    {Said("user", "Q"), Call(content, thought), ResultTo(result),
                                     Said("assistant", "A")},
                                    &note);
                    EXPECT_EQ(marked, "<|im_start|>user:Q<|im_end|><|im_start|>assistant:[" +
                                          std::string(content) +
                                          "f({\"a\": \"X\"})<|endoftext|>]"
                                          "<|im_start|>" +
                                          name + " to=assistant:" + result +
                                          "<|im_end|><|im_start|>assistant:[A<|im_end|>]")
                        << repeated << ": '" << thought << "', '" << content << "', '" << result;
                    EXPECT_EQ(note, "");
                }
            }
        }
    }
}

// Turns without an end token are reported once, and no header is learned as an end.
TEST(OpenTurns, WithoutAnEndAreReported) {
    const std::string plain =
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}";
    std::string note;
    EXPECT_EQ(MarkedUnder(plain, "uaaua", &note),
              "user: Q\nassistant: [A\n]assistant: [A\n]user: Q\nassistant: [A\n]");
    EXPECT_NE(note.find("the model will not learn to stop"), std::string::npos) << note;
    EXPECT_NE(note.find("<|endoftext|>"), std::string::npos) << note;
    EXPECT_EQ(note.find("the model will not learn to stop"),
              note.rfind("the model will not learn to stop"));
    // An end token after the next header does not end this turn.
    const std::string late =
        "{% for m in messages %}{{ m.role }}<|endoftext|>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant<|endoftext|>{% endif %}";
    EXPECT_EQ(MarkedUnder(late, "uaua", &note),
              "user<|endoftext|>Q\nassistant<|endoftext|>[A\n]user<|endoftext|>Q\n"
              "assistant<|endoftext|>[A\n]");
    EXPECT_NE(note, "");
    EXPECT_EQ(MarkedUnder("", "uaua", &note).find("error"), std::string::npos);
    EXPECT_EQ(note, "");
}

}  // namespace
}  // namespace weft::train
