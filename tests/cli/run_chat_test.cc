// weft run as a chat: the prompt that the model's template makes of a question, and what becomes of
// the answer.
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/scripted_gguf.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using nlohmann::json;

class RunChat : public testing::Test {
  protected:
    // A model with this template, which answers with the script.
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

// The prompt is what the server would make of the same messages (chat/conversation.h): one token a
// byte, so that their number tells the text's length.
TEST_F(RunChat, ContentHasTheFormThatTheTemplateTakes) {
    const std::string text = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}=";
    const std::string parts =
        "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}"
        "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}=";
    // System messages in one form, the user's in the other.
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

TEST_F(RunChat, ASystemMessageThatTheTemplateRefusesIsTheUsers) {
    const std::string source =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}=";
    // Another that drops it without a word.
    const std::string silent =
        "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}"
        "{% endif %}{% endfor %}=";
    const std::string system = "Be brief.";
    for (const std::string& one : {source, silent}) {
        const std::string model = Model(one);
        const int alone = PromptTokens(model);
        EXPECT_EQ(alone, static_cast<int>(std::string("[user]Which?=").size()));
        EXPECT_EQ(PromptTokens(model, {"--system", system}),
                  alone + static_cast<int>(system.size()) + 2)  // a blank line between
            << one;
    }
}

}  // namespace
}  // namespace weft::support
