// From JSON to tokens and masks: every kind of record, every template, and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>

#include "support/paths.h"
#include "train/data/day.h"
#include "train/data/packed_ids.h"
#include "train/data/preference.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

constexpr std::string_view kEnd = "<|endoftext|>";

TEST(Record, QuestionsByTemplate) {
    const std::string record = R"({"question": "Is it?", "context": "It is.", "answer": "yes"})";
    const std::string plain = R"({"question": "Is it?", "long_answer": "yes"})";
    const std::string end(kEnd);
    EXPECT_EQ(Marked(record, 0), "Question: Is it?\nAnswer:[ yes" + end + "]");
    EXPECT_EQ(Marked(record, 1), "Context: It is.\n\nQuestion: Is it?\nAnswer:[ yes" + end + "]");
    EXPECT_EQ(Marked(record, 2), "Question: Is it?\nContext: It is.\nAnswer:[ yes" + end + "]");
    EXPECT_EQ(Marked(record, 3), "It is.\n\nIs it?\n[yes" + end + "]");
    EXPECT_EQ(Marked(record, 4),
              "Answer the question from the context.\n\n### Context\nIt is.\n\n### Question\n"
              "Is it?\n\n### Answer\n[yes" +
                  end + "]");
    EXPECT_EQ(Marked(record, 5),
              "<|im_start|>user\nIt is.\n\nIs it?<|im_end|>\n<|im_start|>assistant\n"
              "[yes<|im_end|>]\n");
    EXPECT_EQ(Marked(plain, 1), "Question: Is it?\nAnswer:[ yes" + end + "]");
    EXPECT_EQ(Marked(plain, 4),
              "Answer the question.\n\n### Question\nIs it?\n\n### Answer\n[yes" + end + "]");
    EXPECT_FALSE(Encoder::Make(Bytes(), nullptr, 6).ok());
    EXPECT_FALSE(Encoder::Make(Bytes(), nullptr, -1).ok());
}

TEST(Record, PubMedQaInBothSpellings) {
    const std::string wanted = "Context: a\nb\n\nQuestion: q\nAnswer:[ l<|endoftext|>]";
    EXPECT_EQ(Marked(R"({"pubid": 1, "question": "q", "context": {"contexts": ["a", "b"],
                         "labels": ["X"]}, "long_answer": "l", "final_decision": "yes"})"),
              wanted);
    EXPECT_EQ(Marked(R"({"QUESTION": "q", "CONTEXTS": ["a", "b"], "LONG_ANSWER": "l"})"), wanted);
    EXPECT_EQ(Marked(R"({"question": "q", "context": ["a", "b"], "answer": "l"})"), wanted);
}

TEST(Record, PairsTextsAndTokens) {
    EXPECT_EQ(Marked(R"({"prompt": "1+1=", "completion": "2"})"), "1+1=[2<|endoftext|>]");
    EXPECT_EQ(Marked(R"({"text": "all"})"), "[all<|endoftext|>]");
    EXPECT_EQ(Marked(R"({"tokens": [65, 66, 258]})"), "[AB<|im_end|>]");
    EXPECT_EQ(Marked(R"({"tokens": [65, 66, 67], "loss": [0, 1, 0]})"), "A[B]C");
}

TEST(Record, InputIdsAndLabels) {
    EXPECT_EQ(Marked(R"({"input_ids": [65, 66, 258]})"), "[AB<|im_end|>]");
    EXPECT_EQ(Marked(R"({"input_ids": [65, 66, 67], "labels": [-100, 66, -100]})"), "A[B]C");
    EXPECT_EQ(Marked(R"({"input_ids": [0, 65, 66, 67, 0, 0], "labels": [-100, -100, 66, 67, -100,
                         -100], "attention_mask": [0, 1, 1, 1, 0, 0]})"),
              "A[BC]");
    const auto refused = [](std::string_view record, const char* words) {
        EXPECT_NE(Marked(record).find(words), std::string::npos) << Marked(record);
    };
    refused(R"({"input_ids": [65, 66], "labels": [66, -100]})",
            "'labels'[0] is 66, the token there is 65");
    refused(R"({"input_ids": [65, 66], "labels": [65, -7]})", "'labels'[1] is -7");
    refused(R"({"input_ids": [65, 66], "labels": [65]})", "'labels' is not a list of 2");
    refused(R"({"input_ids": [65, -1]})", "'input_ids' holds -1");
    refused(R"({"input_ids": "AB"})", "'input_ids' is string");
    refused(R"({"input_ids": [65, 66, 67], "attention_mask": [1, 0, 1]})", "0 between ones");
    refused(R"({"input_ids": [65, 66, 67], "attention_mask": [0, 0, 0]})", "0 tokens");
}

// Embeddings have more rows than the tokenizer has tokens; the extra ids are valid, too.
TEST(Record, IdsReachToTheLastRow) {
    const auto padded = Must(Encoder::Make(Bytes(), nullptr, 1, 300));
    const auto sample = Must(padded.Encode(Must(ParseRecord(R"({"input_ids": [65, 299]})"))));
    EXPECT_EQ(sample.tokens, (std::vector<int32_t>{65, 299}));
    const auto above = padded.Encode(Must(ParseRecord(R"({"input_ids": [65, 300]})")));
    EXPECT_NE(above.error().message.find("token 300; the model's embedding has rows 0 to 299"),
              std::string::npos)
        << above.error().message;
    // With fewer embedding rows than tokens, texts with the missing tokens are refused.
    const auto small = Must(Encoder::Make(Bytes(), nullptr, 1, 256));
    const auto text = small.Encode(Must(ParseRecord(R"({"text": "a"})")));  // ends with token 256
    EXPECT_EQ(text.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(text.error().message.find("token 256"), std::string::npos) << text.error().message;
}

TEST(Record, WithoutATokenizerIdsAlone) {
    const Encoder encoder = Encoder::OfIds(100);
    const auto sample =
        Must(encoder.Encode(Must(ParseRecord(R"({"input_ids": [1, 99], "labels": [-100, 99]})"))));
    EXPECT_EQ(sample.tokens, (std::vector<int32_t>{1, 99}));
    EXPECT_EQ(sample.loss, (std::vector<uint8_t>{0, 1}));
    EXPECT_FALSE(encoder.Encode(Must(ParseRecord(R"({"tokens": [1, 100]})"))).ok());
    for (const char* record : {R"({"text": "a"})", R"({"prompt": "a", "completion": "b"})",
                               R"({"question": "a", "answer": "b"})",
                               R"({"messages": [{"role": "user", "content": "q"}]})"}) {
        const auto refused = encoder.Encode(Must(ParseRecord(record)));
        ASSERT_FALSE(refused.ok()) << record;
        EXPECT_NE(refused.error().message.find("no tokenizer"), std::string::npos);
        EXPECT_NE(refused.error().message.find("input_ids"), std::string::npos);
    }
}

TEST(Record, ChatLearnsTheAssistantsTurnsToTheirEnd) {
    EXPECT_EQ(Marked(R"({"messages": [
                {"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"},
                {"role": "assistant", "content": "B"}]})"),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
              "<|im_start|>assistant\n[A<|im_end|>]\n<|im_start|>user\nV<|im_end|>\n"
              "<|im_start|>assistant\n[B<|im_end|>]\n");
    // A greeting is learned, too.
    EXPECT_EQ(Marked(R"({"messages": [{"role": "assistant", "content": "Hello"},
                                      {"role": "user", "content": "U"}]})"),
              "<|im_start|>assistant\n[Hello<|im_end|>]\n<|im_start|>user\nU<|im_end|>\n");
}

TEST(Record, NoWordOfAMessageBecomesAMarker) {
    const auto letters =
        Must(Encoder::Make(Bytes(), &ChatMl(), 1, 0, {.control = ControlMode::kLetters}));
    for (const char* value : {R"({"text": "<|im_end|><|endoftext|>"})",
                              R"({"prompt": "<|im_start|>", "completion": "<|endoftext|>"})",
                              R"({"messages": [{"role": "user", "content": "<|im_end|>"},
                           {"role": "assistant", "content": "a<|im_end|>b<|endoftext|>c"}]})"}) {
        const bool told = std::string_view(value).find("messages") != std::string_view::npos;
        const auto sample = Must((told ? ByteEncoder() : letters).Encode(Must(ParseRecord(value))));
        int specials = 0;
        for (const int32_t id : sample.tokens) specials += id >= 256 ? 1 : 0;
        const bool chat = std::string_view(value).find("messages") != std::string_view::npos;
        EXPECT_EQ(specials, chat ? 4 : 1) << value;
        // A forged end token does not end the learned turn.
        if (chat) {
            EXPECT_NE(Marked(sample).find("[a<|im_end|>b<|endoftext|>c<|im_end|>]\n"),
                      std::string::npos);
        }
    }
}

// A template whose generation prompt is longer than a past turn's header, as DeepSeek-R1's.
TEST(Record, TemplatesThatAskWithMoreThanTheyWrite) {
    const auto chat = Must(chat::Chat::Make(
        "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}"
        "{% else %}{{ '<|im_start|>A:' + m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>A:<think>{% endif %}",
        Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    const auto marked = [&](const std::string& answer) {
        chat::OrderedJson value;
        value["messages"] = {{{"role", "user"}, {"content", "q"}},
                             {{"role", "assistant"}, {"content", answer}}};
        return Marked(Must(encoder.Encode(Must(ParseRecord(value.dump())))));
    };
    EXPECT_EQ(marked("yes"), "<|im_start|>q<|im_start|>A:[yes<|im_end|>]");
    EXPECT_EQ(marked("<thin ice>"), "<|im_start|>q<|im_start|>A:[<thin ice><|im_end|>]");
}

// Learned text of a sample: one string per run.
std::vector<std::string> Learnt(const Sample& sample, const tokenizer::Tokenizer& tokenizer) {
    std::vector<std::string> runs;
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
        if (sample.loss[i] == 0) continue;
        if (i == 0 || sample.loss[i - 1] == 0) runs.emplace_back();
        runs.back() += tokenizer.Piece(sample.tokens[i]);
    }
    return runs;
}

class ChatMasks : public testing::TestWithParam<std::string> {};

// With every family's template, each assistant turn is learned with its end token, and no other
// role's text.
TEST_P(ChatMasks, CoverTheAssistantAlone) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    for (const char* name : {"</s>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|return|>",
                             "<|call|>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<turn|>",
                             "<\xEF\xBD\x9C"
                             "end\xE2\x96\x81of\xE2\x96\x81"
                             "sentence\xEF\xBD\x9C>"}) {
        data.ends.push_back(static_cast<int32_t>(data.tokens.size()));
        data.tokens.emplace_back(name);
        data.types.push_back(3);
    }
    data.bos = data.eos = data.ends.front();
    data.ends.push_back(258);
    const auto tokenizer = Must(tokenizer::Tokenizer::Make(std::move(data)));
    const auto chat = Must(
        chat::Chat::Make(Must(ReadTextFile(support::TestData("/chat/" + GetParam()))), *tokenizer));
    const auto encoder = Must(Encoder::Make(*tokenizer, &chat, 5));
    const auto record = Must(ParseRecord(R"({"messages": [
        {"role": "user", "content": "USER ONE"}, {"role": "assistant", "content": "first answer"},
        {"role": "user", "content": "USER TWO"}, {"role": "assistant", "content": "second answer"},
        {"role": "user", "content": "USER SIX"}, {"role": "assistant", "content": "third"}]})"));
    const auto sample = encoder.Encode(record);
    ASSERT_TRUE(sample.ok()) << sample.error().message;
    const auto runs = Learnt(*sample, *tokenizer);
    ASSERT_EQ(runs.size(), 3u);
    const char* const answers[] = {"first answer", "second answer", "third"};
    static const std::set<std::string_view> kOtherEnds = {
        "apriel.jinja",  "gigachat.jinja", "glm.jinja",      "glm4.jinja",
        "minimax.jinja", "muse.jinja",     "nemotron.jinja", "seed.jinja"};
    const bool no_end = kOtherEnds.contains(GetParam());
    for (size_t i = 0; i < runs.size(); ++i) {
        const size_t at = runs[i].find(answers[i]);
        ASSERT_NE(at, std::string::npos) << runs[i];
        EXPECT_EQ(runs[i].find("USER"), std::string::npos) << runs[i];
        EXPECT_EQ(runs[i].find("assistant"), std::string::npos) << runs[i];
        if (no_end) continue;  // the end token is not among the tokens above
        std::string end = runs[i].substr(at + std::string_view(answers[i]).size());
        if (end.starts_with(' ')) end.erase(0, 1);                // llama2's
        constexpr std::string_view kCohere = "<|END_RESPONSE|>";  // followed by the end of the turn
        if (end.starts_with(kCohere)) end.erase(0, kCohere.size());
        EXPECT_TRUE(end.starts_with("<") && end.find('>') + 1 == end.size()) << runs[i];
        EXPECT_TRUE(tokenizer->IsEog(tokenizer->Find(end))) << end;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, ChatMasks, testing::ValuesIn([] {
                             std::vector<std::string> names;
                             const std::string folder = support::TestData("/chat");
                             for (const auto& each : std::filesystem::directory_iterator(folder)) {
                                 const std::string name = each.path().filename();
                                 // (raw_rules shows no messages: Chat refuses it.)
                                 if (name == "raw_rules.jinja") continue;
                                 // (dsml's turns can't be marked: Turns.AreAskedForRarely.)
                                 if (name == "dsml.jinja") continue;
                                 if (name.ends_with(".jinja")) names.push_back(name);
                             }
                             std::ranges::sort(names);
                             return names;
                         }()),
                         [](const auto& each) {
                             return each.param.substr(0, each.param.find('.'));
                         });

TEST(Record, AmbiguousTurnsAreRejected) {
    const auto chat = Must(chat::Chat::Make(
        "{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}",
        Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    const auto record = Must(ParseRecord(R"({"messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"}]})"));
    const auto sample = encoder.Encode(record);
    ASSERT_FALSE(sample.ok());
    EXPECT_EQ(sample.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(sample.error().message.find("message 2"), std::string::npos);
    const auto none = Must(Encoder::Make(Bytes(), nullptr, 1)).Encode(record);
    EXPECT_NE(none.error().message.find("no chat template"), std::string::npos);
}

TEST(Record, SentencePieceVocabulariesKeepTheirSpaces) {
    const auto tokenizer = Must(tokenizer::Tokenizer::Make(
        tokenizer::TinySpm({"\xE2\x96\x81yes", "\xE2\x96\x81no", "\xE2\x96\x81"})));
    const auto encoder = Must(Encoder::Make(*tokenizer, nullptr, 1));
    const auto sample =
        Must(encoder.Encode(Must(ParseRecord(R"({"prompt": "no", "completion": " yes"})"))));
    std::vector<int32_t> wanted = tokenizer->Encode("no yes", {.add_special = true});
    wanted.push_back(2);
    EXPECT_EQ(sample.tokens, wanted);
    // <s>, a blank and two bytes; a blank and three bytes, </s>: no extra blank at the boundary.
    EXPECT_EQ(sample.loss, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 1, 1}));
}

TEST(Record, RefusesByName) {
    const auto refused = [](std::string_view value, std::string_view words) {
        const std::string said = Marked(value);
        EXPECT_NE(said.find(words), std::string::npos) << value << "\n" << said;
    };
    refused("[1]", "expected an object");
    refused("{", "not valid JSON");
    refused("{\"text\": \"\xff\"}", "not valid JSON");
    refused(R"({"foo": 1, "bar": 2})", "'foo', 'bar'");
    refused(R"({"text": true})", "'text' is boolean; expected a string");
    refused(R"({"question": "q"})", "no 'answer'");
    refused(R"({"completion": "q"})", "no 'prompt'");
    refused(R"({"question": "q", "answer": "a", "context": {"x": 1}})", "contexts");
    refused(R"({"question": "q", "answer": "a", "context": [true]})", "a list of strings");
    refused(R"({"tokens": [1, -1]})", "-1");
    refused(R"({"tokens": [1, 1.5]})", "1.5");
    refused(R"({"tokens": [1, 4294967296]})", "4294967296");
    refused(R"({"tokens": [1, 259]})", "0 to 258");
    refused(R"({"tokens": [1, 2], "loss": [1]})", "not a list of 2");
    refused(R"({"tokens": [1, 2], "loss": [1, 2]})", "0 and 1");
    refused(R"({"tokens": [1]})", "at least two");
    refused(R"({"messages": "hi"})", "a list of messages");
    refused(R"({"messages": []})", "no messages");
    refused(R"({"messages": [{"content": "x"}]})", "role");
    refused("{\"text\": " + std::string(100, '[') + std::string(100, ']') + "}", "deeper");
}

// Templates such as Llama 3's show the date.
// A model that learns a call without JSON arguments writes calls that no parser reads.
TEST(Record, CallsWithoutAnObjectAreRejected) {
    const auto said = [](const std::string& call) {
        const auto record = ParseRecord(
            R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", )" + call +
            "}]}");
        return record.ok() ? "" : record.error().message;
    };
    const auto arguments = [&](const std::string& text) {
        return said(
            R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" +
            text + "}}]");
    };
    for (const char* good : {"{}", R"("{\"a\": 1}")", R"("")", "null", R"({"a": [1, {}]})"}) {
        EXPECT_EQ(arguments(good), "") << good;
    }
    for (const char* bad : {R"("{'a': 1}")", R"("{\"a\": 1")", "[1]", "3", R"("[1]")", R"("x")"}) {
        EXPECT_NE(arguments(bad).find("message 2 of 'messages': the arguments of the call of 'f'"),
                  std::string::npos)
            << bad << ": " << arguments(bad);
    }
    EXPECT_NE(said(R"("function_call": {"name": "f", "arguments": "{'a': 1}"})").find("of 'f'"),
              std::string::npos);
    EXPECT_NE(
        said(R"("content": "x", "tool_call": "{'name': 'f'}")").find("'tool_call' is not a call"),
        std::string::npos);
}

// In every form, a template gets the variables of the record, as in TRL.
TEST(Record, ATemplateGetsTheVariablesOfTheRecord) {
    const chat::Chat chat = Must(chat::Chat::Make(
        "{{ '/no_think ' if enable_thinking is defined and not enable_thinking else '/think ' }}"
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.role == 'assistant' and enable_thinking is defined and not enable_thinking "
        "%}"
        "(none) {% endif %}{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{{ '' if enable_thinking is not defined or enable_thinking else '(none) ' }}{% endif %}",
        Bytes()));
    const auto encoder = Must(Encoder::Make(Bytes(), &chat, 1));
    const std::string asked = "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n";
    const std::string user = R"([{"role": "user", "content": "U"}])";
    const std::string answer = R"([{"role": "assistant", "content": "A"}])";
    const auto shown = [&](const std::string& members, const std::string& variables) {
        const auto record =
            ParseRecord("{" + members + ", \"chat_template_kwargs\": " + variables + "}");
        return record.ok() ? Marked(Must(encoder.Encode(*record))) : record.error().message;
    };
    const std::string forms[] = {
        R"("messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}])",
        "\"prompt\": " + user + ", \"completion\": " + answer,
        R"("instruction": "U", "output": "A")"};
    for (const std::string& form : forms) {
        for (const char* off :
             {R"({"enable_thinking": false})", R"("{\"enable_thinking\": false}")"}) {
            EXPECT_EQ(shown(form, off), "/no_think " + asked + "(none) [A<|im_end|>]\n") << form;
        }
        for (const char* on : {"null", "{}", R"({"enable_thinking": null})", R"("")"}) {
            EXPECT_EQ(shown(form, on), "/think " + asked + "[A<|im_end|>]\n") << form << on;
        }
        EXPECT_EQ(shown(form, "[]"),
                  "'chat_template_kwargs' is array; expected an object with variables of the chat "
                  "template");
    }
    const std::string off = R"(, "chat_template_kwargs": {"enable_thinking": false}})";
    const auto object = Must(ParseRecordJson("{\"prompt\": " + user + off));
    const Sample prompt = Must(EncodePrompt(encoder, object));
    EXPECT_TRUE(Marked(prompt).starts_with("/no_think " + asked + "(none)")) << Marked(prompt);
    const auto pair = Must(PreferenceOfObject(
        Must(ParseRecordJson("{\"prompt\": " + user + ", \"chosen\": " + answer +
                             R"(, "rejected": [{"role": "assistant", "content": "B"}])" + off)),
        LossKind::kDpo));
    EXPECT_EQ(
        Marked(SplitPacked(Must(EncodePreference(encoder, LossKind::kDpo, pair, nullptr)))[1]),
        "/no_think " + asked + "(none) [B<|im_end|>]\n");
}

TEST(Record, ATemplateShowsTheDayOfTheJob) {
    const chat::Chat chat = Must(chat::Chat::Make(
        "Today: {{ strftime_now('%d %b %Y') }}\n{% for message in messages %}<|im_start|>"
        "{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        Bytes()));
    const auto shown = [&](const std::string& day) {
        const auto encoder =
            Must(Encoder::Make(Bytes(), &chat, 1, 0, {.now_s = Must(NoonOf(day))}));
        const std::string text = Marked(Must(encoder.Encode(Must(ParseRecord(
            R"({"messages": [{"role": "user", "content": "U"},
                             {"role": "assistant", "content": "A"}]})")))));
        EXPECT_NE(text.find("assistant\n[A<|im_end|>]"), std::string::npos) << text;
        return text.substr(0, text.find('\n'));
    };
    for (const char* zone : {"UTC", "AAA-14", "BBB12", "America/Sao_Paulo"}) {
        ::setenv("TZ", zone, 1);
        ::tzset();
        EXPECT_EQ(shown("2026-11-29"), "Today: 29 Nov 2026");
        EXPECT_EQ(shown("2024-02-29"), "Today: 29 Feb 2024");
        EXPECT_TRUE(NoonOf(Today()).ok()) << Today();
    }
    ::unsetenv("TZ");
    ::tzset();
    EXPECT_EQ(Must(NoonOf("")), 1);  // checkpoints without a day
    for (const char* day : {"2026-02-29", "2026-13-01", "1969-01-01", "29 Nov 2026", "2026-11-2x",
                            "2026-11-291", "0"}) {
        EXPECT_EQ(NoonOf(day).error().code, ErrorCode::kCorrupt) << day;
    }
}

}  // namespace
}  // namespace weft::train
