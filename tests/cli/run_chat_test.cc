// weft run as a chat: the prompt that the model's template makes of a question, and the printed
// answer.
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/scripted_gguf.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using nlohmann::json;

class RunChat : public testing::Test {
  protected:
    // A model with this template that answers with the script.
    std::string Model(const std::string& chat_template,
                      const std::vector<ScriptPiece>& script = {{"Well."}}) {
        const std::string path = dir_ / std::to_string(++models_) + ".gguf";
        WriteScriptedGguf(path, chat_template, script);
        return path;
    }
    static json Run(const std::string& model, const Words& more) {
        const Ran ran =
            RunWeft(Words{"run", model, "-p", "Which?", "--greedy", "-t", "1", "--json"} + more);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ran.Json() : json();
    }
    static int PromptTokens(const std::string& model, const Words& more = {}) {
        return Run(model, more).value("prompt_tokens", 0);
    }

    test::TempDir dir_;
    int models_ = 0;
};

// The prompt equals the server's for the same messages (chat/conversation.h). One token per byte,
// so the token count gives the text's length.
TEST_F(RunChat, ContentHasTheFormThatTheTemplateTakes) {
    const std::string text = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}=";
    const std::string parts =
        "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}"
        "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}=";
    // System messages in one form, user messages in the other.
    const std::string mixed =
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'system' %}{{ m.content }}"
        "{% else %}{{ m.content[0]['text'] }}{% endif %}{% endfor %}=";
    const std::string system = "Be brief.";
    for (const std::string& source : {text, parts, mixed}) {
        const std::string model = Model(source);
        EXPECT_EQ(PromptTokens(model), static_cast<int>(std::string("[user]Which?=").size()))
            << source;
        EXPECT_EQ(PromptTokens(model, {"--system", system}),
                  static_cast<int>(std::string("[system][user]Which?=").size() + system.size()))
            << source;
    }
}

TEST_F(RunChat, TheTemplateGetsItsVariables) {
    const std::string model = Model(
        "{% for m in messages %}{{ m.content }}{% endfor %}="
        "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}"
        "{% if thinking is defined and not thinking %}!{% endif %}{{ mood }}");
    const auto plain = static_cast<int>(std::string("Which?=").size());
    EXPECT_EQ(PromptTokens(model), plain);
    EXPECT_EQ(PromptTokens(model, {"--chat-template-kwargs", R"({"enable_thinking": false})"}),
              plain + 4);
    EXPECT_EQ(PromptTokens(model, {"--chat-template-kwargs",
                                   R"({"enable_thinking": true, "mood": "calm"})"}),
              plain + 4);
}

TEST_F(RunChat, ASystemMessageThatTheTemplateRefusesIsTheUsers) {
    const std::string source =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}=";
    // A template that drops it silently.
    const std::string silent =
        "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}"
        "{% endif %}{% endfor %}=";
    const std::string system = "Be brief.";
    for (const std::string& one : {source, silent}) {
        const std::string model = Model(one);
        const int alone = PromptTokens(model);
        EXPECT_EQ(alone, static_cast<int>(std::string("[user]Which?=").size()));
        EXPECT_EQ(PromptTokens(model, {"--system", system}),
                  alone + static_cast<int>(system.size()) + 2)  // a blank line between them
            << one;
    }
}

// A family's markers around one thought and one answer.
struct Form {
    const char* chat_template;
    bool control;  // the markers are control tokens
    std::string begin, end;
};

TEST_F(RunChat, StopStringsCountInTheAnswerAlone) {
    const Form forms[] = {
        {"qwen", false, "<think>", "</think>"},
        {"granite", false, "<think>", "</think>"},
        {"kimi", true, "<think>", "</think>"},
        {"mistral", true, "[THINK]", "[/THINK]"},
        {"gemma4", true, "<|channel>thought\n", "<channel|>"},
        {"harmony", true, "<|channel|>analysis<|message|>",
         "<|end|><|start|>assistant<|channel|>final<|message|>"},
    };
    const std::string thought = "<think>\none END two\n</think>\n\n";
    for (const Form& form : test::Some(forms, 2)) {
        SCOPED_TRACE(form.chat_template);
        const auto source =
            ReadTextFile(fmt::format("{}/chat/{}.jinja", TestData(), form.chat_template));
        ASSERT_TRUE(source.ok());
        const std::string model = Model(*source, {{form.begin, form.control},
                                                  {"one E"},
                                                  {"ND two"},
                                                  {form.end, form.control},
                                                  {"four "},
                                                  {"EN"},
                                                  {"D five END"}});
        const std::string whole = thought + "four END five END";
        EXPECT_EQ(Run(model, {})["text"], whole);
        EXPECT_EQ(Run(model, {"--stop", "END"})["text"], thought + "four ");
        EXPECT_EQ(Run(model, {"--stop", "never said", "--stop", "END five"})["text"],
                  thought + "four ");
        const json early = Run(model, {"--stop", "four"});
        EXPECT_EQ(early["text"], thought);
        EXPECT_LT(early["tokens"].size(), 7u) << "the model went on behind the stop string";
        // The cut is in the reasoning, in a marker, or between the reasoning and the answer.
        for (const std::string stop : {"two", "</think>", form.end.c_str(), "twofour", "ne E"}) {
            EXPECT_EQ(Run(model, {"--stop", stop})["text"], whole) << stop;
        }
        // The printed text is the same.
        const Ran plain = RunWeft({"run", model, "-p", "Which?", "--greedy", "--stop", "END"});
        EXPECT_EQ(plain.out, thought + "four \n") << plain.err;
        EXPECT_NE(plain.err.find("(stop)"), std::string::npos) << plain.err;
    }
}

// Markers that the answer spells out are text; control tokens outside markers are not shown; the
// end of a message does not end the turn.
TEST_F(RunChat, AnswersAreReadByTheirTokens) {
    const struct {
        const char* chat_template;
        std::vector<ScriptPiece> script;
        const char* text;
    } cases[] = {{"qwen",
                  {{"A turn ends with <|im_"}, {"end|> and a line end."}},
                  "A turn ends with <|im_end|> and a line end."},
                 {"qwen", {{"Use `<"}, {"think>.*?</"}, {"think>`."}}, "Use `<think>.*?</think>`."},
                 {"qwen", {{"Hello "}, {"<|vision_start|>", true}, {"world."}}, "Hello world."},
                 {"mistral", {{"<p><s>old</"}, {"s> new</p>"}}, "<p><s>old</s> new</p>"},
                 {"harmony",
                  {{"<|channel|>analysis<|message|>"},
                   {"I think."},
                   {"<|end|>", true},
                   {"<|start|>assistant<|channel|>final<|message|>"},
                   {"It ends with <|"},
                   {"end|>, too."},
                   {"<|return|>", true}},
                  "<think>\nI think.\n</think>\n\nIt ends with <|end|>, too."},
                 {"solar",
                  {{"<|think|>", true},
                   {"I think."},
                   {"<|end|>", true},
                   {"<|begin|>assistant<|content|>"},
                   {"Hello."},
                   {"<|flush|>", true}},
                  "<think>\nI think.\n</think>\n\nHello."}};
    for (const auto& one : cases) {
        const auto source =
            ReadTextFile(fmt::format("{}/chat/{}.jinja", TestData(), one.chat_template));
        ASSERT_TRUE(source.ok());
        EXPECT_EQ(Run(Model(*source, one.script), {})["text"], one.text);
    }
}

TEST_F(RunChat, AThoughtThatTheTemplateOpensIsNoAnswer) {
    const std::string source = "[{{ messages[0].content }}]<think>\n";
    const std::string ends = Model(source, {{"one END"}, {"\n</think>\n\n", true}, {"two END"}});
    EXPECT_EQ(Run(ends, {"--stop", "END"})["text"], "<think>\none END\n</think>\n\ntwo ");
    const std::string endless = Model(source, {{"one END two"}});
    EXPECT_EQ(Run(endless, {"--stop", "END"})["text"], "<think>\none END two");
}

// Without a chat there is no reasoning: stop strings apply to the whole text, as in plain
// completions.
TEST_F(RunChat, StopStringsOfPlainCompletionsCountEverywhere) {
    const std::vector<ScriptPiece> script = {{"<think>"}, {"one END two"}, {"</think>"}, {"three"}};
    const std::string model = Model("{{ messages[0].content }}<think>", script);
    EXPECT_EQ(Run(model, {"--raw", "--stop", "END"})["text"], "<think>one ");
    const std::string plain = Model("{{ messages[0].content }}=", {{"one "}, {"END"}, {" two"}});
    EXPECT_EQ(Run(plain, {"--stop", "END"})["text"], "one ");
    EXPECT_EQ(Run(plain, {"--stop", "ND t", "--stop", "two"})["text"], "one E");
}

}  // namespace
}  // namespace weft::support
