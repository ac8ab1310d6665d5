// Methods and filters of texts over many scripts, against jinja2. The golden file comes from
// tools/make_text_golden.py.
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/chat_render.h"
#include "support/paths.h"

namespace weft::chat {
namespace {

const OrderedJson& GoldenFile() {
    static const OrderedJson golden = [] {
        auto text = ReadTextFile(support::TestData("/chat/text_golden.json"));
        EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
        return text.ok() ? OrderedJson::parse(std::move(text).value()) : OrderedJson();
    }();
    return golden;
}

// The rendered expression, or null if it fails.
OrderedJson Evaluated(const ChatTemplate& parsed, const OrderedJson& text) {
    ChatInput input = OneUser("hi");
    input.extra = {{"x", text}};
    auto rendered = parsed.Render(input, {});
    return rendered.ok() ? OrderedJson(rendered->bytes()) : OrderedJson();
}

TEST(TextGolden, ExpressionsGiveWhatJinja2Gives) {
    const OrderedJson& texts = GoldenFile().at("texts");
    const OrderedJson& rows = GoldenFile().at("rows");
    ASSERT_GE(rows.size(), 200u);
    for (const OrderedJson& row : rows) {
        const std::string expression = row.at(0);
        const auto parsed = ChatTemplate::Parse("{{ " + expression + " }}");
        ASSERT_TRUE(parsed.ok()) << expression << ": " << parsed.error().message;
        for (size_t i = 0; i < texts.size(); ++i) {
            EXPECT_EQ(Evaluated(*parsed, texts[i]), row.at(1).at(i))
                << expression << " of " << texts[i];
        }
    }
}

TEST(TextGolden, LettersWithSpecialMappings) {
    const char* methods[] = {"upper", "lower", "title", "capitalize", "casefold"};
    const OrderedJson& letters = GoldenFile().at("letters");
    ASSERT_GE(letters.size(), 100u);
    for (size_t i = 0; i < std::size(methods); ++i) {
        const auto parsed = ChatTemplate::Parse(std::string("{{ x.") + methods[i] + "() }}");
        ASSERT_TRUE(parsed.ok());
        for (const OrderedJson& row : letters) {
            EXPECT_EQ(Evaluated(*parsed, row[0]), row[i + 1]) << methods[i] << " of " << row[0];
        }
    }
}

}  // namespace
}  // namespace weft::chat
