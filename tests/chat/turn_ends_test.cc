// A generation ends with the last token of a turn, in each family's template.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "base/file.h"
#include "chat/template/template_capabilities.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

constexpr std::string_view kQuestion = "Write the file now.";

// Bytes, and as control tokens everything in the template that looks like one.
std::unique_ptr<tokenizer::Tokenizer> MarkersOf(const std::string& source) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    static const std::regex kMarker(R"(<[^<>\s"'=(){}]+>|\[/?[A-Z_]+\])");
    std::set<std::string> markers;
    for (auto at = std::sregex_iterator(source.begin(), source.end(), kMarker);
         at != std::sregex_iterator(); ++at) {
        markers.insert(at->str());
    }
    for (const std::string& marker : markers) {
        if (std::ranges::find(data.tokens, marker) != data.tokens.end()) continue;
        data.tokens.push_back(marker);
        data.types.push_back(static_cast<int32_t>(tokenizer::TokenType::kControl));
    }
    data.bos = data.eos;
    return tokenizer::Tokenizer::Make(std::move(data)).value();
}

OrderedJson Tools() {
    const OrderedJson text{{"type", "string"}, {"description", "Where."}};
    const OrderedJson parameters{{"type", "object"}, {"properties", {{"path", text}}}};
    return OrderedJson::array(
        {{{"type", "function"},
          {"function",
           {{"name", "write_file"}, {"description", "Writes."}, {"parameters", parameters}}}}});
}

OrderedJson Turn(bool reasons, bool speaks, bool calls) {
    OrderedJson turn{{"role", "assistant"}, {"content", speaks ? "I write it." : ""}};
    if (reasons) turn["reasoning_content"] = turn["thinking"] = "It is easy.";
    if (calls) {
        turn["tool_calls"] = {
            {{"id", "call_0"},
             {"type", "function"},
             {"function", {{"name", "write_file"}, {"arguments", {{"path", "a b"}}}}}}};
    }
    return turn;
}

class TurnEndsOf : public testing::TestWithParam<std::string> {};

// Behind the first token that ends a generation, the turn has only blanks and markers.
TEST_P(TurnEndsOf, NoTokenWithinTheTurnEndsIt) {
    const std::string source =
        ReadTextFile(support::TestData("/chat/" + GetParam() + ".jinja")).value();
    const auto words = MarkersOf(source);
    const Chat chat = Chat::Make(source, *words).value();
    const TemplateCapabilities form = FindCapabilities(chat, true);
    int rendered = 0;
    for (const int kind : {2, 3, 5, 6, 7}) {
        ChatInput input = OneQuestion("", kQuestion);
        input.messages.push_back(Turn(kind & 1, kind & 2, kind & 4));
        input.tools = Tools();
        input.add_generation_prompt = false;
        input.now_s = 1;
        FitConversation(form, input);
        const auto text = chat.Render(input);
        if ((kind & 6) == 6 && form.text_apart) continue;  // two turns
        if (!text.ok()) continue;  // Mistral's refuses reasoning, for example
        ++rendered;
        // The turn from the first word of the answer on.
        const size_t question = text->view().rfind(kQuestion);
        ASSERT_NE(question, std::string_view::npos);
        size_t begin = text->size();
        for (const char* word : {"It is easy.", "I write it.", "write_file"}) {
            begin = std::min(begin, text->view().find(word, question));
        }
        std::string behind;  // the text behind the first token that ends a generation
        bool ended = false;
        for (const int32_t id : words->Encode(text->view().substr(begin),
                                              {.add_special = false, .parse_special = true})) {
            if (ended && !words->IsSpecial(id)) behind += words->Piece(id);
            ended = ended || words->IsEog(id);
        }
        EXPECT_EQ(behind.find_first_not_of(" \t\r\n"), behind.npos) << text->view();
    }
    EXPECT_GT(rendered, 0);
}

INSTANTIATE_TEST_SUITE_P(Templates, TurnEndsOf, testing::ValuesIn([] {
                             std::vector<std::string> names;
                             const std::string folder = support::TestData("/chat");
                             for (const auto& each : std::filesystem::directory_iterator(folder)) {
                                 const auto& path = each.path();
                                 if (path.extension() == ".jinja" && path.stem() != "raw_rules") {
                                     names.push_back(path.stem());
                                 }
                             }
                             std::ranges::sort(names);
                             return names;
                         }()),
                         [](const auto& one) { return one.param; });

// The file's ids decide: one that names "<|end|>" is believed.
TEST(TurnEnds, ByTheFamilyOrTheFile) {
    const auto make = [](std::vector<std::string> markers, bool named) {
        tokenizer::TokenizerData data = tokenizer::TinyBytePair();
        const auto end = static_cast<int32_t>(data.tokens.size());
        for (std::string& marker : markers) {
            data.tokens.push_back(std::move(marker));
            data.types.push_back(static_cast<int32_t>(tokenizer::TokenType::kControl));
        }
        if (named) data.ends = {end};
        auto made = tokenizer::Tokenizer::Make(std::move(data)).value();
        EXPECT_TRUE(made->EndsMessage(end));
        return made->IsEog(end);
    };
    EXPECT_TRUE(make({"<|end|>"}, false));  // Phi
    EXPECT_FALSE(make({"<|end|>", "<|return|>"}, false));
    EXPECT_FALSE(make({"<|end|>", "<|call|>"}, false));
    EXPECT_FALSE(make({"<|end|>", "<|flush|>"}, false));
    EXPECT_TRUE(make({"<|end|>", "<|return|>"}, true));
}

}  // namespace
}  // namespace weft::chat
